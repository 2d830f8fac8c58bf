//! The processes of this machine: a pass over /proc that finds new ones, and each process's CPU clock.

use crate::cpu_clock;
use crate::proc_text::{ProcessStat, parse_process_stat};
use record::PlainText;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

/// More than Linux's largest pid_max.
const MAX_PROCESSES: usize = 1 << 22;

/// A process. Its id may be reused after its end, but with its start time it is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub pid: u32,
    /// Start, ticks since boot.
    pub start_ticks: u64,
}

/// Facts from the time when a process was first observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessOrigin {
    /// The parent at that time; a process may be re-parented later.
    pub parent: u32,
    pub session: u32,
    /// Start, ticks since boot.
    pub start_ticks: u64,
    /// Name of its program; untrusted text.
    pub command: PlainText,
}

/// The processes of the machine at the last [`scan`](ProcessTable::scan).
#[derive(Debug, Default)]
pub struct ProcessTable {
    /// By process id, with the inode of the folder in /proc, which changes if the id is reused.
    known: HashMap<u32, (u64, ProcessOrigin)>,
}

impl ProcessTable {
    /// Lists /proc, and reads only the new processes.
    pub fn scan(&mut self) {
        self.keep(folders());
    }

    /// Makes the table contain exactly `pids`, and reads only the new ones.
    pub fn set_pids(&mut self, pids: &[u32]) {
        let inode = |pid: u32| Some((pid, fs::metadata(format!("/proc/{pid}")).ok()?.ino()));
        self.keep(pids.iter().filter_map(|pid| inode(*pid)));
    }

    fn keep(&mut self, folders: impl Iterator<Item = (u32, u64)>) {
        let mut before = std::mem::take(&mut self.known);
        for (pid, inode) in folders {
            let known = before.remove(&pid);
            if let Some(same) = known.as_ref().filter(|(folder, _)| *folder == inode) {
                self.known.insert(pid, same.clone());
            } else if let Some(stat) = read_stat(pid) {
                // The kernel may also have dropped the /proc folder of a living process.
                let is_same = |(_, origin): &(u64, ProcessOrigin)| origin.start_ticks == stat.start_ticks;
                let origin = known.filter(is_same).map_or_else(|| ProcessOrigin::from(stat), |(_, origin)| origin);
                self.known.insert(pid, (inode, origin));
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &ProcessOrigin)> {
        self.known.iter().map(|(pid, (_, origin))| (*pid, origin))
    }

    pub fn get(&self, pid: u32) -> Option<&ProcessOrigin> {
        self.known.get(&pid).map(|(_, origin)| origin)
    }

    pub fn has(&self, process: Process) -> bool {
        self.get(process.pid).is_some_and(|origin| origin.start_ticks == process.start_ticks)
    }

    /// The process that started this one, if the table has it.
    pub fn parent(&self, origin: &ProcessOrigin) -> Option<Process> {
        let start_ticks = self.get(origin.parent)?.start_ticks;
        // A process that started later has only reused the parent's id.
        (start_ticks <= origin.start_ticks).then_some(Process { pid: origin.parent, start_ticks })
    }

    /// Every process's CPU time so far, nanoseconds.
    pub fn cpu_clocks(&self) -> BTreeMap<Process, u64> {
        let clock = |(pid, origin): (u32, &ProcessOrigin)| {
            Some((Process { pid, start_ticks: origin.start_ticks }, cpu_clock::of_process(pid).ok()?))
        };
        self.iter().filter_map(clock).collect()
    }
}

impl From<ProcessStat> for ProcessOrigin {
    fn from(stat: ProcessStat) -> Self {
        ProcessOrigin {
            parent: stat.parent,
            session: stat.session,
            start_ticks: stat.start_ticks,
            command: stat.command,
        }
    }
}

/// A thread with the process's memory, files and namespaces: the first one, unless it has ended, because `/proc/PID`
/// then shows none of them.
pub fn living_thread(pid: u32) -> u32 {
    if read_stat(pid).is_none_or(|stat| stat.state != 'Z' || stat.threads < 2) {
        return pid;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|tid| *tid != pid && read_stat(*tid).is_some_and(|stat| stat.state != 'Z')).unwrap_or(pid)
}

pub fn read_stat(pid: u32) -> Option<ProcessStat> {
    parse_process_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

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
            // Links are not followed, because a control group's tree has none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // A group that vanished has no processes; a threaded one (cgroup.type) lists none.
                let _ = read(&entry.path());
                folders.push(entry.path());
            }
        }
    }
    Ok(found)
}

pub fn all_pids() -> Vec<u32> {
    folders().map(|(pid, _)| pid).collect()
}

fn folders() -> impl Iterator<Item = (u32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.ino()))).take(MAX_PROCESSES)
}
