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
pub struct Backends {
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
