//! The watch of the server: by this machine's observer, by a watcher on the server's machine (`--watch-with`), or
//! none.

use super::layers::is_sampled;
use super::{Companion, SharedWatcher, UpcomingLoad};
use crate::measured::{MeasuredPoint, client_side};
use crate::server::ServerLife;
use observe::profile::PointSampling;
use observe::watch::point::{self, WatchedPoint};
use observe::{ObservedWindow, Observer};
use record::{Doubt, DoubtKind, LoadPlan, machine};
use remote::{RemoteWatcher, RequestWatchPlan};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Why a point has no window.
const NO_WINDOW: &str = "the window never began";

pub enum ServerWatch {
    Here(LocalObserver),
    Elsewhere(RemoteObserver),
    /// The server cannot be watched; every point gets this doubt.
    Not(Doubt),
}

pub struct LocalObserver {
    observer: Box<Observer>,
    /// The completed window of the current load, or why there is none.
    window: Option<Result<Box<ObservedWindow>, String>>,
}

pub struct RemoteObserver {
    watcher: SharedWatcher,
    counts_requests: bool,
    samples_layers: bool,
    /// Whether the window of the current load has ended; the error says what went wrong.
    has_window: Result<bool, String>,
}

impl ServerWatch {
    pub fn here(observer: Observer) -> ServerWatch {
        ServerWatch::Here(LocalObserver { observer: Box::new(observer), window: None })
    }

    pub fn elsewhere(watcher: RemoteWatcher) -> ServerWatch {
        ServerWatch::Elsewhere(RemoteObserver {
            watcher: Rc::new(RefCell::new(watcher)),
            counts_requests: false,
            samples_layers: false,
            has_window: Ok(false),
        })
    }
}

/// The server that straingauge started. When it ends, the load ends, too.
pub struct StartedServer {
    life: ServerLife,
    next_check: Instant,
}

impl StartedServer {
    pub fn new(life: ServerLife) -> StartedServer {
        StartedServer { life, next_check: Instant::now() }
    }
}

impl Companion for StartedServer {
    fn should_abort(&mut self) -> bool {
        let Some(status) = self.life.ended() else { return false };
        if !status.success() {
            return true;
        }
        // The first process has ended, but may have left a daemon.
        if Instant::now() < self.next_check {
            return false;
        }
        self.next_check = Instant::now() + CHECK_INTERVAL;
        !self.life.is_listening()
    }

    fn record_into(&mut self, _measured: &mut MeasuredPoint) {}
}

/// Checks that a running server is on this machine; another one may listen on the same port here.
pub fn is_here(plan: &LoadPlan) -> Result<(), String> {
    if plan.addresses.iter().any(|address| machine::has_address(address.ip())) {
        return Ok(());
    }
    let address = plan.addresses.first().map_or(String::new(), |address| address.ip().to_string());
    Err(format!("{address} is not an address of this machine"))
}

impl RemoteObserver {
    pub fn count_requests(&mut self, how: &RequestWatchPlan) -> Result<Option<String>, String> {
        let why_not = self.watcher.borrow_mut().watch_requests(how)?;
        self.counts_requests = true;
        Ok(why_not)
    }

    fn observe(&mut self, measured: &mut MeasuredPoint) -> Result<(), String> {
        if !std::mem::replace(&mut self.has_window, Ok(false))? {
            return Err(NO_WINDOW.into());
        }
        let seen = self.watcher.borrow_mut().observation(client_side(&measured.result))?;
        let point = &mut measured.point;
        point.figures.extend(seen.figures);
        point.connection_states = seen.connection_states;
        point.account = seen.account;
        point.doubts.extend(seen.doubts);
        point.watched = seen.watched;
        point.functions = seen.functions;
        point.with_callees = seen.with_callees;
        measured.stacks = seen.stacks;
        Ok(())
    }
}

impl LocalObserver {
    fn observe(&mut self, measured: &mut MeasuredPoint) -> Result<(), String> {
        let window = self.window.take().unwrap_or(Err(NO_WINDOW.into()))?;
        let result = &measured.result;
        let seen = window.observation_of(result.counts.completed_in_window, result.window_ns);
        let point = &mut measured.point;
        point.figures.extend(seen.figures);
        point.connection_states = seen.connection_states;
        point.account = seen.account;
        point.doubts.extend(seen.doubts);
        Ok(())
    }
}

impl Companion for ServerWatch {
    fn set_beside(&mut self, pids: &[u32]) {
        if let ServerWatch::Here(here) = self {
            here.observer.set_beside(pids);
        }
    }

    fn watcher(&self) -> Option<SharedWatcher> {
        match self {
            ServerWatch::Elsewhere(there) => Some(Rc::clone(&there.watcher)),
            ServerWatch::Here(_) | ServerWatch::Not(_) => None,
        }
    }

    fn sample_layers(&mut self) -> Option<Result<(), String>> {
        let ServerWatch::Elsewhere(there) = self else { return None };
        let sampled = there.watcher.borrow_mut().sample_layers(PointSampling::OF_SEARCH);
        there.samples_layers = sampled.is_ok();
        Some(sampled)
    }

    fn load_begins(&mut self, load: &UpcomingLoad<'_>) {
        match self {
            ServerWatch::Here(here) => {
                here.window = None;
                if !load.is_live {
                    here.observer.load_begins();
                }
            }
            // The end of the window detects a lost watcher.
            ServerWatch::Elsewhere(there) => {
                there.has_window = there.watcher.borrow_mut().load_begins().map(|()| false)
            }
            ServerWatch::Not(_) => {}
        }
    }

    fn window_begins(&mut self, load: &UpcomingLoad<'_>) {
        match self {
            ServerWatch::Here(here) => {
                here.window = here.observer.window_begins().err().map(|error| Err(error.to_string()));
            }
            ServerWatch::Elsewhere(there) if there.has_window.is_ok() => {
                let has_layers = there.samples_layers && is_sampled(load);
                let begun = there.watcher.borrow_mut().window_begins(load.plan.duration_ns, has_layers);
                there.has_window = begun.map(|()| false);
            }
            _ => {}
        }
    }

    fn window_ends(&mut self) {
        match self {
            ServerWatch::Here(here) if here.window.is_none() => {
                here.window = Some(here.observer.window_ends().map(Box::new).map_err(|error| error.to_string()));
            }
            ServerWatch::Elsewhere(there) if there.has_window.is_ok() => {
                there.has_window = there.watcher.borrow_mut().window_ends().map(|()| true);
            }
            _ => {}
        }
    }

    fn should_abort(&mut self) -> bool {
        matches!(self, ServerWatch::Elsewhere(there) if there.watcher.borrow_mut().has_lost_its_server())
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        let seen = match self {
            ServerWatch::Here(here) => here.observe(measured),
            ServerWatch::Elsewhere(there) => there.observe(measured),
            ServerWatch::Not(doubt) => {
                measured.point.doubts.push(doubt.clone());
                return;
            }
        };
        if let Err(why) = seen {
            measured.point.doubts.push(DoubtKind::NotWatched.warning(
                format!("the server was not watched: {why}"),
                "run straingauge doctor on the server's machine to see what is missing",
            ));
        }
        if matches!(self, ServerWatch::Elsewhere(there) if there.counts_requests) && measured.point.watched.is_none() {
            let WatchedPoint { figures, watched, doubts } =
                point::not_watched("the watcher on the server's machine did not report it");
            measured.point.figures.extend(figures);
            measured.point.watched = Some(watched);
            measured.point.doubts.extend(doubts);
        }
    }

    fn load_failed(&mut self) {
        match self {
            ServerWatch::Here(here) => here.window = None,
            ServerWatch::Elsewhere(there) => there.has_window = Ok(false),
            ServerWatch::Not(_) => {}
        }
    }

    fn server_facts(&self) -> BTreeMap<String, String> {
        match self {
            ServerWatch::Here(here) => here.observer.server_facts(),
            ServerWatch::Elsewhere(there) => there.watcher.borrow().server_facts.clone(),
            ServerWatch::Not(_) => BTreeMap::new(),
        }
    }
}
