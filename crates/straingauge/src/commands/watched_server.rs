//! `straingauge watch --worker`: watches a server for a driver on another machine (`--watch-with`), or starts it
//! first (`--server-with`).

use crate::cli::WatchArgs;
use crate::defaults;
use crate::failure;
use crate::server::agent::Agent;
use crate::server::{RunningServer, ServerPlan};
use crate::signals::Stop;
use anyhow::Result;
use observe::{Group, WatchTarget};
use record::machine::{self, INHERITED_DESCRIPTORS};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Serves the driver until it leaves or a signal comes. A server that was started here then ends, even if this
/// process is killed.
pub fn serve(args: &WatchArgs) -> Result<ExitCode> {
    let port = crate::url::port_word(&args.port)?;
    let mut target = WatchTarget {
        port,
        group: args.pid.map_or(Group::ListeningOn(port), Group::Tree),
        netns_pid: args.netns_of,
        server_cpus: Vec::new(),
        client_pid: 0,
    };
    let mut here = WatchedCommand { server: None, port, netns_pid: args.netns_of, pid: args.pid, agent: None };
    if args.server.is_empty() {
        // There is no server to stop, so a signal may end this process at once.
        return Ok(remote::serve_watch(target, &mut here, Stop::default().flag()));
    }
    // Cleans up before starting a server, like the driver.
    crate::leftovers::clean_up().iter().for_each(|line| eprintln!("{line}"));
    machine::raise_descriptor_limit();
    let allowed = |list: &String| crate::plan::allowed(list, "--server-cpus");
    target.server_cpus = args.server_cpus.as_ref().map(allowed).transpose()?.unwrap_or_default();
    let plan = ServerPlan {
        argv: &args.server,
        port,
        asked: None,
        server_cpus: target.server_cpus.clone(),
        client_cpus: Vec::new(),
        is_isolated: false,
        needs_group: args.needs_group,
        path: None,
        timeout: args.server_timeout.map_or(defaults::SERVER_TIMEOUT, |time| time.0),
    };
    let stop = Stop::on_signals()?;
    let server = RunningServer::start(&plan, &stop)?;
    here.pid = server.pid();
    target.group = here.pid.map_or(target.group, Group::Tree);
    here.server = Some(server);
    let ended = remote::serve_watch(target, &mut here, stop.flag());
    Ok(if stop.is_set() { ExitCode::from(failure::INTERRUPTED) } else { ended })
}

struct WatchedCommand {
    server: Option<RunningServer>,
    port: u16,
    netns_pid: Option<u32>,
    pid: Option<u32>,
    agent: Option<Agent>,
}

impl remote::StartedProcesses for WatchedCommand {
    fn server(&mut self) -> Option<(Option<String>, Vec<u8>)> {
        self.server.as_mut().map(|server| (server.end_reason(), server.output()))
    }

    fn server_end_reason(&self) -> Option<String> {
        self.server.as_ref().and_then(RunningServer::end_reason)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let inherited =
            |server: &RunningServer| (INHERITED_DESCRIPTORS.into(), server.inherited_descriptors.to_string());
        self.server.iter().map(inherited).collect()
    }

    fn start(&mut self, command: &[String]) -> Result<(), String> {
        self.agent = None;
        let found = || observe::server_on_port(self.port, self.netns_pid).ok().flatten().map(|server| server.pid);
        let started = Agent::start(command, self.server.as_ref(), self.port, self.pid.or_else(found));
        self.agent = Some(started.map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        self.agent.as_ref().map(Agent::pids).unwrap_or_default()
    }

    fn end_reason(&mut self) -> Option<String> {
        self.agent.as_ref().and_then(Agent::end_reason)
    }

    fn end(&mut self) -> Vec<u8> {
        self.agent.take().map(|mut agent| agent.stop()).unwrap_or_default()
    }
}
