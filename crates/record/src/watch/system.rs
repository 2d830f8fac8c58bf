//! The machine's counters in a reading: cumulative since boot, each kind with the time at which it was read, so any
//! two readings give rates. They are the counters of the kernel module of Almeida, Almeida and Yates (1996, Table 2).

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

crate::worded! {
    /// Counters that are read together.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SystemKind {
        /// CPU time by mode, context switches, processes started and running (`/proc/stat`).
        Cpu = "cpu",
        /// Interrupts and soft interrupts by kind. The most expensive kind to read: the kernel sums over CPUs.
        Interrupts = "interrupts",
        /// Reads and writes of whole devices (`/proc/diskstats`).
        Disk = "disk",
        /// Paging and faults (`/proc/vmstat`).
        Paging = "paging",
        /// Memory (`/proc/meminfo`).
        Memory = "memory",
        /// Disk bytes of the server's processes and the control group's counters: at least one file for each process.
        Server = "server",
    }
}

/// Number of kinds.
pub const KINDS: usize = SystemKind::ALL.len();

/// CPU time by mode since boot, summed over the machine's CPUs, milliseconds (the kernel counts in ticks of 10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CpuModes {
    /// Time in user mode, nice included, milliseconds.
    pub user_ms: u64,
    /// Time in system mode, milliseconds.
    pub system_ms: u64,
    /// Time in hard interrupts, milliseconds.
    pub irq_ms: u64,
    /// Time in soft interrupts, milliseconds.
    pub softirq_ms: u64,
    /// Idle time, milliseconds.
    pub idle_ms: u64,
    /// Idle time with a disk request outstanding, milliseconds.
    pub iowait_ms: u64,
    /// Time taken by the hypervisor, milliseconds.
    pub steal_ms: u64,
}

/// Paging since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Paging {
    /// Bytes read from disks into memory.
    pub in_bytes: u64,
    /// Bytes written from memory to disks.
    pub out_bytes: u64,
    /// Pages read from swap.
    pub swapped_in: u64,
    /// Pages written to swap.
    pub swapped_out: u64,
    /// Faults that had to wait for a disk.
    pub major_faults: u64,
    /// All page faults, minor and major.
    pub faults: u64,
}

/// The machine's current memory, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// Size of the machine's memory, bytes.
    pub total_bytes: u64,
    /// Memory that programs can get without swapping (the kernel's estimate), bytes.
    pub available_bytes: u64,
    /// Unused memory, bytes.
    pub free_bytes: u64,
    /// Page cache, bytes.
    pub cached_bytes: u64,
    /// Dirty pages of the page cache, bytes.
    pub dirty_bytes: u64,
}

/// Disk work since boot, summed over devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct DiskCounts {
    /// Number of disk devices.
    pub devices: u64,
    /// Completed disk reads.
    pub reads: u64,
    /// Bytes read from the machine's disks.
    pub read_bytes: u64,
    /// Completed disk writes.
    pub writes: u64,
    /// Bytes written to the machine's disks.
    pub written_bytes: u64,
    /// Milliseconds in which a device had work, summed over devices. Divided by the elapsed time, this is the
    /// utilisation of a single disk.
    pub busy_ms: u64,
}

crate::adds_up!(DiskCounts { devices, reads, read_bytes, writes, written_bytes, busy_ms });

/// Disk bytes of the group since the watch began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct GroupIo {
    /// Bytes that the server's processes read from disks.
    pub read_bytes: u64,
    /// Bytes that will be written to disks, including those overwritten in memory before.
    pub written_bytes: u64,
    /// Read calls of every kind, including sockets.
    pub reads: u64,
    /// Write calls of every kind, including sockets.
    pub writes: u64,
}

/// A control group's counters (version 2) since its creation. The counters of a controller that is not enabled are
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ControlGroupTotals {
    /// CPU time of the control group, microseconds.
    pub cpu_us: Option<u64>,
    /// CPU time of the control group in user mode, microseconds.
    pub user_us: Option<u64>,
    /// CPU time of the control group in system mode, microseconds.
    pub system_us: Option<u64>,
    /// Periods in which the group was stopped because it had used its CPU time limit.
    pub throttled: Option<u64>,
    /// Current memory, page cache included, bytes.
    pub memory_bytes: Option<u64>,
    /// Major page faults of the control group.
    pub major_faults: Option<u64>,
    /// Bytes that the control group read from disks.
    pub read_bytes: Option<u64>,
    /// Bytes that the control group wrote to disks.
    pub written_bytes: Option<u64>,
    /// Current number of processes and threads.
    pub tasks: Option<u64>,
}

/// Reading of the machine's counters. Counters that the kernel does not report are absent, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct SystemTotals {
    /// CLOCK_MONOTONIC at the last reading of any kind.
    pub at_ns: u64,
    /// Time of the last reading of each kind of counters, by name.
    pub read_at_ns: BTreeMap<Cow<'static, str>, u64>,
    /// Number of CPUs online.
    pub cpus: u64,
    /// CPU time by mode.
    pub cpu: Option<CpuModes>,
    /// Disks: whole devices, without partitions, devices in memory, and devices on top of others (device mapper, loop).
    pub disk: Option<DiskCounts>,
    /// Paging since boot.
    pub paging: Option<Paging>,
    /// Interrupts since boot.
    pub interrupts: Option<u64>,
    /// Interrupts since boot by kind, the most frequent ones.
    pub interrupts_by_kind: BTreeMap<String, u64>,
    /// Soft interrupts by kind.
    pub softirqs_by_kind: BTreeMap<String, u64>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// Processes and threads started since boot.
    pub started: Option<u64>,
    /// Threads that are running or runnable.
    pub running: Option<u64>,
    /// Threads that are waiting for a disk.
    pub blocked: Option<u64>,
    /// Current use of memory.
    pub memory: Option<Memory>,
}

impl SystemTotals {
    /// When this kind of counters was read.
    pub fn read_ns(&self, kind: SystemKind) -> Option<u64> {
        self.read_at_ns.get(kind.word()).copied()
    }

    /// Seconds between the readings of this kind in an earlier reading and in this one; `None` unless both have it.
    pub fn seconds_since(&self, earlier: &SystemTotals, kind: SystemKind) -> Option<f64> {
        let span_ns = self.read_ns(kind)?.saturating_sub(earlier.read_ns(kind)?);
        (span_ns > 0).then_some(span_ns as f64 / 1e9)
    }
}
