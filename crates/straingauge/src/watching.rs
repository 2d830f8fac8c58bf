//! Who watches the server: the observer of this machine, or a watcher on the server's (`--watch-with`).

use observe::watch::point::ClientSide;
use observe::{Observer, Window};
use record::figure::{Figure, Figures};
use record::{Doubt, Watched};
use remote::Watcher;
use std::collections::BTreeMap;

/// One of both.
pub enum Watch {
    /// The server is on this machine.
    Here(Box<Observer>),
    /// It is elsewhere.
    There(Box<Watcher>),
}

/// A window that ended.
pub enum Ended {
    /// With its readings.
    Here(Box<Window>),
    /// The watcher has them.
    There,
}

/// What was seen in a window.
pub struct Seen {
    pub figures: Figures,
    pub connection_states: BTreeMap<String, Figure>,
    pub doubts: Vec<Doubt>,
    /// Requests by size class, where a watcher elsewhere counts them.
    pub watched: Option<Watched>,
}

impl Watch {
    /// A load begins; returns when a watcher elsewhere is ready for it. One that is lost is noticed with the window.
    pub fn load_begins(&mut self) -> Result<(), String> {
        match self {
            Watch::Here(_) => Ok(()),
            Watch::There(watcher) => watcher.load_begins(),
        }
    }

    /// A window of this planned length begins; an error is a sentence.
    pub fn window_begins(&mut self, planned_ns: u64) -> Result<(), String> {
        match self {
            Watch::Here(observer) => observer.window_begins().map_err(|error| error.to_string()),
            Watch::There(watcher) => watcher.window_begins(planned_ns),
        }
    }

    /// It ends.
    pub fn window_ends(&mut self) -> Result<Ended, String> {
        match self {
            Watch::Here(observer) => {
                observer.window_ends().map(|window| Ended::Here(Box::new(window))).map_err(|error| error.to_string())
            }
            Watch::There(watcher) => watcher.window_ends().map(|()| Ended::There),
        }
    }

    /// What was seen in it, with the client's own counts.
    pub fn seen(&mut self, ended: Ended, client: ClientSide) -> Result<Seen, String> {
        match (self, ended) {
            (_, Ended::Here(window)) => {
                let seen = window.observation(client.completed_in_window);
                Ok(Seen {
                    figures: seen.figures,
                    connection_states: seen.connection_states,
                    doubts: seen.doubts,
                    watched: None,
                })
            }
            (Watch::There(watcher), Ended::There) => {
                let seen = watcher.observation(client)?;
                Ok(Seen {
                    figures: seen.figures,
                    connection_states: seen.connection_states,
                    doubts: seen.doubts,
                    watched: seen.watched,
                })
            }
            (Watch::Here(_), Ended::There) => Err("the window belongs to another watcher".into()),
        }
    }

    /// Facts about the server's processes.
    pub fn server_facts(&self) -> BTreeMap<String, String> {
        match self {
            Watch::Here(observer) => observer.server_facts(),
            Watch::There(watcher) => watcher.server_facts.clone(),
        }
    }
}
