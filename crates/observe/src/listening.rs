//! Finds the process that listens on a port: the socket of the port ([`PortReader`]), then the process of the socket
//! (/proc/PID/fd).

use crate::error::ObserveError;
use crate::port_sockets::PortReader;
use crate::proc_text::parse_socket_link;
use crate::processes::{all_pids, living_thread, read_stat};
use crate::sock_diag::{Scope, TcpSocket};
use record::PlainText;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

/// The process that serves a port. Its texts are untrusted: escape them before printing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProcess {
    /// The process; if several share the socket (a master and its workers), the one whose parent does not.
    pub pid: u32,
    /// Name of its program, at most 15 bytes.
    pub command: PlainText,
    /// Its arguments, if they may be read.
    pub arguments: Vec<PlainText>,
    /// Every process that has the listening socket, including this one but no service manager.
    pub sharing: Vec<u32>,
}

/// Finds the process that listens on `port`, in the network namespace of `netns_pid` or of the calling thread.
/// `Ok(None)`: no process listens. [`ObserveError::HiddenServer`]: a process listens but is not visible.
/// [`ObserveError::NotStarted`]: a service manager listens for it.
pub fn server_on_port(port: u16, netns_pid: Option<u32>) -> Result<Option<ServerProcess>, ObserveError> {
    let listeners = listeners(port, netns_pid)?;
    let Some(first) = listeners.first() else { return Ok(None) };
    let inodes: HashSet<u64> = listeners.iter().map(|listener| listener.inode).collect();
    let (managers, servers) = managers_and_servers_of(&inodes);
    let Some(pid) = eldest(&servers) else {
        return Err(match managers.first() {
            Some(&manager) => ObserveError::NotStarted { port, manager },
            None => ObserveError::HiddenServer { port, uid: first.uid },
        });
    };
    let arguments = fs::read(format!("/proc/{}/cmdline", living_thread(pid))).unwrap_or_default();
    Ok(Some(ServerProcess {
        pid,
        command: read_stat(pid).map(|stat| stat.command).unwrap_or_default(),
        arguments: arguments
            .split(|byte| *byte == 0)
            .take(256)
            .filter(|argument| !argument.is_empty())
            .map(|argument| PlainText::of_bytes(argument, 4096))
            .collect(),
        sharing: servers.into_iter().collect(),
    }))
}

/// The addresses on which processes listen at `port`. They show whether the server can be reached by IPv4, by IPv6,
/// or only from this machine.
pub fn listening_addresses(port: u16, netns_pid: Option<u32>) -> Result<Vec<SocketAddr>, ObserveError> {
    let addresses: BTreeSet<SocketAddr> =
        listeners(port, netns_pid)?.into_iter().map(|listener| listener.local).collect();
    Ok(addresses.into_iter().collect())
}

/// The other ports that have a listener in the network namespace of `netns_pid`.
pub fn other_ports(port: u16, netns_pid: Option<u32>) -> Result<BTreeSet<u16>, ObserveError> {
    let mut ports = BTreeSet::new();
    PortReader::open(netns_pid, port)?
        .read_elsewhere(port, Scope::ListenersElsewhere, |socket| _ = ports.insert(socket.local.port()))
        .map_err(|source| ObserveError::Sockets { port, source })?;
    Ok(ports)
}

fn listeners(port: u16, netns_pid: Option<u32>) -> Result<Vec<TcpSocket>, ObserveError> {
    let sockets = PortReader::open(netns_pid, port)?.read(port, Scope::Listeners);
    sockets.map(|sockets| sockets.listeners).map_err(|source| ObserveError::Sockets { port, source })
}

/// The processes among `candidates` that have one of the sockets open. Processes of other users are visible only with
/// privilege.
pub fn holders_of(inodes: &HashSet<u64>, candidates: &[u32]) -> BTreeSet<u32> {
    let holds =
        |pid: u32| sockets_of(pid, usize::MAX).is_ok_and(|mut sockets| sockets.any(|inode| inodes.contains(&inode)));
    candidates.iter().copied().filter(|pid| holds(*pid)).collect()
}

/// The inodes of the sockets among a process's first `most` descriptors.
pub fn sockets_of(pid: u32, most: usize) -> io::Result<impl Iterator<Item = u64>> {
    let entries = fs::read_dir(format!("/proc/{}/fd", living_thread(pid)))?;
    let links = entries.take(most).flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(links.filter_map(|link| parse_socket_link(link.as_os_str().as_bytes())))
}

/// The processes that serve the port, the eldest first, or why there are none.
pub fn roots_on_port(port: u16, netns_pid: Option<u32>) -> (Vec<u32>, Option<String>) {
    match server_on_port(port, netns_pid) {
        Ok(Some(server)) => (std::iter::once(server.pid).chain(server.sharing).collect(), None),
        Ok(None) => (Vec::new(), Some(format!("nothing listens on port {port}"))),
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// The processes that have one of the sockets open: service managers, and the others. Systemd keeps the listening
/// socket of a unit that it starts on demand (systemd.socket(5), `Accept=no`), but is not part of that server.
fn managers_and_servers_of(inodes: &HashSet<u64>) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let is_manager = |pid: &u32| read_stat(*pid).is_some_and(|stat| stat.command.as_str() == "systemd");
    holders_of(inodes, &all_pids()).into_iter().partition(is_manager)
}

pub fn servers_of(inodes: &HashSet<u64>) -> BTreeSet<u32> {
    managers_and_servers_of(inodes).1
}

/// The process whose parent is not in the set; of several, the one that started first.
fn eldest(holders: &BTreeSet<u32>) -> Option<u32> {
    let stats: Vec<_> = holders.iter().filter_map(|pid| Some((*pid, read_stat(*pid)?))).collect();
    stats
        .iter()
        .filter(|(_, stat)| !holders.contains(&stat.parent))
        .min_by_key(|(pid, stat)| (stat.start_ticks, *pid))
        .or(stats.first())
        .map(|(pid, _)| *pid)
}
