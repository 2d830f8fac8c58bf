use crate::error::{RemoteError, Result, unusable};
use crate::fleet::keep_leases;
use crate::link::{WorkerLink, WorkerSource, WorkerState};
use crate::protocol::{FromWorker, HostPlace, LEASE_NS, StartedState, TimeWaitCount, ToWorker, WireObservation};
use crate::requests::RequestWatchPlan;
use crate::worker_io::{Listening, WorkerEvent};
use observe::profile::PointSampling;
use record::figure::{Figure, Origin};
use record::time::monotonic_ns;
use record::units::format_nanos;
use record::{ClientSide, Doubt, DoubtKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const GREETING_NS: u64 = 60_000_000_000;
const STOPS_SERVER_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_NS: u64 = 10_000_000_000;
const BESIDE_NS: u64 = 30_000_000_000;
/// Timeout for loading and calibrating programs, or for scanning connections before a load.
const PREPARING_NS: u64 = 60_000_000_000;

/// Maximum difference between the edges of the watcher's and the client's windows, absolute and as a share of the
/// window. The larger one counts.
const OTHER_WINDOW_NS: f64 = 1e8;
const OTHER_WINDOW_RATIO: f64 = 0.01;

/// A watcher and its last message.
#[derive(Debug)]
pub struct RemoteWatcher {
    /// Dropped first, so that no sender blocks on it.
    events: Receiver<(usize, WorkerEvent)>,
    link: WorkerLink,
    listening: Listening,
    /// Facts about the server in the last observation.
    pub server_facts: BTreeMap<String, String>,
    has_started_server: bool,
    counts_requests: bool,
    /// When the messages that began and ended the last window were sent.
    edges_ns: [u64; 2],
}

impl RemoteWatcher {
    /// Starts the command and waits for its hello. With `starts_server`, the watcher first starts the server, within
    /// this timeout, and stops it at the end.
    pub fn connect(command: &str, starts_server: Option<Duration>, stop: &AtomicBool) -> Result<RemoteWatcher> {
        RemoteWatcher::at(&WorkerSource::Command(command.into()), starts_server, stop)
    }

    #[doc(hidden)]
    pub fn at(source: &WorkerSource, starts_server: Option<Duration>, stop: &AtomicBool) -> Result<RemoteWatcher> {
        let (sender, events) = sync_channel(64);
        let mut link = WorkerLink::start(0, "watcher", source, &sender)?;
        if starts_server.is_some() {
            link.ends_within = STOPS_SERVER_WITHIN;
        }
        keep_leases(std::slice::from_ref(&link));
        let mut watcher = RemoteWatcher {
            events,
            link,
            listening: Listening::new(),
            server_facts: BTreeMap::new(),
            has_started_server: starts_server.is_some(),
            counts_requests: false,
            edges_ns: [0; 2],
        };
        let timeout_ns = GREETING_NS + starts_server.map_or(0, |timeout| timeout.as_nanos() as u64);
        let until_ns = monotonic_ns() + timeout_ns;
        while matches!(watcher.link.state, WorkerState::Greeting) && monotonic_ns() < until_ns {
            if stop.load(Ordering::Relaxed) {
                return Err(RemoteError::Interrupted("the watcher was starting"));
            }
            watcher.pump(timeout_ns);
        }
        // If a watcher cannot watch, it reports this right after its hello.
        let until_ns = monotonic_ns() + LEASE_NS;
        watcher.link.ping();
        while !watcher.is_there()
            && !watcher.link.is_lost()
            && monotonic_ns() < until_ns
            && !stop.load(Ordering::Relaxed)
        {
            watcher.pump(0);
        }
        watcher.link.greeted(timeout_ns, "straingauge watch --worker :PORT")?;
        if watcher.is_there() {
            return Ok(watcher);
        }
        let name = watcher.link.name();
        Err(unusable(format!("{name} cannot be used: it does not watch; is it 'watch --worker'?")))
    }

    fn is_there(&self) -> bool {
        matches!(self.link.state, WorkerState::Ready) && self.link.clock.is_some()
    }

    fn pump(&mut self, timeout_ns: u64) {
        self.handle_events(Duration::from_millis(5), timeout_ns);
    }

    /// Handles events, waiting at most `wait` for the first, and gives up a silent watcher.
    fn handle_events(&mut self, mut wait: Duration, timeout_ns: u64) {
        self.listening.listening_since(monotonic_ns());
        while let Ok((_, event)) = self.events.recv_timeout(wait) {
            self.link.handle(event);
            wait = Duration::ZERO;
        }
        let now_ns = monotonic_ns();
        let since_ns = self.listening.listening_since(now_ns);
        self.link.give_up_if_silent(now_ns, since_ns, timeout_ns);
    }

    /// Starts to count requests there. `Ok(Some)` says why they cannot be counted, which the points report as well.
    /// An error means that the watcher is lost.
    pub fn watch_requests(&mut self, how: &RequestWatchPlan) -> Result<Option<String>, String> {
        let why_not =
            self.ask(&ToWorker::Watch(how.clone()), PREPARING_NS, "whether it can count requests", |answer| {
                if let FromWorker::Watching { why_not } = answer { Some(why_not) } else { None }
            })?;
        self.counts_requests = true;
        Ok(why_not.map(String::from))
    }

    /// Prepares the sampling of layers in windows that request it. The error says why they cannot be sampled.
    pub fn sample_layers(&mut self, how: PointSampling) -> Result<(), String> {
        let why_not = self.ask(
            &ToWorker::Layers { frequency_hz: how.frequency_hz },
            PREPARING_NS,
            "whether it can sample layers",
            |answer| if let FromWorker::Layers { why_not } = answer { Some(why_not) } else { None },
        )?;
        why_not.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Counts the server's TIME_WAIT sockets there, and ends them first if `ends`.
    pub fn time_wait(&mut self, ends: bool) -> Result<TimeWaitCount, String> {
        let seen =
            self.ask(&ToWorker::TimeWait { ends }, PREPARING_NS, "the server's TIME_WAIT sockets", |answer| {
                if let FromWorker::TimeWait(seen) = answer { Some(seen) } else { None }
            })?;
        seen.why_not.clone().map_or(Ok(seen), |why| Err(why.into()))
    }

    /// Starts a command on the server's machine. The error says why it does not run.
    pub fn start_beside(&mut self, command: &[String]) -> Result<(), String> {
        let state = self.ask_beside(&ToWorker::Beside { command: command.to_vec() })?;
        state.gone.map_or(Ok(()), |why| Err(why.into()))
    }

    /// How that command ended unexpectedly.
    pub fn beside_end_reason(&mut self) -> Option<String> {
        self.ask_beside(&ToWorker::BesideAsk {}).map_or_else(Some, |state| state.gone.map(String::from))
    }

    /// Ends that command, and returns the end of its output.
    pub fn end_beside(&mut self) -> Vec<u8> {
        self.ask_beside(&ToWorker::Beside { command: Vec::new() }).map_or(Vec::new(), |state| state.output)
    }

    fn ask_beside(&mut self, message: &ToWorker) -> Result<StartedState, String> {
        self.ask(message, BESIDE_NS, "about the command next to the server", |answer| {
            if let FromWorker::Beside(state) = answer { Some(state) } else { None }
        })
    }

    /// Machine and network stack of the watcher and the server.
    pub fn place(&self) -> &HostPlace {
        &self.link.place
    }

    /// How the server that it started ended, and the end of the server's output so far. A server ends with its
    /// watcher.
    pub fn server(&mut self) -> (Option<String>, Vec<u8>) {
        if !self.has_started_server {
            return (self.loss().map(lost_with), Vec::new());
        }
        self.link.server = None;
        let state = self
            .send(&ToWorker::ServerAsk {})
            .and_then(|()| self.wait_for(ANSWER_NS, "about the server that it started", |link| link.server.take()));
        match state {
            Ok(StartedState { gone, output }) => (gone.map(String::from), output),
            Err(_) => (self.loss().map(lost_with), Vec::new()),
        }
    }

    /// Whether a server that it started has ended or is lost with it.
    pub fn has_lost_its_server(&mut self) -> bool {
        self.handle_events(Duration::ZERO, 0);
        let has_ended = self.link.server.as_ref().is_some_and(|state| state.gone.is_some());
        has_ended || (self.link.is_lost() && self.has_started_server)
    }

    /// Call it when a load begins. It returns when the watcher knows the state before the load, and compares the
    /// clocks again, because they drift.
    pub fn load_begins(&mut self) -> Result<(), String> {
        self.link.clock = None;
        self.link.ping();
        if !self.counts_requests {
            return Ok(());
        }
        self.ask(&ToWorker::LoadBegins {}, PREPARING_NS, "that it awaits the load", |answer| {
            matches!(answer, FromWorker::LoadAwaited {}).then_some(())
        })
    }

    /// Sends a message and waits for its answer; other answers are late ones of earlier messages.
    fn ask<T>(
        &mut self,
        message: &ToWorker,
        within_ns: u64,
        what: &str,
        answer: impl Fn(FromWorker) -> Option<T>,
    ) -> Result<T, String> {
        self.link.answer = None;
        self.send(message)?;
        self.wait_for(within_ns, what, |link| link.answer.take().and_then(&answer))
    }

    fn wait_for<T>(
        &mut self,
        within_ns: u64,
        what: &str,
        take: impl Fn(&mut WorkerLink) -> Option<T>,
    ) -> Result<T, String> {
        let until_ns = monotonic_ns() + within_ns;
        loop {
            if let Some(answer) = take(&mut self.link) {
                return Ok(answer);
            }
            if let Some(why) = self.loss() {
                return Err(why);
            }
            if monotonic_ns() > until_ns {
                return Err(format!(
                    "{} did not report within {} s {what}",
                    self.link.name(),
                    within_ns / 1_000_000_000
                ));
            }
            self.pump(0);
        }
    }

    /// Begins a window of this planned length. The watcher begins it when the message arrives.
    pub fn window_begins(&mut self, planned_ns: u64, has_layers: bool) -> Result<(), String> {
        self.send(&ToWorker::Begin { planned_ns, has_layers })?;
        self.edges_ns[0] = monotonic_ns();
        Ok(())
    }

    /// Ends the window.
    pub fn window_ends(&mut self) -> Result<(), String> {
        self.send(&ToWorker::End {})?;
        self.edges_ns[1] = monotonic_ns();
        Ok(())
    }

    fn send(&mut self, message: &ToWorker) -> Result<(), String> {
        self.pump(u64::MAX);
        self.link.send(message);
        self.loss().map_or(Ok(()), Err)
    }

    fn loss(&self) -> Option<String> {
        match &self.link.state {
            WorkerState::Lost(why) => Some(format!("{} was lost: {why}", self.link.name())),
            _ => None,
        }
    }

    /// The observation of the window that ended last. `client` holds the client's counts of its load.
    pub fn observation(&mut self, client: ClientSide) -> Result<WireObservation, String> {
        let completed = client.completed_in_window;
        let message = ToWorker::Observe { completed, client: self.counts_requests.then_some(client) };
        let mut seen = self.ask(&message, ANSWER_NS, "what it saw", |answer| {
            if let FromWorker::Observation(seen) = answer { Some(seen) } else { None }
        })?;
        self.server_facts = seen.server_facts.clone();
        if let (Some(theirs_ns), Some(clock)) = (seen.edges_ns, self.link.clock) {
            let theirs_ns = theirs_ns.map(|at_ns| i128::from(at_ns) - clock.offset_ns);
            seen.doubts.extend(window_doubt(theirs_ns, self.edges_ns, clock.uncertainty_ns));
        }
        let trip_us = self.link.clock.map(|clock| clock.uncertainty_ns as f64 * 2.0 / 1e3);
        let figure = match trip_us {
            Some(us) => Figure::new(us, "us", self.link.clock.map_or(0, |clock| clock.exchanges), Origin::Timed),
            None => Figure::not_measured("us", "it answered no ping"),
        };
        seen.figures.set("watcher.round_trip_us", figure);
        Ok(*seen)
    }
}

/// A doubt if the watcher's window differs from the client's. Both are on the driver's clock; `uncertainty_ns` is the
/// error of the conversion.
pub fn window_doubt(theirs_ns: [i128; 2], ours_ns: [u64; 2], uncertainty_ns: u64) -> Option<Doubt> {
    let [begin, end] = [0, 1].map(|edge| theirs_ns[edge].saturating_sub(i128::from(ours_ns[edge])) as f64);
    let limit_ns =
        OTHER_WINDOW_NS.max(ours_ns[1].saturating_sub(ours_ns[0]) as f64 * OTHER_WINDOW_RATIO) + uncertainty_ns as f64;
    let late = |nanos: f64| format!("{} too {}", format_nanos(nanos.abs()), if nanos < 0.0 { "early" } else { "late" });
    (begin.abs().max(end.abs()) > limit_ns).then(|| {
        DoubtKind::SourcesDisagree.warning(
            format!(
                "the watcher's window began {} and ended {}: the watcher or its network stalled",
                late(begin),
                late(end)
            ),
            "measure again: the server's figures and the load's come from different windows",
        )
    })
}

fn lost_with(why: String) -> String {
    format!("ended with its watcher ({why})")
}
