//! What bounds the server: the CPUs that it may run on, its control group's limit of CPU time, one CPU for each of its
//! threads, open descriptors. Read without privilege for processes of the same user.

use crate::facts::cgroup_mount;
use crate::group::{ServerGroup, clock_ticks_per_sec};
use crate::kept_file::{KeptFile, read};
use crate::proc_text::{
    parse_cgroup_path, parse_cgroup_usage_us, parse_cpu_limit, parse_descriptor_limit, parse_machine_stat,
};
use record::watch::{CpuQuota, Descriptors, LimitTotals};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use std::fs;
use std::path::Path;

/// Most processes whose descriptors are counted, and threads whose CPUs are read.
const MAX_COUNTED: usize = 64;
/// A server that has used less CPU time may have threads without any.
const IDLE_NS: u64 = 50_000_000;
/// A control group deeper than this is not followed to the root.
const MAX_DEPTH: usize = 32;

/// Reads the limits of a group.
#[derive(Debug)]
pub struct LimitReader {
    stat: Option<KeptFile>,
    buffer: Vec<u8>,
    tick_ns: u64,
    busiest_thread_ns: u64,
}

impl LimitReader {
    /// Opens the file of the machine's CPUs.
    pub fn open() -> Self {
        let tick_ns = 1_000_000_000 / clock_ticks_per_sec();
        LimitReader { stat: KeptFile::open("/proc/stat").ok(), buffer: Vec::new(), tick_ns, busiest_thread_ns: 0 }
    }

    /// Reads them. The group was read just before. The busiest thread is that since the last call.
    pub fn read(&mut self, group: &mut ServerGroup) -> LimitTotals {
        let busiest = group.busiest_thread();
        let mut threads = group.busy_threads();
        if threads.is_empty() {
            threads = group.threads().into_iter().map(|(_, tid)| tid).collect();
        }
        let (cpus, idle_ns) = self.idle(&threads).unzip();
        self.busiest_thread_ns += group.busiest_thread_ns().unwrap_or(0);
        // Some kernels keep accounts of threads that are always zero; those of a server that has done nothing are, too.
        let has_accounts = self.busiest_thread_ns > 0 || group.counters().cpu_ns < IDLE_NS;
        let pids = group.pids();
        let limits = LimitTotals {
            cpus,
            idle_ns,
            quota: busiest.as_ref().map(|thread| thread.pid).or(pids.first().copied()).and_then(quota_of),
            busiest_thread_ns: has_accounts.then_some(self.busiest_thread_ns),
            busiest_thread: busiest,
            descriptors: most_descriptors(&pids),
            reading_threads: None,
        };
        group.begin_window();
        limits
    }

    /// The CPUs that these threads may run on: how many, and for how long they were idle.
    fn idle(&mut self, threads: &[u32]) -> Option<(u64, u64)> {
        let mut allowed = CpuSet::new();
        let mut is_known = false;
        for tid in threads.iter().take(MAX_COUNTED) {
            let Some(set) = Pid::from_raw(*tid as i32).and_then(|tid| sched_getaffinity(Some(tid)).ok()) else {
                continue;
            };
            is_known = true;
            (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).for_each(|cpu| allowed.set(cpu));
        }
        let stat = parse_machine_stat(read(&self.stat, &mut self.buffer)?).filter(|_| is_known)?;
        let of_server = || stat.cpus.iter().filter(|(cpu, _)| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu));
        let ticks: u64 = of_server().map(|(_, times)| times.idle.saturating_add(times.iowait)).sum();
        Some((of_server().count() as u64, ticks.saturating_mul(self.tick_ns)))
    }
}

/// Open descriptors and the limit of the process that is nearest to it; `None` if none can be read.
pub fn most_descriptors(members: &[u32]) -> Option<Descriptors> {
    let of_process = |pid: &u32| {
        let folder = format!("/proc/{pid}/fd");
        // Since Linux 6.2 the folder's size is the number of its entries.
        let open = match fs::metadata(&folder).ok()?.len() {
            0 => fs::read_dir(&folder).ok()?.count() as u64,
            open => open,
        };
        let limit = parse_descriptor_limit(&fs::read(format!("/proc/{pid}/limits")).ok()?)?;
        (limit > 0).then_some(Descriptors { pid: *pid, open, limit })
    };
    let used = |of: &Descriptors| of.open as f64 / of.limit as f64;
    members.iter().take(MAX_COUNTED).filter_map(of_process).max_by(|a, b| used(a).total_cmp(&used(b)))
}

/// The narrowest limit of CPU time among a process's control group and those above it.
fn quota_of(pid: u32) -> Option<CpuQuota> {
    let path = parse_cgroup_path(&fs::read(format!("/proc/{pid}/cgroup")).ok()?)?;
    quota_in(&cgroup_mount()?, &path)
}

fn quota_in(mount: &Path, path: &str) -> Option<CpuQuota> {
    let folder = mount.join(path.trim_start_matches('/'));
    let of_folder = |folder: &Path| {
        let cpus = parse_cpu_limit(&fs::read(folder.join("cpu.max")).ok()?)?;
        let used_us = parse_cgroup_usage_us(&fs::read(folder.join("cpu.stat")).ok()?)?;
        Some(CpuQuota { cpus, used_ns: used_us.saturating_mul(1000) })
    };
    let above = folder.ancestors().take(MAX_DEPTH).take_while(|folder| folder.starts_with(mount));
    above.filter_map(of_folder).min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_quota_of_the_groups_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let make = |path: &str, max: &str, used_us: u64| {
            let folder = mount.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpu.max"), max).unwrap();
            fs::write(folder.join("cpu.stat"), format!("usage_usec {used_us}\nuser_usec 1\n")).unwrap();
        };
        make("slice", "50000 100000\n", 7);
        make("slice/server", "150000 100000\n", 5);
        make("slice/server/leaf", "max 100000\n", 3);
        assert_eq!(quota_in(mount.path(), "/slice/server/leaf"), Some(CpuQuota { cpus: 0.5, used_ns: 7000 }));
        make("other", "max 100000\n", 3);
        assert_eq!(quota_in(mount.path(), "/other"), None);
        assert_eq!(quota_in(mount.path(), "/"), None, "the root has no file of limits");
    }

    /// A server that is watched before its first request has a beginning to count from.
    #[test]
    fn an_idle_group_has_cpus_and_a_busiest_thread_that_used_nothing() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut group = ServerGroup::new([child.id()], None);
        let mut table = crate::processes::ProcessTable::default();
        table.scan();
        group.admit(&table);
        group.begin_window();
        let limits = LimitReader::open().read(&mut group);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((limits.busiest_thread_ns, limits.busiest_thread), (Some(0), None));
        assert!(limits.cpus.is_some_and(|cpus| cpus >= 1) && limits.idle_ns.is_some());
    }

    #[test]
    fn the_busiest_thread_and_the_cpus_of_a_group_are_read() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut group = ServerGroup::new([child.id()], None);
        let mut table = crate::processes::ProcessTable::default();
        let mut reader = LimitReader::open();
        let limits = loop {
            table.scan();
            group.admit(&table);
            group.read();
            let limits = reader.read(&mut group);
            // It has run for a while, in at least two intervals.
            if limits.busiest_thread_ns.is_some_and(|ns| ns > 30_000_000) {
                break limits;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let thread = limits.busiest_thread.unwrap();
        assert_eq!((thread.pid, thread.tid, thread.name.as_str(), thread.siblings), (child.id(), child.id(), "sh", 1));
        let counted = group.counters().cpu_ns;
        let busiest = limits.busiest_thread_ns.unwrap();
        assert!(busiest <= counted + 20_000_000, "{busiest} of {counted}: intervals are not counted twice");
        assert!(limits.cpus.is_some_and(|cpus| cpus >= 1) && limits.idle_ns.is_some());
        assert!(limits.descriptors.is_some_and(|seen| seen.open >= 3 && seen.open <= seen.limit));
    }
}
