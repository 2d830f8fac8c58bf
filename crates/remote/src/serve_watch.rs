use crate::STATES_INTERVAL;
use crate::error::{RemoteError, Result, unusable};
use crate::protocol::{FromWorker, StartedState, TimeWaitCount, ToWorker, WireObservation, line};
use crate::requests::{RequestWatch, RequestWatchPlan};
use crate::session::{self, DriverOrder};
use observe::profile::{PointSampler, PointSampling, WindowLayers};
use observe::watch::point::WatchedPoint;
use observe::{Group, ObserveError, ObservedWindow, Observer, TimeWaitSockets, WatchTarget};
use record::ClientSide;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Maximum sampling frequency, regardless of the driver's request.
const MOST_HZ: u32 = 5_000;
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Processes that run on this machine for the driver: the server, if started here, and the command of `find
/// --beside`.
pub trait StartedProcesses {
    /// How the server ended unexpectedly, and the end of its output; `None` if it was not started here.
    fn server(&mut self) -> Option<(Option<String>, Vec<u8>)>;
    /// How the server ended unexpectedly, without its output.
    fn server_end_reason(&self) -> Option<String>;
    /// Facts about the server's start.
    fn facts(&self) -> BTreeMap<String, String>;
    /// Starts a command on this machine. The error says why it does not start.
    fn start(&mut self, command: &[String]) -> Result<(), String>;
    /// Processes of the command; empty if none is running.
    fn pids(&self) -> Vec<u32>;
    /// How the command ended unexpectedly.
    fn end_reason(&mut self) -> Option<String>;
    /// Ends the command with all its processes, and returns the end of its output.
    fn end(&mut self) -> Vec<u8>;
}

/// Serves one driver with observations of this server until it leaves or `stop` is set.
pub fn serve(target: WatchTarget, started: &mut dyn StartedProcesses, stop: &AtomicBool) -> ExitCode {
    session::hold(None, |_, out, orders| handle_orders(target, started, out, orders, stop))
}

struct WatchedServer {
    target: WatchTarget,
    observer: Observer,
    requests: Option<RequestWatch>,
    layers: Option<PointSampler>,
    is_sampling: bool,
    time_wait: Option<TimeWaitSockets>,
    window: Option<ObservedWindow>,
}

fn handle_orders(
    target: WatchTarget,
    started: &mut dyn StartedProcesses,
    out: &SyncSender<String>,
    orders: &Receiver<DriverOrder>,
    stop: &AtomicBool,
) -> Result<()> {
    if matches!(target.group, Group::ListeningOn(_)) {
        let found = observe::server_on_port(target.port, target.netns_pid);
        if found.map_err(observing("the server cannot be watched"))?.is_none() {
            return Err(unusable(format!(
                "no server to watch: nothing listens on port {} of this machine",
                target.port
            )));
        }
    }
    let observer =
        Observer::start(target.clone(), STATES_INTERVAL).map_err(observing("the server cannot be watched"))?;
    let mut server = WatchedServer {
        target,
        observer,
        requests: None,
        layers: None,
        is_sampling: false,
        time_wait: None,
        window: None,
    };
    let _ = out.send(line(&FromWorker::Ready {}));
    let mut is_said = false;
    while !stop.load(Ordering::Relaxed) {
        let answer = match orders.recv_timeout(CHECK_INTERVAL) {
            // This ends the load as well.
            Err(RecvTimeoutError::Timeout) => {
                let how = if is_said { None } else { started.server_end_reason() };
                let Some(how) = how else { continue };
                is_said = true;
                FromWorker::Server(StartedState { gone: Some(how.as_str().into()), output: Vec::new() })
            }
            Ok(Ok(ToWorker::Watch(how))) => {
                FromWorker::Watching { why_not: server.count_requests(&how).map(|why| why.as_str().into()) }
            }
            Ok(Ok(ToWorker::LoadBegins {})) => {
                server.observer.load_begins();
                if let Some(RequestWatch(Ok(watch))) = &mut server.requests {
                    watch.load_begins();
                }
                FromWorker::LoadAwaited {}
            }
            Ok(Ok(ToWorker::Layers { frequency_hz })) => {
                FromWorker::Layers { why_not: server.sample_layers(frequency_hz).map(|why| why.as_str().into()) }
            }
            Ok(Ok(ToWorker::Beside { command })) if command.is_empty() => {
                server.observer.set_beside(&[]);
                FromWorker::Beside(StartedState { gone: None, output: started.end() })
            }
            Ok(Ok(ToWorker::Beside { command })) => {
                let gone = started.start(&command).err().map(|why| why.as_str().into());
                FromWorker::Beside(StartedState { gone, output: Vec::new() })
            }
            Ok(Ok(ToWorker::BesideAsk {})) => {
                let gone = started.end_reason().map(|how| how.as_str().into());
                server.observer.set_beside(&started.pids());
                FromWorker::Beside(StartedState { gone, output: Vec::new() })
            }
            Ok(Ok(ToWorker::ServerAsk {})) => {
                let (gone, output) = started.server().unwrap_or_default();
                FromWorker::Server(StartedState { gone: gone.map(|how| how.as_str().into()), output })
            }
            Ok(Ok(ToWorker::TimeWait { ends })) => FromWorker::TimeWait(server.time_wait(ends)),
            Ok(Ok(ToWorker::Begin { planned_ns, has_layers })) => {
                server.begin(planned_ns, has_layers)?;
                continue;
            }
            Ok(Ok(ToWorker::End {})) => {
                server.end()?;
                continue;
            }
            Ok(Ok(ToWorker::Observe { completed, client })) => {
                let mut seen = server.observation(completed, client)?;
                seen.server_facts.extend(started.facts());
                FromWorker::Observation(Box::new(seen))
            }
            Ok(Ok(_)) => {
                return Err(unusable("the driver broke the protocol: it sent a load worker's message to a watcher"));
            }
            Ok(Err(broken)) => return Err(broken),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let _ = out.send(line(&answer));
    }
    Ok(())
}

fn observing(what: &'static str) -> impl FnOnce(ObserveError) -> RemoteError {
    move |source| RemoteError::Observe { what, source }
}

impl WatchedServer {
    /// Begins to count requests; returns one sentence if they cannot be counted.
    fn count_requests(&mut self, plan: &RequestWatchPlan) -> Option<String> {
        // Ends the old watch first: each of two watches on one port would be charged with the other's cost.
        self.requests = None;
        let WatchTarget { port, group, netns_pid, ref server_cpus, .. } = self.target;
        let requests = self.requests.insert(RequestWatch::start(plan, port, group, netns_pid, server_cpus));
        requests.why_not().map(str::to_string)
    }

    fn sample_layers(&mut self, frequency_hz: u32) -> Option<String> {
        let how = PointSampling { frequency_hz: frequency_hz.clamp(1, MOST_HZ), is_per_packet: false };
        self.layers = None;
        match PointSampler::attach(self.target.port, self.target.netns_pid, how) {
            Ok(layers) => {
                self.layers = Some(layers);
                None
            }
            Err(why) => Some(why),
        }
    }

    fn time_wait(&mut self, ends: bool) -> TimeWaitCount {
        let not = |why: String| TimeWaitCount { why_not: Some(why.as_str().into()), ..TimeWaitCount::default() };
        let sockets = match &mut self.time_wait {
            Some(sockets) => sockets,
            none => match TimeWaitSockets::open(self.target.netns_pid, self.target.port) {
                Ok(sockets) => none.insert(sockets),
                Err(error) => return not(error.to_string()),
            },
        };
        if ends && let Err(error) = sockets.end_all() {
            return not(error.to_string());
        }
        match sockets.count() {
            Ok(count) => TimeWaitCount { count, bytes_each: TimeWaitSockets::bytes_each(), why_not: None },
            Err(error) => not(error.to_string()),
        }
    }

    fn begin(&mut self, planned_ns: u64, has_layers: bool) -> Result<()> {
        if let Some(RequestWatch(Ok(watch))) = &mut self.requests {
            watch.window_begins(planned_ns);
        }
        self.window = None;
        self.observer.window_begins().map_err(observing("the window cannot begin"))?;
        self.is_sampling = has_layers;
        if let Some(layers) = self.layers.as_mut().filter(|_| has_layers) {
            layers.begin();
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if let Some(layers) = self.layers.as_mut().filter(|_| self.is_sampling) {
            layers.end();
        }
        if let Some(RequestWatch(Ok(watch))) = &mut self.requests {
            watch.window_ends();
        }
        self.window = Some(self.observer.window_ends().map_err(observing("the window cannot end"))?);
        Ok(())
    }

    fn observation(&mut self, completed: u64, client: Option<ClientSide>) -> Result<WireObservation> {
        let Some(window) = self.window.take() else {
            return Err(unusable("the driver broke the protocol: it requested a window that did not begin and end"));
        };
        let client_ns = client.as_ref().map_or(window.elapsed_ns(), |client| client.window_ns);
        let seen = window.observation_of(completed, client_ns);
        let mut observation = WireObservation {
            figures: seen.figures,
            connection_states: seen.connection_states,
            account: seen.account,
            doubts: seen.doubts,
            server_facts: self.observer.server_facts(),
            edges_ns: Some(window.edges_ns()),
            ..WireObservation::default()
        };
        if let Some(WindowLayers { figures, functions, with_callees, stacks, doubts }) =
            self.layers.as_mut().and_then(|layers| layers.window_layers(completed))
        {
            observation.figures.extend(figures);
            observation.doubts.extend(doubts);
            (observation.functions, observation.with_callees, observation.stacks) = (functions, with_callees, stacks);
        }
        if let (Some(requests), Some(client)) = (&mut self.requests, client) {
            let WatchedPoint { figures, watched, doubts } = requests.watched_point(&client);
            observation.figures.extend(figures);
            observation.doubts.extend(doubts);
            observation.watched = Some(watched);
        }
        Ok(observation)
    }
}
