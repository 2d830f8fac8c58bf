//! The machine's counters in a reading: cumulative since boot, each kind with the time at which it was read, so any two
//! readings give rates. They are those of the kernel module of Almeida, Almeida and Yates (1996, Table 2).

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

crate::worded! {
    /// Counters that are read together.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Kind {
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
pub const KINDS: usize = Kind::ALL.len();

/// CPU time by mode since boot, summed over the machine's CPUs, milliseconds (the kernel counts in ticks of 10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CpuModes {
    /// User mode, nice included.
    pub user_ms: u64,
    /// System mode.
    pub system_ms: u64,
    /// Hard interrupts.
    pub irq_ms: u64,
    /// Soft interrupts.
    pub softirq_ms: u64,
    /// Idle.
    pub idle_ms: u64,
    /// Idle while a disk request was outstanding.
    pub iowait_ms: u64,
    /// Taken by the hypervisor.
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
    /// All faults.
    pub faults: u64,
}

/// Memory now, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// The machine's memory.
    pub total_bytes: u64,
    /// What programs could get without swapping, by the kernel's estimate.
    pub available_bytes: u64,
    /// Unused.
    pub free_bytes: u64,
    /// Files' pages.
    pub cached_bytes: u64,
    /// Files' pages that must still be written.
    pub dirty_bytes: u64,
}

/// Disk work since boot, summed over devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct DiskCounts {
    /// Devices.
    pub devices: u64,
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Milliseconds in which a device had work, summed over devices. Divided by the elapsed time, this is the
    /// utilisation of a single disk.
    pub busy_ms: u64,
}

/// Disk bytes of the group since the watch began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct GroupIo {
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Bytes that are to be written to disks (also those that were overwritten in memory before).
    pub written_bytes: u64,
    /// Read and write calls of every kind, sockets included.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
}

/// A control group's counters (version 2) since it was created. A counter whose controller is not enabled is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ControlGroupTotals {
    /// CPU time, microseconds.
    pub cpu_us: Option<u64>,
    /// In user mode.
    pub user_us: Option<u64>,
    /// In system mode.
    pub system_us: Option<u64>,
    /// Periods in which it was throttled by its limit of CPU time.
    pub throttled: Option<u64>,
    /// Memory now, files' pages included.
    pub memory_bytes: Option<u64>,
    /// Its memory limit; absent also when there is none.
    pub memory_limit_bytes: Option<u64>,
    /// Major faults.
    pub major_faults: Option<u64>,
    /// Bytes read from disks.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
    /// Processes and threads now.
    pub tasks: Option<u64>,
}

/// One reading of the machine. What the kernel does not report is absent, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct SystemTotals {
    /// CLOCK_MONOTONIC at the last reading of any kind.
    pub at_ns: u64,
    /// When each kind of counters was last read, by name; rates are taken between these times.
    pub read_at_ns: BTreeMap<Cow<'static, str>, u64>,
    /// CPUs online.
    pub cpus: u64,
    /// CPU time by mode.
    pub cpu: Option<CpuModes>,
    /// Disks: whole devices, without partitions, devices in memory, and devices on top of others (device mapper, loop).
    pub disk: Option<DiskCounts>,
    /// Paging.
    pub paging: Option<Paging>,
    /// Interrupts since boot.
    pub interrupts: Option<u64>,
    /// By kind, the most frequent.
    pub interrupts_by_kind: BTreeMap<String, u64>,
    /// Soft interrupts by kind.
    pub softirqs_by_kind: BTreeMap<String, u64>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// Processes and threads started since boot.
    pub started: Option<u64>,
    /// Threads that run or are ready to, now.
    pub running: Option<u64>,
    /// Threads that wait for a disk, now.
    pub blocked: Option<u64>,
    /// Memory.
    pub memory: Option<Memory>,
}

impl SystemTotals {
    /// When this kind of counters was read.
    pub fn read_ns(&self, kind: Kind) -> Option<u64> {
        self.read_at_ns.get(kind.word()).copied()
    }

    /// Seconds between the times at which this kind was read in an earlier reading and in this one; `None` unless both
    /// have it.
    pub fn seconds_since(&self, earlier: &SystemTotals, kind: Kind) -> Option<f64> {
        let span_ns = self.read_ns(kind)?.saturating_sub(earlier.read_ns(kind)?);
        (span_ns > 0).then_some(span_ns as f64 / 1e9)
    }
}
