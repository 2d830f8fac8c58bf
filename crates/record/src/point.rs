//! A load point: the offered load, its outcomes, and all measurements. The content of `points/NNN/point.json`.

use crate::account::Account;
use crate::axis::AxisPlace;
use crate::doubt::Doubt;
use crate::figure::{Figure, Figures};
use crate::outcome::Outcomes;
use crate::scenario::{Pace, other_rate_ratio};
use crate::slowest::SlowRequest;
use crate::watched::Watched;
use crate::workload::WorkloadResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the files other than `run.json`. A reader refuses newer ones.
pub const SCHEMA: u32 = 1;

crate::worded! {
    /// Part of a run to which a point belongs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[derive(schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Sweep {
        /// A single point of `load`.
        #[default]
        Single = "single",
        /// Closed loop over connections.
        Connections = "closed loop",
        /// Closed loop over connections, down again through the loads of [`Sweep::Connections`].
        Unloading = "closed loop, down",
        /// Open loop over rate.
        Rate = "open loop",
        /// One quantity varied ([`Point::axis`]), all others held.
        Axis = "axis",
        /// The fixed reference load that shows the machine's drift; never part of a curve.
        Yardstick = "yardstick",
        /// A sweep that this version does not know.
        #[serde(other)]
        Other = "other",
    }
}

/// One measured load point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Point {
    /// Version of the format of `point.json`.
    pub schema: u32,
    /// Position of the point in the run: the `NNN` of its folder.
    pub index: u32,
    /// The sweep of the point.
    pub sweep: Sweep,
    /// Repeat of the sweep, from 0. Points of one repeat are compared with each other.
    pub repeat: u32,
    /// Place on the axis of the run; absent without an axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axis: Option<AxisPlace>,
    /// Connections held (closed loop), or maximum used (open loop).
    pub connections: u64,
    /// Closed or open loop, with the offered rate.
    pub pace: Pace,
    /// Seed of the arrival times of an open loop. Each trial of a search has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Start of the measured window, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Length of the load before the window, nanoseconds.
    pub warmup_ns: u64,
    /// Measured length of the window, nanoseconds.
    pub duration_ns: u64,
    /// Outcomes of all requests of the window: sent in it, or in flight when it began.
    pub outcomes: Outcomes,
    /// Complete responses by status, except 2xx and 3xx.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_statuses: BTreeMap<u16, u64>,
    /// Slowest requests of the window that were sent, or whose connection could not be opened; at most 20, the slowest
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SlowRequest>,
    /// Every figure of the point, by name.
    pub figures: Figures,
    /// Connections of the server's port by TCP state (`established`, `time-wait`, ...): mean over the window's
    /// readings.
    #[serde(default)]
    pub connection_states: BTreeMap<String, Figure>,
    /// Results by class of request, and of a replay.
    #[serde(default, skip_serializing_if = "WorkloadResult::is_empty")]
    pub workload: WorkloadResult,
    /// CPU time of functions without their callees, of the server and of the kernel on its behalf (sampled); the most
    /// expensive first. Empty if the point was not profiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCost>,
    /// CPU time of functions of the server's files, and of system calls, with their callees (sampled): those that
    /// divide its work, from a fifth of the CPU time on; the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_callees: Vec<FunctionCost>,
    /// Requests counted on the server. Absent if the point was not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The account of the server's threads. Absent if they were not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Reasons to doubt this point.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
}

/// A function's CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FunctionCost {
    /// Name of the function. Untrusted text.
    pub function: String,
    /// The kernel's module or the program's file. Untrusted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Layer to which most samples were charged; absent = unattributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<crate::layers::Layer>,
    /// CPU time per completed request, microseconds.
    pub us_per_request: f64,
    /// Number of samples that the cost is based on.
    pub samples: u64,
}

impl Point {
    /// An empty point of this sweep and load.
    pub fn new(sweep: Sweep, repeat: u32, connections: u64, pace: Pace) -> Point {
        Point { schema: SCHEMA, sweep, repeat, connections, pace, ..Point::default() }
    }

    /// The offered rate of an open-loop point, requests per second.
    pub fn offered_per_sec(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { rate_per_sec, .. } => Some(rate_per_sec),
            Pace::Closed => None,
        }
    }

    /// The load that a replayed log offered, as a share of the point's rate, if they differ by more than 10 % and by
    /// more than chance. The point then does not represent its rate.
    pub fn other_rate_ratio(&self) -> Option<f64> {
        other_rate_ratio(self.pace, self.outcomes.sent, self.duration_ns)
    }

    /// The load: the offered rate of an open loop, or the connections of a closed one.
    pub fn load(&self) -> f64 {
        self.offered_per_sec().unwrap_or(self.connections as f64)
    }

    /// A figure's value, if measured.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures.value(name)
    }
}
