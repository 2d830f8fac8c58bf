//! The processes of this machine: one pass over /proc that finds those that are new since the last one, and each
//! process's CPU clock.

use crate::cpu_clock;
use crate::proc_text::{ProcessStat, parse_process_stat};
use record::Outside;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;

/// An upper bound, above the largest pid_max of Linux; a /proc with more entries is not read further.
const MAX_PROCESSES: usize = 1 << 22;

/// Facts from when a process was first seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its parent then; later it may be re-parented.
    pub parent: u32,
    /// Its session then.
    pub session: u32,
    /// Start, ticks since boot.
    pub start_ticks: u64,
    /// Name of its program; untrusted text.
    pub command: Outside,
}

/// The processes of the machine at the last [`scan`](ProcessTable::scan).
#[derive(Debug, Default)]
pub struct ProcessTable {
    known: HashMap<u32, Origin>,
}

impl ProcessTable {
    /// Lists /proc. Reads only the processes that were not there before.
    pub fn scan(&mut self) {
        self.learn(&all_pids());
    }

    /// Makes the table hold `pids` and no others. Reads only those that were not there before.
    pub fn learn(&mut self, pids: &[u32]) {
        let mut before = std::mem::take(&mut self.known);
        for &pid in pids {
            if let Some(origin) = before.remove(&pid) {
                self.known.insert(pid, origin);
            } else if let Some(stat) = read_stat(pid) {
                self.known.insert(pid, Origin::from(stat));
            }
        }
    }

    /// The processes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Origin)> {
        self.known.iter().map(|(pid, origin)| (*pid, origin))
    }

    /// The facts about a process.
    pub fn get(&self, pid: u32) -> Option<&Origin> {
        self.known.get(&pid)
    }

    /// Every process's CPU time so far, nanoseconds.
    pub fn cpu_clocks(&self) -> BTreeMap<u32, u64> {
        self.known.keys().filter_map(|pid| Some((*pid, cpu_clock::of_process(*pid).ok()?))).collect()
    }
}

impl From<ProcessStat> for Origin {
    fn from(stat: ProcessStat) -> Self {
        Origin { parent: stat.parent, session: stat.session, start_ticks: stat.start_ticks, command: stat.command }
    }
}

/// Reads `/proc/PID/stat` once.
pub fn read_stat(pid: u32) -> Option<ProcessStat> {
    parse_process_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The processes of a control group (version 2) and of those below it.
pub fn in_control_group(folder: &Path) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut read = |folder: &Path| -> io::Result<()> {
        let text = fs::read_to_string(folder.join("cgroup.procs"))?;
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).take(MAX_PROCESSES));
        Ok(())
    };
    read(folder)?;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // Links are not followed: a control group's tree has none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // One that is gone again has no processes, one of threads (cgroup.type) is not asked for any.
                let _ = read(&entry.path());
                folders.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// The pids of all processes that can be seen.
pub fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_PROCESSES).collect()
}
