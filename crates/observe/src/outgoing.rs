use crate::cpu_clock;
use crate::listening::sockets_of;
use crate::port_sockets::PortReader;
use crate::sock_diag::{Scope, SocketFile};
use record::time::monotonic_ns;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;

const MAX_PROCESSES: usize = 64;
const MAX_DESCRIPTORS: usize = 4096;
const MAX_ADDRESSES: usize = 65_536;
const MAX_HELD: usize = 16;

/// Sockets of the machine's own services, e.g. for logs, names or systemd. They are not backends of a server.
const SYSTEM_SOCKETS: [&str; 6] =
    ["/run/systemd/", "/var/run/systemd/", "/run/dbus/", "/var/run/dbus/", "/dev/log", "/run/nscd/"];

pub fn is_of_system(name: &str) -> bool {
    SYSTEM_SOCKETS.iter().any(|start| name.starts_with(start))
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Number of established connections that the processes opened.
    pub established: u64,
    /// The most frequent remote address: `127.0.0.1:9000`, or `unix:/run/app.sock`.
    pub most: Option<String>,
    /// The processes at each address, as far as known.
    pub backends: BTreeMap<String, BackendSockets>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendSockets {
    /// Inodes of sockets in the server's network namespace: the listener, and some of the other ends.
    pub inodes: Vec<u64>,
    /// How to find sockets in other namespaces.
    pub elsewhere: Option<OtherSockets>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherSockets {
    Listener(SocketFile),
    /// Connections between these ends, the backend's end first.
    Connections(Vec<(SocketAddr, SocketAddr)>),
}

/// Descriptors are listed before connections. If this thread waited longer for its CPU in between, connections may
/// have been opened, so the reading is repeated.
const SOON_NS: u64 = 10_000_000;

/// The connections of these processes to ports other than the served one and their own listening ports; `None` if
/// they cannot be read.
///
/// `called`: addresses that they called. A connection that serves one call may not exist at this moment.
pub fn read(members: &[u32], port: u16, called: &[SocketAddr]) -> Option<Outgoing> {
    let (found, waited_ns) = read_once(members, port, called)?;
    let again = (waited_ns > SOON_NS).then(|| read_once(members, port, called)).flatten();
    Some(again.map_or(found, |(again, _)| again))
}

fn read_once(members: &[u32], port: u16, called: &[SocketAddr]) -> Option<(Outgoing, u64)> {
    let first = members.first()?;
    let mut inodes = HashSet::new();
    let mut may_read = false;
    for pid in members.iter().take(MAX_PROCESSES) {
        let Ok(sockets) = sockets_of(*pid, MAX_DESCRIPTORS) else { continue };
        may_read = true;
        inodes.extend(sockets);
    }
    if !may_read {
        return None;
    }
    let waiting_ns = || monotonic_ns().saturating_sub(cpu_clock::of_this_thread());
    let waited_before_ns = waiting_ns();
    let (mut own_ports, mut own) = (HashSet::new(), Vec::new());
    let (mut others, mut listeners) = (HashMap::<_, Vec<u64>>::new(), HashMap::new());
    let mut reader = PortReader::open(Some(*first), port).ok()?;
    let read =
        reader.read_elsewhere(port, Scope::Elsewhere, |one| match (inodes.contains(&one.inode), one.is_listener()) {
            (true, true) => own_ports.extend([one.local.port()]),
            (true, false) => own.push((canonical(one.local), canonical(one.remote))),
            (false, true) => listeners.extend([(one.local.port(), one.inode)]),
            // A connection that waits to be accepted has no owner.
            (false, false) if others.len() < MAX_ADDRESSES && one.inode != 0 => {
                others.entry(canonical(one.local)).or_default().push(one.inode);
            }
            (false, false) => {}
        });
    read.ok()?;
    let (mut counts, mut backends) = (BTreeMap::new(), BTreeMap::<String, BackendSockets>::new());
    for (local, remote) in own.into_iter().filter(|(local, _)| !own_ports.contains(&local.port())) {
        let address = remote.to_string();
        *counts.entry(address.clone()).or_insert(0u64) += 1;
        // The list also has the other end of a connection within the namespace.
        match others.get(&remote) {
            Some(held) => {
                let held = held.iter().take(MAX_HELD).chain(listeners.get(&remote.port()));
                backends.insert(address, BackendSockets { inodes: held.copied().collect(), elsewhere: None });
            }
            None if remote.ip().is_loopback() => {}
            None => {
                let held = backends.entry(address).or_default();
                let connections = held.elsewhere.get_or_insert(OtherSockets::Connections(Vec::new()));
                if let OtherSockets::Connections(ends) = connections
                    && ends.len() < MAX_HELD
                {
                    ends.push((remote, local));
                }
            }
        }
    }
    for remote in called.iter().filter(|remote| remote.ip().is_loopback()) {
        if let Some(listener) = listeners.get(&remote.port()) {
            let held = || BackendSockets { inodes: vec![*listener], elsewhere: None };
            backends.entry(canonical(*remote).to_string()).or_insert_with(held);
        }
    }
    let unix = unix_backends(&mut reader, &inodes).unwrap_or_default();
    for (name, (held, count)) in unix.by_name {
        backends.insert(name.clone(), held);
        counts.insert(name, count);
    }
    let most = counts.iter().max_by_key(|(_, count)| **count).map(|(remote, _)| remote.clone());
    let established = counts.values().sum::<u64>() + unix.waiting;
    Some((Outgoing { established, most, backends }, waiting_ns().saturating_sub(waited_before_ns)))
}

/// One form for IPv4 addresses, whether written as IPv4 or as IPv6.
pub fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

#[derive(Default)]
struct UnixBackends {
    /// By path: the processes' sockets, and the number of connections.
    by_name: BTreeMap<String, (BackendSockets, u64)>,
    /// Connections that wait to be accepted while none is; their listener is not known.
    waiting: u64,
}

fn unix_backends(reader: &mut PortReader, inodes: &HashSet<u64>) -> io::Result<UnixBackends> {
    let (mut peers, mut accepted, mut listeners) = (Vec::new(), HashMap::new(), HashMap::new());
    reader.read_unix(|socket| {
        let is_kept = accepted.len() + listeners.len() < MAX_ADDRESSES;
        match (inodes.contains(&socket.inode), socket.is_listener, socket.peer) {
            // An end that has a name was accepted.
            (true, false, Some(peer)) if socket.name.is_empty() => peers.push(peer),
            (false, true, _) if is_kept => {
                listeners.insert((name_of(socket.name), socket.file), socket.inode);
            }
            (false, false, Some(_)) if is_kept && !socket.name.is_empty() => {
                accepted.insert(socket.inode, (name_of(socket.name), socket.file));
            }
            _ => {}
        }
    })?;
    let mut found = UnixBackends::default();
    for (peer, at) in peers.iter().filter_map(|peer| Some((*peer, accepted.get(peer)?))) {
        let (name, file) = at;
        if is_of_system(name) {
            continue;
        }
        let (held, count) = found.by_name.entry(format!("unix:{name}")).or_default();
        *count += 1;
        if held.inodes.is_empty() {
            // A listener is listed in the network namespace where it was bound, which may not be the server's.
            let listener = listeners.get(at).copied();
            held.elsewhere = file.filter(|_| listener.is_none()).map(OtherSockets::Listener);
            held.inodes.extend(listener);
        }
        if held.inodes.len() < MAX_HELD {
            held.inodes.push(peer);
        }
    }
    // The listener of waiting connections is not known, so they count for the busiest one.
    let waiting = peers.iter().filter(|peer| **peer == 0).count() as u64;
    match found.by_name.values_mut().max_by_key(|(_, count)| *count) {
        Some((_, count)) => *count += waiting,
        None => found.waiting = waiting,
    }
    Ok(found)
}

/// A path may end with a zero byte. A name that is not a path begins with one, which is usually written as `@`.
pub fn name_of(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let text = text.trim_end_matches('\0');
    text.strip_prefix('\0').map_or_else(|| text.to_string(), |rest| format!("@{rest}"))
}
