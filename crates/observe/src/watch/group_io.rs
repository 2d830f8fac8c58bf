//! What the server's processes read from disks and wrote to them, and the counters of a control group.

use super::system_text::parse_named_numbers;
use crate::proc_text::parse_cgroup_usage_us;
use record::watch::system::{ControlGroupTotals, GroupIo};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A group with more processes than this is read in part, and its result is absent.
const MOST_PROCESSES: usize = 4096;
/// Files of /proc and of control groups that are read here are small.
const MOST_BYTES: u64 = 1 << 20;

fn read(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Sums `/proc/PID/io` (proc_pid_io(5)). A process that ends passes its counts to the parent that waits for it, so the
/// sum over the group does not fall. Where it does (no parent waits), the largest sum so far stays.
#[derive(Debug, Default)]
pub struct GroupIoReader {
    at_start: Option<GroupIo>,
    largest: GroupIo,
}

impl GroupIoReader {
    /// Counts since the first reading; `None` where a process may not be read.
    pub fn read(&mut self, pids: &[u32]) -> Option<GroupIo> {
        if pids.is_empty() || pids.len() > MOST_PROCESSES {
            return None;
        }
        let mut sum = GroupIo::default();
        for pid in pids {
            match std::fs::File::open(format!("/proc/{pid}/io")) {
                Ok(file) => {
                    let mut text = Vec::new();
                    // The process may end between opening and reading.
                    if file.take(MOST_BYTES).read_to_end(&mut text).is_err() {
                        continue;
                    }
                    let names = ["read_bytes:", "write_bytes:", "syscr:", "syscw:"];
                    let [read, written, reads, writes] = parse_named_numbers(&text, names).map(|n| n.unwrap_or(0));
                    sum.read_bytes = sum.read_bytes.saturating_add(read);
                    sum.written_bytes = sum.written_bytes.saturating_add(written);
                    sum.reads = sum.reads.saturating_add(reads);
                    sum.writes = sum.writes.saturating_add(writes);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
        let start = *self.at_start.get_or_insert(sum);
        let since = |now: u64, start: u64, largest: u64| now.saturating_sub(start).max(largest);
        self.largest = GroupIo {
            read_bytes: since(sum.read_bytes, start.read_bytes, self.largest.read_bytes),
            written_bytes: since(sum.written_bytes, start.written_bytes, self.largest.written_bytes),
            reads: since(sum.reads, start.reads, self.largest.reads),
            writes: since(sum.writes, start.writes, self.largest.writes),
        };
        Some(self.largest)
    }
}

/// Reads a control group's files.
pub fn read_control_group(folder: &Path) -> ControlGroupTotals {
    let file = |name: &str| read(folder.join(name));
    let single = |name: &str| std::str::from_utf8(&file(name)?).ok()?.trim().parse().ok();
    let mut totals = ControlGroupTotals {
        memory_bytes: single("memory.current"),
        memory_limit_bytes: single("memory.max"),
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

/// The processes of a control group and of those below it.
pub fn processes_of(folder: &Path) -> std::io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let text = std::fs::read_to_string(folder.join("cgroup.procs"))?;
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        if found.len() > MOST_PROCESSES {
            break;
        }
        for entry in std::fs::read_dir(&folder)?.flatten() {
            // Links are not followed: a control group's tree has none.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_wrote_is_counted_and_never_falls() {
        let mut reader = GroupIoReader::default();
        let own = [std::process::id()];
        assert_eq!(reader.read(&own), Some(GroupIo::default()));
        std::fs::read("/proc/self/stat").unwrap();
        let later = reader.read(&own).unwrap();
        assert!(later.reads > 0);
        assert_eq!(reader.read(&[u32::MAX]).unwrap().reads, later.reads, "an ended process takes nothing back");
        assert_eq!(reader.read(&[]), None);
    }

    #[test]
    fn a_control_groups_files_are_read_as_far_as_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnr_throttled 4\n");
        put("memory.max", "max\n");
        put("memory.current", "4096\n");
        put("io.stat", "8:0 rbytes=100 wbytes=7 rios=1\n259:0 rbytes=1 wbytes=2\n");
        put("cgroup.procs", "12\n13\n");
        std::fs::create_dir(folder.path().join("below")).unwrap();
        put("below/cgroup.procs", "14\n");
        let totals = read_control_group(folder.path());
        assert_eq!((totals.cpu_us, totals.user_us, totals.system_us), (Some(30), Some(10), Some(20)));
        assert_eq!((totals.memory_bytes, totals.memory_limit_bytes, totals.tasks), (Some(4096), None, None));
        assert_eq!((totals.read_bytes, totals.written_bytes, totals.throttled), (Some(101), Some(9), Some(4)));
        assert_eq!(processes_of(folder.path()).unwrap(), [12, 13, 14]);
    }
}
