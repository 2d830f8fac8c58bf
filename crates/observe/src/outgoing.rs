//! Connections of the server to other servers: its backends, which it may wait for.

use crate::port_sockets::PortReader;
use crate::proc_text::parse_socket_link;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::SocketAddr;

/// Limits: processes whose descriptors are read, and descriptors of each.
const MAX_PROCESSES: usize = 64;
const MAX_DESCRIPTORS: usize = 4096;

/// The connections that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Established connections to other ports than the served one.
    pub established: u64,
    /// The most frequent remote address.
    pub most: Option<SocketAddr>,
}

/// The connections of these processes that do not end at the served port; `None` if they cannot be read.
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
    let mut by_remote = BTreeMap::new();
    let mut reader = PortReader::open(Some(*first), port).ok()?;
    let read = reader.read_elsewhere(port, |inode, remote| {
        if inodes.contains(&inode) {
            *by_remote.entry(SocketAddr::new(remote.ip().to_canonical(), remote.port())).or_insert(0u64) += 1;
        }
    });
    read.ok()?;
    let most = by_remote.iter().max_by_key(|(_, count)| **count).map(|(remote, _)| *remote);
    Some(Outgoing { established: by_remote.values().sum(), most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_to_others_are_counted_and_those_of_the_served_port_are_not() {
        let (served, backend) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = served.local_addr().unwrap().port();
        let to_backend: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(backend.local_addr().unwrap()).unwrap()).collect();
        let of_us = || read(&[std::process::id()], port).unwrap();
        let before = of_us();
        assert!(before.established >= 3, "{before:?}");
        let (client, accepted) = (TcpStream::connect(served.local_addr().unwrap()).unwrap(), served.accept().unwrap());
        // The client's end is ours, too.
        assert_eq!(of_us().established, before.established + 1);
        drop((client, accepted, to_backend));
        assert_eq!(read(&[], port), None);
    }
}
