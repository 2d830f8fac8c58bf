//! The watcher of a server on another machine (`--watch-with`), as the driver sees it.

use super::fleet::keep_leases;
use super::link::{Event, Link, Source, Stand};
use super::protocol::{LEASE_NS, ToWorker, WireObservation};
use anyhow::{Result, bail};
use record::figure::{Figure, Origin};
use record::time::monotonic_ns;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// How long ssh may take until the watcher is there.
const GREETING_NS: u64 = 60_000_000_000;
/// How long an observation may take to come.
const ANSWER_NS: u64 = 10_000_000_000;

/// A watcher and what it last said.
#[derive(Debug)]
pub struct Watcher {
    link: Link,
    events: Receiver<(usize, Event)>,
    /// What the server is, by the last observation.
    pub server_facts: BTreeMap<String, String>,
}

impl Watcher {
    /// Starts the command and waits for its hello.
    pub fn connect(command: &str, stop: &AtomicBool) -> Result<Watcher> {
        let (tell, events) = sync_channel(64);
        let link = Link::start(0, &Source::Command(command.into()), tell)?;
        keep_leases(std::slice::from_ref(&link));
        let mut watcher = Watcher { link, events, server_facts: BTreeMap::new() };
        watcher.link.role = "watcher";
        let until_ns = monotonic_ns() + GREETING_NS;
        while matches!(watcher.link.stand, Stand::Greeting) && monotonic_ns() < until_ns {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted while the watcher was starting");
            }
            watcher.pump(GREETING_NS);
        }
        // One that cannot watch says so at once, behind its hello.
        let until_ns = monotonic_ns() + LEASE_NS;
        watcher.link.ping();
        while !watcher.is_there()
            && !watcher.link.is_lost()
            && monotonic_ns() < until_ns
            && !stop.load(Ordering::Relaxed)
        {
            watcher.pump(0);
        }
        match &watcher.link.stand {
            Stand::Lost(why) => bail!(
                "{} cannot be used: {why}; does the command start 'straingauge watch --worker :PORT' and print nothing else?",
                watcher.link.name()
            ),
            Stand::Greeting => bail!("{} did not say hello within 60 s", watcher.link.name()),
            _ if watcher.is_there() => Ok(watcher),
            _ => bail!(
                "{} cannot be used: it does not say that it can watch; is it 'watch --worker'?",
                watcher.link.name()
            ),
        }
    }

    fn is_there(&self) -> bool {
        matches!(self.link.stand, Stand::Ready) && self.link.clock.is_some()
    }

    fn pump(&mut self, patience_ns: u64) {
        let mut wait = Duration::from_millis(5);
        while let Ok((_, event)) = self.events.recv_timeout(wait) {
            self.link.hear(event);
            wait = Duration::ZERO;
        }
        self.link.look(monotonic_ns(), patience_ns);
    }

    /// A window begins now, there as soon as the word has gone over.
    pub fn window_begins(&mut self) -> Result<(), String> {
        self.say(&ToWorker::Begin {})
    }

    /// The window ends now.
    pub fn window_ends(&mut self) -> Result<(), String> {
        self.say(&ToWorker::End {})
    }

    fn say(&mut self, message: &ToWorker) -> Result<(), String> {
        self.pump(u64::MAX);
        self.link.send(message);
        self.loss().map_or(Ok(()), Err)
    }

    fn loss(&self) -> Option<String> {
        match &self.link.stand {
            Stand::Lost(why) => Some(format!("{} was lost: {why}", self.link.name())),
            _ => None,
        }
    }

    /// What was seen in the window that ended last, in which this many requests completed.
    pub fn observation(&mut self, completed: u64) -> Result<WireObservation, String> {
        self.link.observation = None;
        self.say(&ToWorker::Observe { completed })?;
        let until_ns = monotonic_ns() + ANSWER_NS;
        loop {
            if let Some(seen) = self.link.observation.take() {
                let mut seen = seen.bounded();
                self.server_facts = seen.server_facts.clone();
                let trip_us = self.link.clock.map(|clock| clock.uncertainty_ns as f64 * 2.0 / 1e3);
                let figure = match trip_us {
                    Some(us) => {
                        Figure::new(us, "us", self.link.clock.map_or(0, |clock| clock.exchanges), Origin::Timed)
                    }
                    None => Figure::not_measured("us", "it answered no ping"),
                };
                seen.figures.set("watcher.round_trip_us", figure);
                return Ok(seen);
            }
            if let Some(why) = self.loss() {
                return Err(why);
            }
            if monotonic_ns() > until_ns {
                return Err(format!("{} did not say within 10 s what it saw", self.link.name()));
            }
            self.pump(0);
        }
    }
}
