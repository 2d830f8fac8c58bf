//! Facts about the machine that help to judge a run: kernel, CPUs, memory, network settings.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;

/// Facts about the machine, section `machine` of a run. An unreadable fact is absent, never guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct MachineFacts {
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Distribution as /etc/os-release names it.
    pub distribution: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// Number of CPUs online.
    pub cpus: usize,
    /// Size of the memory, bytes.
    pub memory_bytes: u64,
    /// Size of CPU 0's second-level cache, if the kernel reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_cache_bytes: Option<u64>,
    /// Whether the CPU flags show a hypervisor.
    pub virtual_machine: bool,
    /// Frequency governor of CPU 0; absent if the kernel has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Limit of open descriptors of this process (soft limit, after it was raised).
    pub descriptor_limit: u64,
    /// Settings of the kernel that change results, by sysctl name.
    pub sysctls: BTreeMap<String, String>,
    /// Version of straingauge.
    pub straingauge: String,
}

/// Feature that a measurement may need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Capability {
    /// Short name, equal on all machines.
    pub name: String,
    /// Whether the feature is available.
    pub is_available: bool,
    /// Result of the check in a few words. May contain text of this machine.
    pub detail: String,
    /// Consequence of the missing feature, and the remedy; empty if it is available.
    pub remedy: String,
}

impl Capability {
    /// An available feature.
    pub fn there(name: &str, detail: impl Into<String>) -> Self {
        Capability { name: name.into(), is_available: true, detail: detail.into(), remedy: String::new() }
    }

    /// A missing feature.
    pub fn missing(name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Capability { name: name.into(), is_available: false, detail: detail.into(), remedy: remedy.into() }
    }

    /// A feature that is available or missing.
    pub fn new(name: &str, is_available: bool, detail: impl Into<String>, remedy: &str) -> Self {
        if is_available { Self::there(name, detail) } else { Self::missing(name, detail, remedy) }
    }
}

const SYSCTLS: &[&str] = &[
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_syncookies",
    "net.core.netdev_max_backlog",
    "kernel.sched_autogroup_enabled",
    "kernel.perf_event_paranoid",
];

impl MachineFacts {
    /// Reads the facts of this machine.
    pub fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_string())
        };
        MachineFacts {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            distribution: distribution().unwrap_or_default(),
            cpu_model: field("model name").unwrap_or_default(),
            cpus: online_cpus(),
            memory_bytes: meminfo_bytes("MemTotal:").unwrap_or(0),
            l2_cache_bytes: l2_cache_bytes(),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            descriptor_limit: descriptor_limit(),
            sysctls: SYSCTLS
                .iter()
                .filter_map(|name| Some((name.to_string(), line(&format!("/proc/sys/{}", name.replace('.', "/")))?)))
                .collect(),
            straingauge: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

/// The only line of a file in /proc or /sys, with tabs as spaces; `None` if it is empty or cannot be read.
pub fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().replace('\t', " ")).filter(|text| !text.is_empty())
}

fn distribution() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_string())
}

/// An entry of `/proc/meminfo`, such as `MemTotal:`.
pub fn meminfo_bytes(name: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let entry = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = entry.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Size of the unified or data cache of level 2; the kernel writes it like `2048K`.
fn l2_cache_bytes() -> Option<u64> {
    let folder = |index: u32| format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
    let is_l2 = |index: &u32| {
        let read = |name: &str| line(&format!("{}/{name}", folder(*index)));
        read("level").as_deref() == Some("2") && read("type").as_deref() != Some("Instruction")
    };
    let size = line(&format!("{}/size", folder((0..8).find(is_l2)?)))?;
    Some(size.strip_suffix('K')?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Mount point of control groups: those of a controller (version 1), or the unified ones (version 2).
pub fn cgroup_mount(controller: Option<&str>) -> Option<PathBuf> {
    cgroup_mount_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, controller)
}

/// [`cgroup_mount`] in the text of /proc/PID/mountinfo.
pub fn cgroup_mount_in(mountinfo: &str, controller: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let kind = if controller.is_some() { "cgroup" } else { "cgroup2" };
        let has = |options: &str| controller.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        let is_it = right.next() == Some(kind) && right.nth(1).is_some_and(has);
        is_it.then(|| left.split(' ').nth(4)).flatten().map(PathBuf::from)
    })
}

/// Number of CPUs online, at least 1. Their numbers may have gaps: see [`online_cpu_numbers`].
pub fn online_cpus() -> usize {
    // SAFETY: sysconf takes no pointers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// The CPUs that are online, in order.
pub fn online_cpu_numbers() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = cpus_of_list(text.trim());
    if cpus.is_empty() { (0..online_cpus()).collect() } else { cpus }
}

/// The numbers in a list in the kernel's format: `0-3,8`. Other words are ignored.
pub fn cpus_of_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last.min(first.saturating_add(8192)));
        }
    }
    cpus
}

/// Formats CPUs, in order, like the kernel: `0-3,8`.
pub fn cpu_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|one, next| *next == one + 1).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Whether this machine has this address in the network namespace of the calling thread. Asks the kernel, and sends
/// nothing.
pub fn has_address(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The CPUs this process may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => (0..online_cpus()).collect(),
    }
}

/// Name of the fact about a started server: the limit of open descriptors that it inherited. If the server changed
/// it, its own limit is the fact `descriptor_limit`.
pub const INHERITED_DESCRIPTORS: &str = "descriptor_limit_inherited";

/// Name of the fact that a server answered in its warm-up, and then stopped.
pub const HUNG_IN_WARM_UP: &str = "hung_in_warm_up";

/// The soft limit of open descriptors.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open descriptors to the hard one; returns the resulting soft limit.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    descriptor_limit()
}
