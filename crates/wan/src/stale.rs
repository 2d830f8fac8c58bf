//! Leftovers of a killed run's pair: its control group and its processes.
//!
//! Namespaces have no names; the alias of their loopback device names the owner. The kernel removes a namespace with
//! its last process, and with it the veth or TUN devices, their addresses, queueing disciplines, and the masks that
//! steer receive work.

use crate::cgroup::{self, ServerCgroup, owner_in};
use crate::error::DuringStep;
use crate::namespace::NetNamespace;
use crate::rtnetlink::Route;
use record::leftovers::{FoundLeftovers, Leftover, LeftoverKind, SearchScope};
use record::owner::{Owner, OwnerState};
use record::text::plain;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// In the order of removal, because the groups' processes keep namespaces alive.
pub const LEFTOVERS: [LeftoverKind; 2] = [
    LeftoverKind {
        name: "control group",
        named: "straingauge-TOKEN-OWNER in the hierarchy of cgroup2",
        find: find_groups,
        remove: remove_group,
    },
    LeftoverKind {
        name: "network namespace",
        named: "straingauge-TOKEN-OWNER, the alias of its device lo",
        find: find_namespaces,
        remove: remove_namespace,
    },
];

fn find_groups(_: &SearchScope) -> FoundLeftovers {
    let left = ServerCgroup::all().into_iter().filter(|(_, owner)| owner.life() == OwnerState::Ended);
    let left = left.map(|(group, owner)| Leftover {
        kind: LEFTOVERS[0].name,
        name: plain(&group.path().display().to_string(), 4000),
        detail: processes_in_words(group.processes().len()),
        owner,
    });
    FoundLeftovers { left: left.collect(), ..FoundLeftovers::default() }
}

fn remove_group(left: &Leftover) -> Result<(), String> {
    let is_it = |(group, owner): &(ServerCgroup, _)| group.path() == Path::new(&left.name) && *owner == left.owner;
    match ServerCgroup::all().into_iter().find(is_it) {
        Some((group, owner)) if owner.life() == OwnerState::Ended => {
            group.remove().map(drop).map_err(|error| error.to_string())
        }
        Some(_) => Err(format!("{} is not removed: its process still runs", left.name)),
        None => Ok(()),
    }
}

fn processes_in_words(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// Finds the namespaces that still have processes but whose owner has ended. Only root can create or see pairs.
fn find_namespaces(_: &SearchScope) -> FoundLeftovers {
    let mut found = FoundLeftovers::default();
    for (name, inside) in namespaces() {
        if let Some(owner) = owner_of(inside[0]).filter(|owner| owner.life() == OwnerState::Ended) {
            let detail = processes_in_words(inside.len());
            found.left.push(Leftover { kind: LEFTOVERS[1].name, name, detail, owner });
        }
    }
    found
}

fn remove_namespace(left: &Leftover) -> Result<(), String> {
    if left.owner.life() != OwnerState::Ended {
        return Err(format!("{} is not removed: its process still runs", left.name));
    }
    // The kernel reuses the numbers of namespaces.
    match end_processes_in_namespace(&left.name, |pid| owner_of(pid) == Some(left.owner)) {
        Some(pid) => Err(format!("process {pid} in {} does not end", left.name)),
        None => Ok(()),
    }
}

fn owner_of(pid: u32) -> Option<Owner> {
    let alias = || Route::connect()?.alias("lo").during("read the alias of lo");
    owner_in(&NetNamespace::of_process(pid).and_then(|namespace| namespace.run_inside(alias)).ok()?)
}

/// Kills the processes in a namespace that `is_ours` confirms, until none is left; returns one that does not end.
pub(crate) fn end_processes_in_namespace(name: &str, is_ours: impl Fn(u32) -> bool) -> Option<u32> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut ours = namespaces().remove(name).unwrap_or_default();
        ours.retain(|pid| is_ours(*pid));
        let first = ours.first().copied();
        if first.is_none() || Instant::now() >= deadline {
            return first;
        }
        ours.into_iter().for_each(cgroup::kill);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes in each namespace (`net:[NUMBER]`) but this one.
fn namespaces() -> BTreeMap<String, Vec<u32>> {
    let mut found = BTreeMap::<String, Vec<u32>>::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in processes.filter(|pid| *pid != std::process::id()) {
        if let Ok(name) = fs::read_link(format!("/proc/{pid}/ns/net")) {
            found.entry(name.to_string_lossy().into_owned()).or_default().push(pid);
        }
    }
    found
}
