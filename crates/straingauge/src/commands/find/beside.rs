use crate::commands::session::Session;
use crate::companions::server::is_here;
use crate::measure::Runner;
use crate::server::RunningServer;
use crate::server::agent::Agent;
use anyhow::{Result, anyhow};
use std::time::Duration;

pub(super) enum BesideCommand {
    /// On this machine.
    Here(Agent),
    /// On another machine, where the server's watcher started it.
    Elsewhere,
}

impl BesideCommand {
    /// Starts the command on the machine of the session's server, which listens on `port`.
    pub fn start(command: &[String], port: u16, session: &mut Session) -> Result<BesideCommand> {
        if let Some(watcher) = session.runner.companions.watcher() {
            watcher.borrow_mut().start_beside(command).map_err(|why| anyhow!(why))?;
            return Ok(BesideCommand::Elsewhere);
        }
        let found = || is_here(&session.plan).ok().and_then(|()| observe::server_on_port(port, None).ok()?);
        let pid = match &session.server {
            Some(server) => RunningServer::pid(server),
            None => found().map(|server| server.pid),
        };
        Agent::start(command, session.server.as_ref(), port, pid).map(BesideCommand::Here)
    }

    /// How the command ended by itself, if it did.
    pub fn end_reason(&mut self, runner: &mut Runner) -> Option<String> {
        match self {
            BesideCommand::Here(agent) => agent.end_reason(),
            BesideCommand::Elsewhere => {
                runner.companions.watcher().and_then(|watcher| watcher.borrow_mut().beside_end_reason())
            }
        }
    }

    /// Interval for checking whether the command has ended.
    pub fn check_interval(&self) -> Duration {
        Duration::from_millis(if matches!(self, BesideCommand::Here(_)) { 10 } else { 200 })
    }

    /// Excludes the command's processes from "other work"; a watcher knows them already.
    pub fn is_known_to(&self, runner: &mut Runner) {
        if let BesideCommand::Here(agent) = self {
            runner.companions.set_beside(&agent.pids());
        }
    }

    pub fn end(self, runner: Option<&mut Runner>) -> Vec<u8> {
        match (self, runner) {
            (BesideCommand::Here(mut agent), runner) => {
                let output = agent.stop();
                runner.into_iter().for_each(|runner| runner.companions.set_beside(&[]));
                output
            }
            (BesideCommand::Elsewhere, runner) => {
                let watcher = runner.and_then(|runner| runner.companions.watcher());
                watcher.map(|watcher| watcher.borrow_mut().end_beside()).unwrap_or_default()
            }
        }
    }
}
