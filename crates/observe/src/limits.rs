//! The limits of the server: the CPUs it may use, its control group's CPU time limit, one CPU for each of its
//! threads, and open descriptors. Processes of the same user can be read without privilege.

use crate::facts::cgroup_apart;
use crate::group::{ServerGroup, clock_ticks_per_sec};
use crate::kept_file::{KeptFile, read};
use crate::proc_text::{
    parse_cgroup_path, parse_cgroup_usage_us, parse_controller_path, parse_cpu_limit, parse_descriptor_limit,
    parse_machine_stat, parse_named, parse_named_numbers, parse_stalled_us,
};
use crate::processes::living_thread;
use record::machine::cgroup_mount;
use record::watch::{CpuQuota, Descriptors, LimitTotals};
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use std::fs;
use std::path::{Path, PathBuf};

const MAX_COUNTED: usize = 64;
const MAX_THREADS: usize = 1024;
const MAX_GROUPED: usize = 16;
/// Below this CPU time of the server, its threads may show none.
const IDLE_NS: u64 = 50_000_000;
const MAX_DEPTH: usize = 32;
/// A memory limit from this value on means no limit: version 1 writes 2^63 minus a page.
const NO_LIMIT: u64 = 1 << 60;

#[derive(Debug)]
pub struct LimitReader {
    stat: Option<KeptFile>,
    buffer: Vec<u8>,
    tick_ns: u64,
    busiest_thread_ns: u64,
}

impl LimitReader {
    pub fn open() -> Self {
        let tick_ns = 1_000_000_000 / clock_ticks_per_sec();
        LimitReader { stat: KeptFile::open("/proc/stat").ok(), buffer: Vec::new(), tick_ns, busiest_thread_ns: 0 }
    }

    /// Reads the limits, right after the group was read. The busiest thread is that since the last call.
    pub fn read(&mut self, group: &mut ServerGroup) -> LimitTotals {
        let busiest = group.busiest_thread();
        let mut threads = group.busy_threads();
        if threads.is_empty() {
            threads = group.threads().into_iter().map(|thread| thread.tid).collect();
        }
        let (cpus, idle_ns) = self.idle(&threads).unzip();
        self.busiest_thread_ns += group.busiest_thread_ns().unwrap_or(0);
        // Some kernels have thread accounts that are always zero, like those of a server that has done nothing.
        let has_accounts = self.busiest_thread_ns > 0 || group.counters().cpu_ns < IDLE_NS;
        let pids = group.pids();
        let limits = LimitTotals {
            cpus,
            idle_ns,
            quota: narrowest_quota(&pids).and_then(|folder| read_quota(&folder)),
            busiest_thread_ns: has_accounts.then_some(self.busiest_thread_ns),
            busiest_thread: busiest,
            descriptors: most_descriptors(&pids),
            reading_threads: None,
        };
        group.begin_window();
        limits
    }

    /// The CPUs that these threads may run on: their number and idle time.
    fn idle(&mut self, threads: &[u32]) -> Option<(u64, u64)> {
        let allowed = allowed_cpus(threads)?;
        let stat = parse_machine_stat(read(&self.stat, &mut self.buffer)?)?;
        let of_server = || stat.cpus.iter().filter(|(cpu, _)| allowed.contains(cpu));
        let ticks: u64 = of_server().map(|(_, times)| times.idle.saturating_add(times.iowait)).sum();
        Some((of_server().count() as u64, ticks.saturating_mul(self.tick_ns)))
    }
}

/// Open descriptors and limit of the process closest to its limit; `None` if none can be read.
pub fn most_descriptors(members: &[u32]) -> Option<Descriptors> {
    let of_process = |pid: &u32| {
        let folder = format!("/proc/{}/fd", living_thread(*pid));
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

/// The CPUs that any of these threads may use, ascending; `None` if that cannot be read.
pub fn allowed_cpus(threads: &[u32]) -> Option<Vec<usize>> {
    let of_thread = |tid: &u32| sched_getaffinity(Some(Pid::from_raw(*tid as i32)?)).ok();
    let sets: Vec<CpuSet> = threads.iter().take(MAX_THREADS).filter_map(of_thread).collect();
    let is_allowed = |cpu: &usize| sets.iter().any(|set| set.is_set(*cpu));
    (!sets.is_empty()).then(|| (0..CpuSet::MAX_CPU).filter(is_allowed).collect())
}

/// The control groups of these processes for a controller, in both versions: mount point and path below it.
fn groups(pids: &[u32], controller: &str) -> Vec<(PathBuf, String)> {
    let (unified, of_controller) = (cgroup_mount(None), cgroup_mount(Some(controller)));
    let mut folders = Vec::new();
    for pid in pids.iter().take(MAX_GROUPED) {
        let Ok(text) = fs::read(format!("/proc/{pid}/cgroup")) else { continue };
        let paths = [(&unified, parse_cgroup_path(&text)), (&of_controller, parse_controller_path(&text, controller))];
        folders.extend(paths.into_iter().filter_map(|(mount, path)| mount.clone().zip(path)));
    }
    folders.sort();
    folders.dedup();
    folders
}

pub fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let folder = mount.join(path.trim_start_matches('/'));
    let above = folder.ancestors().take(MAX_DEPTH).take_while(|folder| folder.starts_with(mount));
    above.map(Path::to_path_buf).collect()
}

/// The control group with the narrowest CPU time limit among those of these processes and their ancestors.
pub fn narrowest_quota(pids: &[u32]) -> Option<PathBuf> {
    let folders = groups(pids, "cpu").into_iter().flat_map(|(mount, path)| upwards(&mount, &path));
    narrowest_of(folders).map(|(_, folder)| folder)
}

pub fn narrowest_of(folders: impl IntoIterator<Item = PathBuf>) -> Option<(f64, PathBuf)> {
    let limited = folders.into_iter().filter_map(|folder| Some((read_quota(&folder)?.cpus, folder)));
    limited.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// The narrowest memory limit among the control groups of these processes and their ancestors, bytes, and its file.
pub fn narrowest_memory(pids: &[u32]) -> Option<(u64, PathBuf)> {
    let folders = groups(pids, "memory").into_iter().flat_map(|(mount, path)| upwards(&mount, &path));
    folders.flat_map(|folder| memory_limits(&folder)).min()
}

/// The memory limits of a control group, and their files. `max` means no limit; version 1 has a huge number for it.
pub fn memory_limits(folder: &Path) -> Vec<(u64, PathBuf)> {
    let limit = |name: &str| {
        let file = folder.join(name);
        let bytes: u64 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        (bytes < NO_LIMIT).then_some((bytes, file))
    };
    ["memory.high", "memory.max", "memory.limit_in_bytes"].into_iter().filter_map(limit).collect()
}

/// Files that show what limits the server's memory.
#[derive(Debug, Default)]
pub struct MemoryLimit {
    file: Option<PathBuf>,
    pressure: Option<PathBuf>,
}

/// Counts of a server's control group so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Times that the limit was reached.
    pub hits: Option<u64>,
    /// Processes of the limit's group that the kernel killed for it.
    pub killed: Option<u64>,
    /// Time in which a thread was stalled for memory.
    pub stalled_us: Option<u64>,
}

impl MemoryLimit {
    pub fn for_pids(pids: &[u32]) -> Self {
        let own = pids.first().and_then(|pid| cgroup_apart(*pid));
        MemoryLimit {
            file: narrowest_memory(pids).map(|(_, file)| file),
            pressure: own.map(|folder| folder.join("memory.pressure")),
        }
    }

    pub fn read(&self) -> MemoryUse {
        MemoryUse {
            hits: self.file.as_deref().and_then(hits),
            killed: self.file.as_deref().and_then(killed),
            stalled_us: self.pressure.as_ref().and_then(|file| parse_stalled_us(&fs::read(file).ok()?)),
        }
    }
}

/// How often a limit was reached: `memory.events` of version 2, `memory.failcnt` of version 1.
pub fn hits(limit: &Path) -> Option<u64> {
    let read = |name: &str| fs::read(limit.parent()?.join(name)).ok();
    let word = limit.extension()?.to_str()?;
    match read("memory.events") {
        Some(events) => parse_named(&events, word),
        None => std::str::from_utf8(&read("memory.failcnt")?).ok()?.trim().parse().ok(),
    }
}

/// Processes that the kernel killed at a limit: `memory.events` of version 2, `memory.oom_control` of version 1.
pub fn killed(limit: &Path) -> Option<u64> {
    let folder = limit.parent()?;
    let read = |name: &str| parse_named(&fs::read(folder.join(name)).ok()?, "oom_kill");
    read("memory.events").or_else(|| read("memory.oom_control"))
}

/// Processes that the kernel has killed so far because memory ran out, a control group's or the machine's.
pub fn killed_for_memory() -> Option<u64> {
    parse_named(&fs::read("/proc/vmstat").ok()?, "oom_kill")
}

/// The CPU time limit of a control group, and its account; `None` without a limit.
pub fn read_quota(folder: &Path) -> Option<CpuQuota> {
    let file = |name: &str| fs::read(folder.join(name)).ok();
    let limit = file("cpu.max").or_else(|| Some([file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?].concat()));
    let cpus = parse_cpu_limit(&limit?)?;
    let account = file("cpu.stat").unwrap_or_default();
    let [periods, throttled] =
        parse_named_numbers(&account, ["nr_periods", "nr_throttled"]).map(Option::unwrap_or_default);
    let used_ns = parse_cgroup_usage_us(&account).map(|us| us.saturating_mul(1000));
    Some(CpuQuota { cpus, used_ns, periods, throttled })
}
