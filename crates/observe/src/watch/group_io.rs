use crate::group::ticks_since_boot;
use crate::proc_text::{parse_cgroup_usage_us, parse_named_numbers};
use crate::processes::ProcessOrigin;
use record::watch::system::{ControlGroupTotals, GroupIo};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Read;
use std::iter::successors;
use std::path::Path;

/// The counts of a larger group are not read.
const MOST_PROCESSES: usize = 4096;
const MAX_DEPTH: usize = 16;
const MOST_BYTES: u64 = 1 << 20;

fn read(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

type IoCounts = [u64; 4];

#[derive(Debug, Clone, Copy)]
pub struct ProcessIo {
    pub start_ticks: u64,
    pub parent: u32,
    pub counts: IoCounts,
}

/// Sums the growth of `/proc/PID/io` (proc_pid_io(5)) over the processes. A process that ends passes its counts to
/// its waiting parent; those that were already counted are not growth of the parent.
#[derive(Debug, Default)]
pub struct GroupIoReader {
    /// Processes that started later count from their start.
    pub since_ticks: Option<u64>,
    last: HashMap<u32, ProcessIo>,
    sum: IoCounts,
}

impl GroupIoReader {
    /// Counts since the first reading; `None` if a process may not be read.
    pub fn read(&mut self, members: &[(u32, &ProcessOrigin)]) -> Option<GroupIo> {
        if members.is_empty() || members.len() > MOST_PROCESSES {
            return None;
        }
        // Children before parents, so that the parent's counts include those of ended children.
        let mut members = members.to_vec();
        members.sort_by_key(|(pid, origin)| Reverse((origin.start_ticks, *pid)));
        let mut now = HashMap::new();
        for (pid, &ProcessOrigin { start_ticks, parent, .. }) in members {
            match std::fs::File::open(format!("/proc/{pid}/io")) {
                Ok(file) => {
                    let mut text = Vec::new();
                    // The process may end between opening and reading.
                    if file.take(MOST_BYTES).read_to_end(&mut text).is_err() {
                        continue;
                    }
                    let names = ["read_bytes:", "write_bytes:", "syscr:", "syscw:"];
                    let counts = parse_named_numbers(&text, names).map(|n| n.unwrap_or(0));
                    now.insert(pid, ProcessIo { start_ticks, parent, counts });
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
        Some(self.add(now))
    }

    pub fn add(&mut self, now: HashMap<u32, ProcessIo>) -> GroupIo {
        // Start times are rounded down to a tick.
        let since_ticks = *self.since_ticks.get_or_insert_with(|| ticks_since_boot() + 1);
        let last = std::mem::take(&mut self.last);
        let is_same = |process: &ProcessIo, other: &&ProcessIo| process.start_ticks == other.start_ticks;
        let mut passed_on: HashMap<u32, IoCounts> = HashMap::new();
        for (_, ended) in last.iter().filter(|(pid, before)| !now.get(pid).is_some_and(|io| is_same(io, before))) {
            // If the parent ended as well, its own parent has both.
            let mut ancestors = successors(Some(ended.parent), |pid| Some(last.get(pid)?.parent)).take(MAX_DEPTH);
            if let Some(heir) = ancestors.find(|pid| now.contains_key(pid)) {
                let passed = passed_on.entry(heir).or_default();
                (0..4).for_each(|kind| passed[kind] = passed[kind].saturating_add(ended.counts[kind]));
            }
        }
        for (pid, process) in &now {
            let before = match last.get(pid).filter(|before| is_same(process, before)) {
                Some(before) => before.counts,
                None if process.start_ticks >= since_ticks => IoCounts::default(),
                None => process.counts,
            };
            let passed = passed_on.get(pid).copied().unwrap_or_default();
            for kind in 0..4 {
                let grown = process.counts[kind].saturating_sub(before[kind]);
                // The parent grew by less than the ended children's counts: no process waited for them (the parent
                // ignores SIGCHLD).
                let new = grown.checked_sub(passed[kind]).unwrap_or(grown);
                self.sum[kind] = self.sum[kind].saturating_add(new);
            }
        }
        self.last = now;
        let [read_bytes, written_bytes, reads, writes] = self.sum;
        GroupIo { read_bytes, written_bytes, reads, writes }
    }
}

pub fn read_control_group(folder: &Path) -> ControlGroupTotals {
    let file = |name: &str| read(folder.join(name));
    let single = |name: &str| std::str::from_utf8(&file(name)?).ok()?.trim().parse().ok();
    let mut totals = ControlGroupTotals {
        memory_bytes: single("memory.current"),
        tasks: single("pids.current"),
        ..ControlGroupTotals::default()
    };
    if let Some(text) = file("cpu.stat") {
        totals.cpu_us = parse_cgroup_usage_us(&text);
        [totals.user_us, totals.system_us, totals.throttled] =
            parse_named_numbers(&text, ["user_usec", "system_usec", "nr_throttled"]);
    }
    if let Some(text) = file("memory.stat") {
        [totals.major_faults] = parse_named_numbers(&text, ["pgmajfault"]);
    }
    if let Some(text) = file("io.stat") {
        let sum = |key: &str| {
            let words = text.split(|byte| byte.is_ascii_whitespace()).filter_map(|word| std::str::from_utf8(word).ok());
            words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).fold(0, u64::saturating_add)
        };
        totals.read_bytes = Some(sum("rbytes="));
        totals.written_bytes = Some(sum("wbytes="));
    }
    totals
}
