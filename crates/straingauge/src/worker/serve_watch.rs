//! `straingauge watch --worker`: windows begin and end when the driver says so, and what was seen of the server goes back.

use super::protocol::{FromWorker, WireObservation, line};
use super::session::{self, Order};
use crate::watching::STATES_INTERVAL;
use anyhow::{Context, Result, bail};
use observe::{Group, Observer, Target};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender};

/// Serves one driver with what it can see of the server on this port.
pub fn serve(port: u16, root: Option<u32>, netns_pid: Option<u32>) -> Result<ExitCode> {
    session::hold(|_, out, orders| obey(port, root, netns_pid, out, orders))
}

fn obey(
    port: u16,
    root: Option<u32>,
    netns_pid: Option<u32>,
    out: &SyncSender<String>,
    orders: &Receiver<Order>,
) -> Result<()> {
    if root.is_none() && observe::server_on_port(port, netns_pid).ok().flatten().is_none() {
        bail!("nothing listens on port {port} of this machine, so there is no server to watch");
    }
    let group = root.map_or(Group::ListeningOn(port), Group::Tree);
    let target = Target { port, group, netns_pid, server_cpus: Vec::new(), client_pid: 0 };
    let mut observer = Observer::start(target, STATES_INTERVAL).context("the server cannot be watched")?;
    let _ = out.send(line(&FromWorker::Ready {}));
    let mut window = None;
    loop {
        match orders.recv() {
            Ok(Order::Begin) => {
                observer.window_begins().context("the window cannot begin")?;
                window = None;
            }
            Ok(Order::End) => window = Some(observer.window_ends().context("the window cannot end")?),
            Ok(Order::Observe(completed)) => {
                let Some(window) = window.take() else {
                    bail!("the driver broke the protocol: it asks for a window that did not begin and end");
                };
                let seen = window.observation(completed);
                let told = WireObservation {
                    figures: seen.figures,
                    connection_states: seen.connection_states,
                    doubts: seen.doubts,
                    server_facts: observer.server_facts(),
                };
                let _ = out.send(line(&FromWorker::Observation(Box::new(told))));
            }
            Ok(Order::Plan(_) | Order::Start(_)) => {
                bail!("the driver broke the protocol: it asks a watcher to send load")
            }
            Ok(Order::Broken(why)) => bail!("the driver broke the protocol: {why}"),
            Ok(Order::Gone) | Err(_) => return Ok(()),
        }
    }
}
