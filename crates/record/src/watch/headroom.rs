use crate::PlainText;
use serde::{Deserialize, Serialize};

crate::worded! {
    /// The resource that a limit bounds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum LimitKind {
        /// CPUs that the server may use, shared with other work.
        Cpus = "CPUs",
        /// The CPU time that the server's control group may use.
        CpuQuota = "CPU quota",
        /// One CPU, for the server's busiest thread.
        BusiestThread = "busiest thread",
        /// Threads that serve one request each.
        ThreadPool = "thread pool",
        /// Open descriptors of a process.
        Descriptors = "descriptors",
        /// Queue of connections to be accepted.
        Backlog = "backlog",
    }
}

impl LimitKind {
    /// The word in JSON and Prometheus.
    pub fn label(self) -> String {
        self.word().to_lowercase().replace(' ', "-")
    }
}

/// Range of values. The upper end is absent if the traffic does not determine it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Range {
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range; absent if unbounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// A limit whose distance is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Limit {
    /// Resource that becomes full.
    pub kind: LimitKind,
    /// Current use, in the unit of `most`: CPUs, threads, descriptors, connections.
    pub used: f64,
    /// Size of the limit, in the unit of `used`.
    pub most: f64,
    /// Load at which the limit is full, as a multiple of the current load.
    pub times: Range,
    /// Requests per second at which the limit is full; absent if its use was not related to the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_at_per_sec: Option<Range>,
    /// Thread or process that the limit belongs to; absent for limits of the whole server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<PlainText>,
}

/// A limit whose distance is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnknownLimit {
    /// Resource whose headroom is not known.
    pub kind: LimitKind,
    /// The reason in one sentence.
    pub why: PlainText,
}

/// The headroom at the time of a reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Headroom {
    /// Requests per second over the last readings.
    pub now_per_sec: f64,
    /// The highest rate of a reading in the window.
    pub highest_per_sec: f64,
    /// Readings in the window.
    pub readings: u64,
    /// Length of the window, seconds.
    pub window_s: f64,
    /// Requests per second that the server can serve, by all limits that were related to the rate; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_per_sec: Option<Range>,
    /// The limits, the nearest first.
    pub limits: Vec<Limit>,
    /// Limits whose distance is not known.
    pub unknown: Vec<UnknownLimit>,
    /// Reason why the server may be full earlier, e.g. waits that are not visible; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<PlainText>,
}
