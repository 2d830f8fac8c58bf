//! The server's backend processes on this machine: found once by their sockets, then followed.

use crate::listening::servers_of;
use crate::outgoing::{BackendSockets, OtherSockets, canonical};
use crate::port_sockets::PortReader;
use crate::processes::{Process, ProcessTable, all_pids, living_thread};
use crate::sock_diag::Scope;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;

const MAX_DEPTH: usize = 16;
/// Maximum searches without result at an address: its processes are not visible, or on another machine.
const MAX_SEARCHES: usize = 16;
const MAX_ADDRESSES: usize = 16;
const MAX_NAMESPACES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Backends {
    roots: BTreeSet<Process>,
    /// Number of searches without result by address; the maximum after a success.
    searches: BTreeMap<String, usize>,
}

impl Backends {
    /// Finds the processes at these addresses if an address is new or a process has ended.
    pub fn find(&mut self, backends: &BTreeMap<String, BackendSockets>, table: &ProcessTable) {
        let known = self.roots.len();
        self.roots.retain(|root| table.has(*root));
        if self.roots.len() < known {
            self.searches.clear();
        }
        for (address, held) in backends {
            if self.searches.len() >= MAX_ADDRESSES && !self.searches.contains_key(address) {
                continue;
            }
            let searches = self.searches.entry(address.clone()).or_default();
            if *searches >= MAX_SEARCHES {
                continue;
            }
            let mut inodes: HashSet<u64> = held.inodes.iter().copied().collect();
            inodes.extend(held.elsewhere.iter().flat_map(inodes_elsewhere));
            // Backends on other machines are not visible.
            let holders = if inodes.is_empty() { BTreeSet::new() } else { servers_of(&inodes) };
            *searches = if holders.is_empty() { *searches + 1 } else { MAX_SEARCHES };
            self.roots.extend(holders.into_iter().filter_map(|pid| eldest_of(pid, table)));
        }
    }

    pub fn processes(&self, table: &ProcessTable) -> BTreeSet<u32> {
        if self.roots.is_empty() {
            return BTreeSet::new();
        }
        let descends = |pid: &u32| family(*pid, table).any(|one| self.roots.contains(&one));
        table.iter().map(|(pid, _)| pid).filter(descends).collect()
    }
}

/// The inodes of sockets in other network namespaces, e.g. of containers. Skips namespaces that we may not enter.
fn inodes_elsewhere(sought: &OtherSockets) -> Vec<u64> {
    let mut found = Vec::new();
    for mut reader in one_of_each_namespace().into_iter().filter_map(|pid| PortReader::open(Some(pid), 0).ok()) {
        let read = match sought {
            OtherSockets::Listener(file) => reader.read_unix(|socket| {
                let is_it = socket.is_listener && socket.file == Some(*file);
                found.extend(is_it.then_some(socket.inode));
            }),
            OtherSockets::Connections(ends) => reader.read_elsewhere(0, Scope::Elsewhere, |one| {
                let is_one = !one.is_listener() && ends.contains(&(canonical(one.local), canonical(one.remote)));
                found.extend(is_one.then_some(one.inode));
            }),
        };
        // Sockets read from a process that has ended meanwhile are valid, too.
        drop(read);
    }
    found
}

fn one_of_each_namespace() -> Vec<u32> {
    let mut seen = HashSet::new();
    let namespace = |pid: u32| fs::read_link(format!("/proc/{}/ns/net", living_thread(pid))).ok();
    let is_new = |pid: &u32| namespace(*pid).is_some_and(|of| seen.insert(of));
    all_pids().into_iter().filter(is_new).take(MAX_NAMESPACES).collect()
}

/// The oldest ancestor with the same program, e.g. the master of a worker; never one of our own ancestors.
fn eldest_of(pid: u32, table: &ProcessTable) -> Option<Process> {
    let command = |pid: u32| table.get(pid).map(|origin| &origin.command);
    let ours: BTreeSet<Process> = family(std::process::id(), table).collect();
    let is_same = |one: &Process| command(one.pid) == command(pid) && !ours.contains(one);
    family(pid, table).take_while(is_same).last().or_else(|| family(pid, table).next())
}

fn family(pid: u32, table: &ProcessTable) -> impl Iterator<Item = Process> {
    let first = table.get(pid).map(|origin| Process { pid, start_ticks: origin.start_ticks });
    std::iter::successors(first, |one| table.parent(table.get(one.pid)?)).take(MAX_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    struct Elsewhere {
        child: Child,
        said: BufReader<std::process::ChildStdout>,
    }

    impl Elsewhere {
        fn start(script: &str, argument: &str) -> Self {
            let step = "import ctypes, socket, sys\nctypes.CDLL(None).prctl(1, 9)\n\
                        def step():\n    print(flush=True)\n    sys.stdin.readline()\n";
            let mut command = Command::new("unshare");
            command.args(["--net", "python3", "-c", &format!("{step}{script}"), argument]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let said = BufReader::new(child.stdout.take().unwrap());
            let mut this = Elsewhere { child, said };
            this.wait();
            this
        }

        fn wait(&mut self) {
            assert!(self.said.read_line(&mut String::new()).unwrap() > 0, "the script ended");
        }

        fn go_on(&mut self) {
            self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.wait();
        }
    }

    impl Drop for Elsewhere {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn is_allowed() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!("SKIPPED backends: only root may make network namespaces");
        }
        is_root
    }

    fn found(backends: &BTreeMap<String, BackendSockets>) -> BTreeSet<u32> {
        let (mut of_all, mut table) = (Backends::default(), ProcessTable::default());
        table.scan();
        of_all.find(backends, &table);
        of_all.find(backends, &table);
        of_all.processes(&table)
    }

    #[test]
    fn a_unix_listener_in_another_namespace_is_found_after_its_connections_ended() {
        if !is_allowed() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        let mut backend = Elsewhere::start(
            "l = socket.socket(socket.AF_UNIX)\nl.bind(sys.argv[1])\nl.listen()\nstep()\na = \
             l.accept()[0]\nstep()\na.close()\nstep()",
            path.to_str().unwrap(),
        );
        let _open = std::os::unix::net::UnixStream::connect(&path).unwrap();
        backend.go_on();
        let seen = crate::outgoing::read(&[std::process::id()], 1).unwrap().backends;
        backend.go_on();
        assert_eq!(found(&seen), [backend.child.id()].into(), "{seen:?}");
        drop(backend);
        assert_eq!(found(&seen), [].into());
    }

    #[test]
    fn a_backend_in_another_network_namespace_is_found_by_the_other_ends_of_connections() {
        if !is_allowed() {
            return;
        }
        let connect = "step()\nc = socket.create_connection(('10.83.9.2', 8083))\nc.recv(1)\nstep()";
        let listen =
            "step()\nl = socket.create_server(('10.83.9.2', 8083))\nstep()\na = l.accept()[0]\na.send(b'x')\nstep()";
        let (mut server, mut backend) = (Elsewhere::start(connect, ""), Elsewhere::start(listen, ""));
        let ip = |of: &Elsewhere, arguments: String| {
            let mut command = Command::new("nsenter");
            command.args(["--net", "--target", &of.child.id().to_string(), "ip"]).args(arguments.split(' '));
            assert!(command.status().unwrap().success(), "{command:?}");
        };
        ip(&server, format!("link add near type veth peer name far netns {}", backend.child.id()));
        for (side, device, address) in [(&server, "near", "10.83.9.1/24"), (&backend, "far", "10.83.9.2/24")] {
            ip(side, format!("address add {address} dev {device}"));
            ip(side, format!("link set {device} up"));
        }
        backend.go_on();
        std::thread::scope(|scope| {
            scope.spawn(|| backend.go_on());
            server.go_on();
        });
        let seen = crate::outgoing::read(&[server.child.id()], 1).unwrap();
        assert_eq!((seen.established, seen.most.as_deref()), (1, Some("10.83.9.2:8083")));
        assert_eq!(found(&seen.backends), [backend.child.id()].into(), "{seen:?}");
    }
}
