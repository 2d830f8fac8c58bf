//! `straingauge watch --worker`: watches a server for a driver elsewhere (`--watch-with`), or starts it first
//! (`--server-with`).

use crate::cli::WatchArgs;
use crate::defaults;
use crate::server::agent::Agent;
use crate::server::{Server, ServerPlan};
use crate::signals::Stop;
use anyhow::Result;
use std::process::ExitCode;

/// Serves the driver until it leaves; a server that was started here ends then, also if this process is killed.
pub fn serve(args: &WatchArgs) -> Result<ExitCode> {
    let port = crate::url::port_word(&args.port)?;
    if args.server.is_empty() {
        let mut beside = Beside { server: None, port, netns_pid: args.netns_of, pid: args.pid, agent: None };
        return Ok(remote::serve_watch(port, args.pid, args.netns_of, &mut beside));
    }
    let allowed = |list: &String| crate::plan::allowed(list, "--server-cpus");
    let plan = ServerPlan {
        argv: &args.server,
        port,
        asked: None,
        server_cpus: args.server_cpus.as_ref().map(allowed).transpose()?.unwrap_or_else(record::machine::allowed_cpus),
        client_cpus: Vec::new(),
        is_isolated: false,
        path: None,
        single_segments: false,
        timeout: args.server_timeout.map_or(defaults::SERVER_TIMEOUT, |time| time.0),
        timeout_option: Some("--server-timeout"),
    };
    let server = Server::start(&plan, &Stop::on_signals()?)?;
    let (pid, netns_pid) = (server.pid(), server.netns_pid());
    let mut beside = Beside { server: Some(&server), port, netns_pid, pid, agent: None };
    Ok(remote::serve_watch(port, pid, netns_pid, &mut beside))
}

/// A command beside the server (`find --beside`), which the driver starts and ends.
struct Beside<'a> {
    /// The server, if it was started here.
    server: Option<&'a Server>,
    port: u16,
    netns_pid: Option<u32>,
    pid: Option<u32>,
    agent: Option<Agent>,
}

impl remote::Beside for Beside<'_> {
    fn start(&mut self, command: &[String]) -> Result<(), String> {
        self.agent = None;
        let found = || observe::server_on_port(self.port, self.netns_pid).ok().flatten().map(|server| server.pid);
        let started = Agent::start(command, self.server, self.port, self.pid.or_else(found));
        self.agent = Some(started.map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        self.agent.as_ref().map(Agent::pids).unwrap_or_default()
    }

    fn gone(&mut self) -> Option<String> {
        self.agent.as_mut().and_then(Agent::gone)
    }

    fn end(&mut self) -> Vec<u8> {
        self.agent.take().map(|mut agent| agent.stop()).unwrap_or_default()
    }
}
