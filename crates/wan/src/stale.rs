//! What a killed run leaves of a pair: its control group, its processes, and its state file.
//!
//! Namespaces have no names, so the kernel removes them with their last process, and with them the veth or TUN devices,
//! their addresses, queueing disciplines, and the masks that steer receive work.

use crate::cgroup::{self, ServerCgroup};
use crate::link::{client_link, marker, server_link};
use crate::namespace::NetNamespace;
use crate::rtnetlink::link_index;
use crate::state::{self, PairState, StateFolder};
use record::leftovers::{Found, Kind, Leftover, Scene};
use record::owner::Life;
use record::text::plain;
use record::unfinished;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// In the order of removal: the groups' processes keep namespaces alive.
pub const LEFTOVERS: [Kind; 3] = [
    Kind {
        name: "control group",
        named: "straingauge-TOKEN-OWNER in the hierarchy of cgroup2",
        find: find_groups,
        remove: remove_group,
    },
    Kind {
        name: "network namespaces",
        named: "/run/straingauge/TOKEN.json, and links sgs-TOKEN, sgc-TOKEN in them",
        find: |_| pairs_in(Path::new(state::FOLDER)),
        remove: |left| remove_pair(left, Path::new(state::FOLDER)),
    },
    Kind {
        name: "unfinished state file",
        named: "/run/straingauge/.TOKEN.OWNER.partial",
        find: |_| Found {
            left: unfinished::of_folder(Path::new(state::FOLDER), "unfinished state file"),
            ..Found::default()
        },
        remove: |left| unfinished::remove(left, Some(Path::new(state::FOLDER))),
    },
];

fn find_groups(_: &Scene) -> Found {
    let left = ServerCgroup::all().into_iter().filter(|(_, owner)| owner.life() == Life::Ended);
    let left = left.map(|(group, owner)| Leftover {
        kind: LEFTOVERS[0].name,
        name: plain(&group.path().display().to_string(), 4000),
        detail: processes_in_words(group.processes().len()),
        owner,
    });
    Found { left: left.collect(), ..Found::default() }
}

fn remove_group(left: &Leftover) -> Result<(), String> {
    let is_it = |(group, owner): &(ServerCgroup, _)| group.path() == Path::new(&left.name) && *owner == left.owner;
    match ServerCgroup::all().into_iter().find(is_it) {
        Some((group, owner)) if owner.life() == Life::Ended => {
            group.remove().map(drop).map_err(|error| error.to_string())
        }
        Some(_) => Err(format!("{} is not removed: its process still runs", left.name)),
        None => Ok(()),
    }
}

fn processes_in_words(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// The pairs whose owner has ended. Only root can make pairs or see them.
fn pairs_in(folder: &Path) -> Found {
    if !folder.exists() {
        return Found::default();
    }
    let folder = match StateFolder::existing(folder) {
        Ok(folder) => folder,
        Err(_) if !rustix::process::geteuid().is_root() => {
            let sentence = format!("{}: only root may see the network namespaces of runs", folder.display());
            return Found { not_seen: vec![sentence], ..Found::default() };
        }
        Err(error) => return Found { not_seen: vec![error.to_string()], ..Found::default() },
    };
    let left = folder.all().into_iter().filter(|(_, state)| state.is_left_over());
    let left = left.map(|(path, state)| Leftover {
        kind: LEFTOVERS[1].name,
        name: path.display().to_string(),
        detail: processes_in_words(processes_of(&state).len()),
        owner: state.owner,
    });
    Found { left: left.collect(), ..Found::default() }
}

fn remove_pair(left: &Leftover, folder: &Path) -> Result<(), String> {
    let folder = StateFolder::existing(folder).map_err(|error| error.to_string())?;
    let Some((path, state)) = folder.all().into_iter().find(|(path, _)| *path == Path::new(&left.name)) else {
        return Ok(());
    };
    if !state.is_left_over() {
        return Err(format!("{} is not removed: its process still runs", path.display()));
    }
    for namespace in namespaces_of(&state) {
        end_processes_in_namespace(namespace, |pid| is_of_pair(pid, &state));
    }
    if let Some(pid) = processes_of(&state).first() {
        return Err(format!("process {pid} of {} does not end", path.display()));
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{} cannot be removed: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn namespaces_of(state: &PairState) -> impl Iterator<Item = u64> {
    [Some(state.server_namespace), state.client_namespace].into_iter().flatten()
}

/// The processes in the namespaces of a pair.
fn processes_of(state: &PairState) -> BTreeSet<u32> {
    let inside = namespaces_of(state).flat_map(processes_in);
    inside.filter(|pid| is_of_pair(*pid, state)).collect()
}

/// Whether a process is in a namespace of this pair. Numbers of namespaces are reused, so the number does not prove it;
/// a link named after the pair's random token does.
fn is_of_pair(pid: u32, state: &PairState) -> bool {
    let links = [server_link(&state.token), client_link(&state.token), marker(&state.token)];
    NetNamespace::of_process(pid)
        .and_then(|namespace| namespace.run_inside(|| Ok(links.iter().any(|link| link_index(link).is_ok()))))
        .unwrap_or(false)
}

/// Kills the processes in a namespace that `is_ours` confirms, until none is left.
pub(crate) fn end_processes_in_namespace(namespace: u64, is_ours: impl Fn(u32) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let ours: Vec<u32> = processes_in(namespace).into_iter().filter(|pid| is_ours(*pid)).collect();
        if ours.is_empty() || Instant::now() >= deadline {
            return;
        }
        ours.into_iter().for_each(cgroup::kill);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The processes in a namespace except this one.
fn processes_in(namespace: u64) -> Vec<u32> {
    let wanted = format!("net:[{namespace}]");
    let is_inside = |pid: &u32| {
        *pid != std::process::id()
            && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|at| at.as_os_str() == wanted.as_str())
    };
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_right_number_but_not_our_link_is_left_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: entering a namespace needs root");
            return;
        }
        // As if a dead pair's number had been reused for this machine's namespace.
        let number = NetNamespace::current().unwrap().inode().unwrap();
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("s");
        let folder = StateFolder::open(&path).unwrap();
        let mut of_dead_owner = PairState { server_namespace: number, ..PairState::of_this_process("fedcba9876") };
        of_dead_owner.owner.start_ticks = 0;
        let mut bystander = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        folder.write(&of_dead_owner).unwrap();
        let left = pairs_in(&path).left;
        assert_eq!(left[0].detail, "0 processes");
        remove_pair(&left[0], &path).unwrap();
        assert_eq!(pairs_in(&path), Found::default());
        assert!(bystander.try_wait().unwrap().is_none(), "the bystander still runs");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
