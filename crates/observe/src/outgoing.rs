//! Connections of the server to other servers: its backends, which it may wait for.

use crate::port_sockets::PortReader;
use crate::proc_text::parse_socket_link;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::net::SocketAddr;

/// Limits: processes whose descriptors are read, descriptors of each, and addresses kept of other connections.
const MAX_PROCESSES: usize = 64;
const MAX_DESCRIPTORS: usize = 4096;
const MAX_ADDRESSES: usize = 65_536;

/// The connections that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Established connections that they opened.
    pub established: u64,
    /// The most frequent remote address.
    pub most: Option<SocketAddr>,
    /// The remote ports that lie in the same network namespace: those of backends on this machine.
    pub ports_here: BTreeSet<u16>,
}

/// The connections of these processes that end neither at the served port nor at another where they listen; `None` if they
/// cannot be read.
pub fn read(members: &[u32], port: u16) -> Option<Outgoing> {
    let first = members.first()?;
    let mut inodes = HashSet::new();
    let mut may_read = false;
    for pid in members.iter().take(MAX_PROCESSES) {
        let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        may_read = true;
        let targets = folder.take(MAX_DESCRIPTORS).flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        inodes.extend(targets.filter_map(|target| parse_socket_link(target.as_os_str().as_encoded_bytes())));
    }
    if !may_read {
        return None;
    }
    let (mut own_ports, mut own, mut others) = (HashSet::new(), Vec::new(), HashSet::new());
    let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    let mut reader = PortReader::open(Some(*first), port).ok()?;
    let read = reader.read_elsewhere(port, |one| match (inodes.contains(&one.inode), one.is_listener) {
        (true, true) => own_ports.extend([one.local.port()]),
        (true, false) => own.push((one.local.port(), canonical(one.remote))),
        (false, false) if others.len() < MAX_ADDRESSES => others.extend([canonical(one.local)]),
        (false, _) => {}
    });
    read.ok()?;
    let mut by_remote = BTreeMap::new();
    for (_, remote) in own.into_iter().filter(|(local_port, _)| !own_ports.contains(local_port)) {
        *by_remote.entry(remote).or_insert(0u64) += 1;
    }
    let most = by_remote.iter().max_by_key(|(_, count)| **count).map(|(remote, _)| *remote);
    // The other end of a connection within the namespace is listed, too.
    let here = by_remote.keys().filter(|remote| others.contains(remote)).map(SocketAddr::port);
    Some(Outgoing { established: by_remote.values().sum(), most, ports_here: here.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_to_others_are_counted_and_those_of_the_served_port_are_not() {
        let (served, backend) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (port, backend_port) = (served.local_addr().unwrap().port(), backend.local_addr().unwrap().port());
        let to_backend: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(backend.local_addr().unwrap()).unwrap()).collect();
        let of_us = || read(&[std::process::id()], port).unwrap();
        let established = of_us().established;
        let accepted: Vec<TcpStream> = (0..3).map(|_| backend.accept().unwrap().0).collect();
        let before = of_us();
        assert!(before.established >= 3, "{before:?}");
        assert_eq!(before.established, established, "what is accepted at another port is not opened");
        assert!(!before.ports_here.contains(&backend_port), "the other ends are nobody else's: {before:?}");
        let (client, served) = (TcpStream::connect(served.local_addr().unwrap()).unwrap(), served.accept().unwrap());
        assert_eq!(of_us().established, before.established + 1, "the client's end is ours, too");
        // To another process, as to a backend.
        let mut sleep = std::process::Command::new("sleep");
        let child = sleep.arg("60").stdin(std::os::fd::OwnedFd::from(accepted.into_iter().next().unwrap())).spawn();
        drop(sleep);
        let mut child = child.unwrap();
        assert!(of_us().ports_here.contains(&backend_port), "{:?}", of_us());
        child.kill().unwrap();
        child.wait().unwrap();
        drop((client, served, to_backend));
        assert_eq!(read(&[], port), None);
    }
}
