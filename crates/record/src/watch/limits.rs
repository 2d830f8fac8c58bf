use crate::PlainText;
use serde::{Deserialize, Serialize};

/// Limits that could be read; others are absent. Times are totals, so that any two readings give a rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct LimitTotals {
    /// Number of CPUs that the server's busy threads may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Idle time of the CPUs of `cpus` since boot, summed, nanoseconds. It jumps when `cpus` changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<u64>,
    /// Smallest CPU time limit among the server's control groups; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<CpuQuota>,
    /// CPU time of the busiest thread of each interval between two readings, summed over the intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_thread_ns: Option<u64>,
    /// Busiest thread since the preceding reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_thread: Option<BusyThread>,
    /// The process with the largest share of its descriptor limit in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<Descriptors>,
    /// Maximum number of living threads that have read a request since the watch began; absent if requests are not
    /// counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading_threads: Option<u64>,
}

/// The server's CPU time limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CpuQuota {
    /// CPU time limit, in CPUs.
    pub cpus: f64,
    /// CPU time of the control group, nanoseconds; absent if another group accounts for it (version 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ns: Option<u64>,
    /// Periods in which the group ran.
    pub periods: u64,
    /// Periods in which the group was stopped because it had used its limit.
    pub throttled: u64,
}

/// Thread that used the most CPU time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct BusyThread {
    /// Id of the thread's process.
    pub pid: u32,
    /// Id of the thread.
    pub tid: u32,
    /// Name of the program.
    pub name: PlainText,
    /// Processes of this name with the same parent, including its own.
    pub siblings: u64,
}

/// Open descriptors of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Descriptors {
    /// Id of the process.
    pub pid: u32,
    /// Number of open descriptors.
    pub open: u64,
    /// Limit of open descriptors of the process (RLIMIT_NOFILE).
    pub limit: u64,
}
