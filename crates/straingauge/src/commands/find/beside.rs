use crate::commands::session::Session;
use crate::companions::server::is_here;
use crate::measure::Runner;
use crate::server::Server;
use crate::server::agent::Agent;
use anyhow::{Result, anyhow};
use std::time::Duration;

pub(super) enum Beside {
    /// On this machine.
    Here(Agent),
    /// On another machine, where the server's watcher started it.
    Elsewhere,
}

impl Beside {
    /// Starts the command on the machine of the session's server, which listens on `port`.
    pub fn start(command: &[String], port: u16, session: &mut Session) -> Result<Beside> {
        if let Some(watcher) = session.runner.companions.watcher() {
            watcher.borrow_mut().start_beside(command).map_err(|why| anyhow!(why))?;
            return Ok(Beside::Elsewhere);
        }
        let found = || is_here(&session.plan).ok().and_then(|()| observe::server_on_port(port, None).ok()?);
        let pid = match &session.server {
            Some(server) => Server::pid(server),
            None => found().map(|server| server.pid),
        };
        Agent::start(command, session.server.as_ref(), port, pid).map(Beside::Here)
    }

    /// How the command ended by itself, if it did.
    pub fn gone(&mut self, runner: &mut Runner) -> Option<String> {
        match self {
            Beside::Here(agent) => agent.gone(),
            Beside::Elsewhere => runner.companions.watcher().and_then(|watcher| watcher.borrow_mut().beside_gone()),
        }
    }

    /// Interval for checking whether the command has ended.
    pub fn look_every(&self) -> Duration {
        Duration::from_millis(if matches!(self, Beside::Here(_)) { 10 } else { 200 })
    }

    /// Excludes the command's processes from "other work"; a watcher knows them already.
    pub fn is_known_to(&self, runner: &mut Runner) {
        if let Beside::Here(agent) = self {
            runner.companions.beside(&agent.pids());
        }
    }

    pub fn end(self, runner: Option<&mut Runner>) -> Vec<u8> {
        match (self, runner) {
            (Beside::Here(mut agent), runner) => {
                let output = agent.stop();
                runner.into_iter().for_each(|runner| runner.companions.beside(&[]));
                output
            }
            (Beside::Elsewhere, runner) => {
                let watcher = runner.and_then(|runner| runner.companions.watcher());
                watcher.map(|watcher| watcher.borrow_mut().end_beside()).unwrap_or_default()
            }
        }
    }
}
