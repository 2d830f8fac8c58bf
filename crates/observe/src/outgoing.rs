//! Connections of the server to other servers: its backends, which it may wait for.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Limits: processes whose descriptors are read, descriptors of each, and bytes of a table of sockets.
const MAX_PROCESSES: usize = 64;
const MAX_DESCRIPTORS: usize = 4096;
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// `TCP_ESTABLISHED` as the tables print it.
const ESTABLISHED: &str = "01";

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
        for entry in folder.take(MAX_DESCRIPTORS).flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let inode =
                target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
            inodes.extend(inode);
        }
    }
    if !may_read {
        return None;
    }
    let mut by_remote = BTreeMap::new();
    for table in ["tcp", "tcp6"] {
        let Ok(file) = File::open(format!("/proc/{first}/net/{table}")) else { continue };
        let lines = BufReader::new(file.take(MAX_TABLE_BYTES)).lines().skip(1).map_while(Result::ok);
        for remote in lines.filter_map(|line| remote_of(&line, port, &inodes)) {
            *by_remote.entry(remote).or_insert(0u64) += 1;
        }
    }
    let most = by_remote.iter().max_by_key(|(_, count)| **count).map(|(remote, _)| *remote);
    Some(Outgoing { established: by_remote.values().sum(), most })
}

/// The other end of a line's socket, if it is established, one of `inodes`, and not of the served port. Untrusted text.
fn remote_of(line: &str, port: u16, inodes: &HashSet<u64>) -> Option<SocketAddr> {
    let mut words = line.split_ascii_whitespace();
    let (local, remote, state) = (address(words.nth(1)?)?, address(words.next()?)?, words.next()?);
    let inode: u64 = words.nth(5)?.parse().ok()?;
    (state == ESTABLISHED && local.port() != port && inodes.contains(&inode)).then_some(remote)
}

/// `0100007F:1F90`: the address's words in the machine's order, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_to_others_are_counted_and_those_of_the_served_port_are_not() {
        let (served, backend) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = served.local_addr().unwrap().port();
        let _client = TcpStream::connect(served.local_addr().unwrap()).unwrap();
        let _accepted = served.accept().unwrap();
        let to_backend: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(backend.local_addr().unwrap()).unwrap()).collect();
        let line_of = |stream: &TcpStream| {
            // Another process may use the same port towards another address.
            let ends = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()].map(Some);
            let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
            let found = table
                .lines()
                .skip(1)
                .find(|line| [1, 2].map(|at| line.split_ascii_whitespace().nth(at).and_then(address)) == ends);
            found.expect("the table has the connection").to_string()
        };
        let inode = |line: &str| line.split_ascii_whitespace().nth(9).unwrap().parse::<u64>().unwrap();
        for stream in &to_backend {
            let line = line_of(stream);
            let held = HashSet::from([inode(&line)]);
            assert_eq!(remote_of(&line, port, &held), Some(backend.local_addr().unwrap()));
            assert_eq!(remote_of(&line, stream.local_addr().unwrap().port(), &held), None, "the served port");
            assert_eq!(remote_of(&line, port, &HashSet::new()), None, "another process's");
        }
        assert!(read(&[std::process::id()], port).unwrap().established >= 3);
    }

    #[test]
    fn damaged_lines_are_no_connections() {
        for line in
            ["", "0:", "0: 1 2 01", "0: 0100007F:ZZZZ 0100007F:0050 01 a b c d e 5", "0: é:0 é:0 01 a b c d e 5"]
        {
            assert_eq!(remote_of(line, 80, &HashSet::from([5])), None, "{line}");
        }
    }
}
