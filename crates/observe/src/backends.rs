//! The processes of the server's backends on this machine: found once by the sockets that they hold, then followed.

use crate::listening::holders_of;
use crate::processes::{ProcessTable, all_pids};
use std::collections::{BTreeMap, BTreeSet};

/// Most generations of a backend's processes.
const MAX_DEPTH: usize = 16;
/// Most searches without a result: the processes cannot be seen.
const MAX_MISSED: usize = 32;
/// Most addresses whose processes are searched for.
const MAX_ADDRESSES: usize = 16;

/// What is known of them.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    /// The eldest process of each.
    roots: BTreeSet<u32>,
    /// The addresses at which they were found.
    addresses: BTreeSet<String>,
    /// Searches that found none, as of connections that had ended.
    missed: usize,
}

impl Backends {
    /// Finds the processes at these addresses, given inodes of what they hold: where one is new, or a process has ended.
    pub fn find(&mut self, here: &BTreeMap<String, Vec<u64>>, table: &ProcessTable) {
        let is_new = |address: &String| !self.addresses.contains(address);
        let room = MAX_ADDRESSES.saturating_sub(self.addresses.len());
        let new: Vec<String> = here.keys().filter(|address| is_new(address)).take(room).cloned().collect();
        let known = self.roots.len();
        self.roots.retain(|pid| table.get(*pid).is_some());
        if (new.is_empty() && self.roots.len() == known) || self.missed >= MAX_MISSED {
            return;
        }
        let holders = holders_of(&here.values().flatten().copied().collect(), &all_pids());
        if holders.is_empty() {
            self.missed += 1;
            return;
        }
        self.addresses.extend(new);
        self.roots.extend(holders.into_iter().map(|pid| eldest_of(pid, table)));
    }

    /// They and what they started.
    pub fn processes(&self, table: &ProcessTable) -> BTreeSet<u32> {
        if self.roots.is_empty() {
            return BTreeSet::new();
        }
        let descends = |pid: &u32| ancestors(*pid, table).any(|ancestor| self.roots.contains(&ancestor));
        table.iter().map(|(pid, _)| pid).filter(descends).collect()
    }
}

/// The eldest of a family of processes that run the same program, as a master and its workers do; not one that we descend
/// from.
fn eldest_of(pid: u32, table: &ProcessTable) -> u32 {
    let command = |pid: u32| table.get(pid).map(|origin| &origin.command);
    let ours: BTreeSet<u32> = ancestors(std::process::id(), table).collect();
    let is_same = |parent: &u32| command(*parent) == command(pid) && !ours.contains(parent);
    ancestors(pid, table).take_while(is_same).last().unwrap_or(pid)
}

/// The process, its parent, and so on.
fn ancestors(pid: u32, table: &ProcessTable) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(pid), |pid| table.get(*pid).map(|origin| origin.parent)).take(MAX_DEPTH)
}
