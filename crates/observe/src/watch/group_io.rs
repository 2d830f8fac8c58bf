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
struct ProcessIo {
    start_ticks: u64,
    parent: u32,
    counts: IoCounts,
}

/// Sums the growth of `/proc/PID/io` (proc_pid_io(5)) over the processes. A process that ends passes its counts to
/// its waiting parent; those that were already counted are not growth of the parent.
#[derive(Debug, Default)]
pub struct GroupIoReader {
    /// Processes that started later count from their start.
    since_ticks: Option<u64>,
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

    fn add(&mut self, now: HashMap<u32, ProcessIo>) -> GroupIo {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_process_count_from_the_first_reading() {
        let mut reader = GroupIoReader::default();
        let (own, none) = (ProcessOrigin { start_ticks: 1, ..ProcessOrigin::default() }, ProcessOrigin::default());
        assert_eq!(reader.read(&[(std::process::id(), &own)]), Some(GroupIo::default()));
        std::fs::read("/proc/self/stat").unwrap();
        let later = reader.read(&[(std::process::id(), &own)]).unwrap();
        assert!(later.reads > 0);
        assert_eq!(
            reader.read(&[(u32::MAX, &none)]).unwrap().reads,
            later.reads,
            "an ended process takes nothing back"
        );
        assert_eq!(reader.read(&[]), None);
    }

    /// Sums over processes given as (id, start, parent, count).
    fn sum(reader: &mut GroupIoReader, processes: &[(u32, u64, u32, u64)]) -> u64 {
        let io = |&(pid, start_ticks, parent, count)| (pid, ProcessIo { start_ticks, parent, counts: [count; 4] });
        reader.add(processes.iter().map(io).collect()).read_bytes
    }

    #[test]
    fn counts_continue_after_a_restart_and_exclude_a_processs_earlier_work() {
        let mut reader = GroupIoReader { since_ticks: Some(100), ..GroupIoReader::default() };
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000_000)]), 0);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000_500)]), 500);
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 30)]), 530, "the restarted one began under watch");
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 80), (5, 40, 1, 9_000_000)]), 580, "the other was there before");
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 80), (5, 40, 1, 9_000_001)]), 581);
        assert_eq!(sum(&mut reader, &[(20, 200, 1, 7), (5, 40, 1, 9_000_001)]), 588, "its number was given again");
    }

    #[test]
    fn counts_inherited_from_ended_children_are_added_once() {
        let mut reader = GroupIoReader { since_ticks: Some(100), ..GroupIoReader::default() };
        let (shell, child) = ((11, 110, 10, 300), (12, 120, 11, 40));
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000)]), 0);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000), shell, child]), 340);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_360)]), 360, "20 more before they ended");
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_360), (13, 130, 10, 50)]), 410);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_361)]), 411, "nobody waited for the last one");
    }

    #[test]
    fn existing_files_of_a_control_group_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnr_throttled 4\n");
        put("memory.max", "max\n");
        put("memory.current", "4096\n");
        put("io.stat", "8:0 rbytes=100 wbytes=7 rios=1\n259:0 rbytes=1 wbytes=2\n");
        let totals = read_control_group(folder.path());
        assert_eq!((totals.cpu_us, totals.user_us, totals.system_us), (Some(30), Some(10), Some(20)));
        assert_eq!((totals.memory_bytes, totals.tasks), (Some(4096), None));
        assert_eq!((totals.read_bytes, totals.written_bytes, totals.throttled), (Some(101), Some(9), Some(4)));
    }
}
