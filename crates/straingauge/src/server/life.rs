//! Whether a started server still runs: its first process, or a daemon that it left.

use crate::process;
use std::process::ExitStatus;
use wan::ServerCgroup;

#[derive(Debug, Clone)]
pub struct ServerLife {
    pub(super) pid: u32,
    pub(super) port: u16,
    pub(super) is_isolated: bool,
    pub(super) group: Option<ServerCgroup>,
}

impl ServerLife {
    /// How the started process ended; `None` while it runs. It may have left a daemon.
    pub fn ended(&self) -> Option<ExitStatus> {
        process::ended(self.pid)
    }

    pub fn is_listening(&self) -> bool {
        let netns_pid = self.netns_pid();
        (netns_pid.is_some() || !self.is_isolated)
            && observe::listening_addresses(self.port, netns_pid).is_ok_and(|found| !found.is_empty())
    }

    /// A process in the server's network namespace, if that is a separate one.
    pub(super) fn netns_pid(&self) -> Option<u32> {
        if !self.is_isolated {
            return None;
        }
        match self.ended() {
            None => Some(self.pid),
            Some(_) => self.group.as_ref()?.processes().first().copied(),
        }
    }
}
