//! Ends the processes that a killed run left.

use crate::cgroup::{self, ServerCgroup};
use crate::link::{client_link, marker, server_link};
use crate::namespace::NetNamespace;
use crate::rtnetlink::link_index;
use crate::state::{self, PairState, StateFolder};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Removes what killed runs of this machine left: processes of their servers and, with these, namespaces and links.
/// Returns one line for each thing removed. Pairs whose owner lives, and anything that is not a pair of straingauge,
/// are not touched. Without root there is nothing to remove, because nothing could be made.
pub fn remove_stale() -> Vec<String> {
    remove_stale_in(Path::new(state::FOLDER))
}

fn remove_stale_in(folder: &Path) -> Vec<String> {
    let Ok(folder) = StateFolder::existing(folder) else { return Vec::new() };
    let mut removed = Vec::new();
    for (path, state) in folder.all() {
        if state.has_live_owner() {
            continue;
        }
        let mut ended = 0;
        let mut is_clean = true;
        if !state.is_from_an_earlier_boot() {
            if let Some(cgroup) = state.cgroup.as_deref().and_then(ServerCgroup::existing) {
                match cgroup.remove() {
                    Ok(processes) => ended += processes,
                    Err(error) => {
                        is_clean = false;
                        removed.push(format!("left over from process {}: {error}", state.owner_pid));
                    }
                }
            }
            for namespace in [Some(state.server_namespace), state.client_namespace].into_iter().flatten() {
                ended += end_processes_in_namespace(namespace, |pid| is_of_pair(pid, &state));
            }
        }
        if is_clean && fs::remove_file(&path).is_ok() {
            removed.push(format!(
                "removed what process {} left behind: {ended} process{} and its network namespaces",
                state.owner_pid,
                if ended == 1 { "" } else { "es" }
            ));
        }
    }
    removed
}

/// Whether a process is in a namespace of this pair. Numbers of namespaces are reused, so the number alone does not
/// prove it; a link in it whose name has the pair's random token does.
fn is_of_pair(pid: u32, state: &PairState) -> bool {
    let links = [server_link(&state.token), client_link(&state.token), marker(&state.token)];
    NetNamespace::of_process(pid)
        .and_then(|namespace| namespace.run_inside(|| Ok(links.iter().any(|link| link_index(link).is_ok()))))
        .unwrap_or(false)
}

/// Kills the processes in a namespace that `is_ours` confirms, until none is left. Returns how many.
pub(crate) fn end_processes_in_namespace(namespace: u64, is_ours: impl Fn(u32) -> bool) -> usize {
    let wanted = format!("net:[{namespace}]");
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut ended = std::collections::BTreeSet::new();
    loop {
        let mut found = false;
        for pid in processes() {
            let is_inside =
                fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|at| at.as_os_str() == wanted.as_str());
            if is_inside && pid != std::process::id() && is_ours(pid) {
                found = true;
                cgroup::kill(pid);
                ended.insert(pid);
            }
        }
        if !found || Instant::now() >= deadline {
            return ended.len();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_earlier_boot_is_removed_and_nothing_is_killed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("s");
        let folder = StateFolder::open(&path).unwrap();
        let of_earlier_boot = PairState {
            owner_pid: 1,
            owner_start_ticks: 1,
            boot_id: "another".into(),
            token: "0123456789".into(),
            server_namespace: fs::read_link("/proc/self/ns/net").map_or(0, |at| {
                at.to_string_lossy().trim_start_matches("net:[").trim_end_matches(']').parse().unwrap_or(0)
            }),
            client_namespace: None,
            cgroup: Some("/sys/fs/cgroup".into()),
        };
        folder.write(&of_earlier_boot).unwrap();
        let lines = remove_stale_in(&path);
        assert_eq!(lines, ["removed what process 1 left behind: 0 processes and its network namespaces"]);
        assert!(folder.all().is_empty());
    }

    #[test]
    fn a_namespace_with_the_right_number_but_not_our_link_is_left_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: entering a namespace needs root");
            return;
        }
        // As if a dead pair's number had been given to the namespace that everything else runs in.
        let number = NetNamespace::current().unwrap().inode().unwrap();
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("s");
        let folder = StateFolder::open(&path).unwrap();
        let of_dead_owner = PairState {
            owner_pid: std::process::id(),
            owner_start_ticks: 0,
            boot_id: state::boot_id(),
            token: "fedcba9876".into(),
            server_namespace: number,
            client_namespace: None,
            cgroup: None,
        };
        let mut bystander = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        folder.write(&of_dead_owner).unwrap();
        let lines = remove_stale_in(&path);
        assert!(lines[0].contains(": 0 processes"), "{lines:?}");
        assert!(bystander.try_wait().unwrap().is_none(), "the bystander still runs");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
