//! `straingauge watch --worker`: windows begin and end when the driver asks, and observations of the server go back.

use crate::STATES_INTERVAL;
use crate::error::{RemoteError, Result, unusable};
use crate::protocol::{CAN_COUNT_REQUESTS, FromWorker, WireClient, WireObservation, WireWatch, line};
use crate::requests::{RequestWatch, RequestWatchPlan};
use crate::session::{self, Order};
use observe::watch::point::PointSeen;
use observe::{Group, ObserveError, Observer, Target, Window};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender};

/// Serves one driver with observations of the server on this port.
pub fn serve(port: u16, root: Option<u32>, netns_pid: Option<u32>) -> ExitCode {
    session::hold(&[CAN_COUNT_REQUESTS], |_, out, orders| obey(port, root, netns_pid, out, orders))
}

/// The server and its observer.
struct Watched {
    port: u16,
    group: Group,
    netns_pid: Option<u32>,
    observer: Observer,
    /// Counts its requests, once the driver has asked for that.
    requests: Option<RequestWatch>,
    /// The window that ended last.
    window: Option<Window>,
}

fn obey(
    port: u16,
    root: Option<u32>,
    netns_pid: Option<u32>,
    out: &SyncSender<String>,
    orders: &Receiver<Order>,
) -> Result<()> {
    if root.is_none() && observe::server_on_port(port, netns_pid).ok().flatten().is_none() {
        return Err(unusable(format!(
            "nothing listens on port {port} of this machine, so there is no server to watch"
        )));
    }
    let group = root.map_or(Group::ListeningOn(port), Group::Tree);
    let target = Target { port, group, netns_pid, server_cpus: Vec::new(), client_pid: 0 };
    let observer = Observer::start(target, STATES_INTERVAL).map_err(observing("the server cannot be watched"))?;
    let mut server = Watched { port, group, netns_pid, observer, requests: None, window: None };
    let _ = out.send(line(&FromWorker::Ready {}));
    loop {
        let answer = match orders.recv() {
            Ok(Order::Watch(how)) => {
                FromWorker::Watching { why_not: server.count_requests(how).map(|why| why.as_str().into()) }
            }
            Ok(Order::LoadBegins) => {
                server.requests.iter_mut().for_each(RequestWatch::load_begins);
                FromWorker::LoadAwaited {}
            }
            Ok(Order::Begin(planned_ns)) => {
                server.begin(planned_ns)?;
                continue;
            }
            Ok(Order::End) => {
                server.end()?;
                continue;
            }
            Ok(Order::Observe(completed, client)) => {
                FromWorker::Observation(Box::new(server.observation(completed, client)?))
            }
            Ok(Order::Plan(_) | Order::Start(_)) => {
                return Err(unusable("the driver broke the protocol: it asks a watcher to send load"));
            }
            Ok(Order::Broken(why)) => return Err(unusable(format!("the driver broke the protocol: {why}"))),
            Ok(Order::Gone) | Err(_) => return Ok(()),
        };
        let _ = out.send(line(&answer));
    }
}

/// An error of the observer with the action that failed.
fn observing(what: &'static str) -> impl FnOnce(ObserveError) -> RemoteError {
    move |source| RemoteError::Observe { what, source }
}

impl Watched {
    /// Begins to count requests; returns why they are not counted, in one sentence.
    fn count_requests(&mut self, how: WireWatch) -> Option<String> {
        let plan = match RequestWatchPlan::from_wire(&how) {
            Ok(plan) => plan,
            Err(why) => return Some(why),
        };
        // Two watches of one port would each be charged with the other's cost.
        self.requests = None;
        let requests = self.requests.insert(RequestWatch::start(&plan, self.port, self.group, self.netns_pid, &[]));
        requests.why_not().map(str::to_string)
    }

    fn begin(&mut self, planned_ns: u64) -> Result<()> {
        if let Some(requests) = &mut self.requests {
            requests.window_begins(planned_ns);
        }
        self.window = None;
        self.observer.window_begins().map_err(observing("the window cannot begin"))
    }

    fn end(&mut self) -> Result<()> {
        if let Some(requests) = &mut self.requests {
            requests.window_ends();
        }
        self.window = Some(self.observer.window_ends().map_err(observing("the window cannot end"))?);
        Ok(())
    }

    fn observation(&mut self, completed: u64, client: Option<WireClient>) -> Result<WireObservation> {
        let Some(window) = self.window.take() else {
            return Err(unusable("the driver broke the protocol: it asks for a window that did not begin and end"));
        };
        let seen = window.observation(completed);
        let mut told = WireObservation {
            figures: seen.figures,
            connection_states: seen.connection_states,
            doubts: seen.doubts,
            server_facts: self.observer.server_facts(),
            watched: None,
        };
        if let (Some(requests), Some(client)) = (&mut self.requests, client) {
            let PointSeen { figures, watched, doubts } = requests.seen(&client.bounded().into());
            told.figures.extend(figures);
            told.doubts.extend(doubts);
            told.watched = Some(watched);
        }
        Ok(told)
    }
}
