//! The distance between a server on another machine and its clients, which decides whether they are isolated.

use super::ALWAYS;
use anyhow::{Result, bail};
use remote::HostPlace;

/// Where a server runs, from the view of its nearest client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// On another machine.
    Machine,
    /// On the client's machine, in another network namespace.
    Network,
    /// In the client's own network namespace.
    None,
    /// Unknown, because the watcher does not report it.
    Unknown,
}

impl Distance {
    pub fn between(server: &HostPlace, clients: &[HostPlace]) -> Distance {
        if server.machine.is_empty() || server.network.is_empty() {
            Distance::Unknown
        } else if clients.iter().all(|client| client.machine != server.machine) {
            Distance::Machine
        } else if clients.iter().all(|client| client.network != server.network) {
            Distance::Network
        } else {
            Distance::None
        }
    }

    pub fn is_isolated(self) -> bool {
        matches!(self, Distance::Machine | Distance::Network)
    }

    /// Whether a client is known to run on the server's machine.
    pub fn is_one_machine(self) -> bool {
        matches!(self, Distance::Network | Distance::None)
    }

    pub fn path(self) -> &'static str {
        match self {
            Distance::Machine => "the network between machines; no client shares the server's network stack",
            Distance::Network => "between two network namespaces of one machine",
            Distance::None | Distance::Unknown => "to the given address",
        }
    }

    pub fn require_isolated(self) -> Result<()> {
        match self {
            Distance::Machine | Distance::Network => Ok(()),
            Distance::None => bail!(
                "{ALWAYS}: a client shares the network stack of the machine on which --server-with starts the server; \
                 move one of them to another machine"
            ),
            Distance::Unknown => {
                bail!("{ALWAYS}: the watcher on the server's machine cannot identify its machine")
            }
        }
    }
}
