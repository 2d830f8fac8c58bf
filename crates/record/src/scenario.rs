//! What a run is asked to do. The *resolved* form of a command line or scenario file: every default filled in, every
//! number in its base unit; stored with the run, so that the run can be repeated from its directory alone.

use crate::axis::AxisPlan;
use crate::clients::ClientPlan;
use crate::workload::{KEPT_TARGETS, Workload};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The gaps between intended sends of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Equal gaps.
    Constant,
    /// Exponentially distributed gaps (a Poisson process): independent users.
    Poisson,
    /// A Poisson process whose rate follows a measured series; the rate is its mean ([`crate::Workload::series`]).
    Series,
    /// The times of a log; the rate is their mean ([`crate::Workload::trace`]).
    Trace,
}

/// Who decides when the next request leaves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum Pace {
    /// Closed loop: each connection sends as soon as its response is complete.
    Closed,
    /// Open loop: requests leave by a schedule that does not wait for responses.
    Open {
        /// Offered load over all connections, requests per second.
        rate_per_sec: f64,
        /// How the gaps are distributed.
        arrival: Arrival,
    },
}

/// One request as it is sent: target path and query, in origin form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTarget {
    /// Origin-form target, beginning with `/`.
    pub path: String,
}

/// Everything the engine needs to produce one load point. Validated by the command line before it comes here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// The server's addresses, tried in order of the list; at least one. Names are resolved before the plan is made.
    pub addresses: Vec<SocketAddr>,
    /// The value of the Host header field (`name:port`, without the port where it is 80).
    pub host: String,
    /// Request method.
    pub method: String,
    /// Targets, visited in turn (a URL list); at least one.
    pub targets: Vec<RequestTarget>,
    /// Extra header fields, without Host, Content-Length and Connection, which the engine owns.
    pub headers: Vec<(String, String)>,
    /// Request body; empty for none. Not stored with the run (it may be large): the repeat command names it.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Closed or open loop.
    pub pace: Pace,
    /// Number of connections held by the engine (closed loop) or at most used by it (open loop).
    pub connections: u64,
    /// Requests before a connection is closed and reopened; 0 = as many as the server allows.
    pub requests_per_connection: u64,
    /// Engine threads; each owns an equal share of the connections and of the schedule.
    pub threads: usize,
    /// CPUs the engine's threads are pinned to, one after another; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Load before measuring starts.
    pub warmup_ns: u64,
    /// Length of the measured window.
    pub duration_ns: u64,
    /// A request without a complete response after this long is counted as timed out and its connection closed.
    pub timeout_ns: u64,
    /// A connection attempt is given up after this long.
    pub connect_timeout_ns: u64,
    /// New connections per second at most while the herd is being opened; 0 = as fast as possible.
    pub connect_rate_per_sec: f64,
    /// Local source addresses to use in turn; empty = the engine adds loopback addresses (127.0.0.x) where the target is
    /// one and more ports are needed, else the kernel's choice.
    pub source_addresses: Vec<std::net::IpAddr>,
    /// Seed of every random choice (arrivals), so that a schedule can be repeated.
    pub seed: u64,
    /// Dedicated CPU: poll instead of sleeping in the last microseconds before an intended send.
    pub precise: bool,
    /// Mix, rate series or log; the default asks for the targets in turn.
    #[serde(default)]
    pub workload: Workload,
    /// What kind of clients: slow ones, of fixed bandwidth, over TLS.
    #[serde(default)]
    pub clients: ClientPlan,
}

impl LoadPlan {
    /// The plan as it is kept with a run: of very many targets, the first [`KEPT_TARGETS`] and their number.
    pub fn abridged(&self) -> LoadPlan {
        let mut plan = self.clone();
        if plan.targets.len() > KEPT_TARGETS {
            plan.workload.targets = plan.targets.len() as u64;
            plan.targets.truncate(KEPT_TARGETS);
            plan.workload.weights.truncate(KEPT_TARGETS);
            plan.workload.class_of.truncate(KEPT_TARGETS);
        }
        plan
    }
}

/// The criteria by which zones are told apart; all configurable, all stored with the run and printed in the report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Criteria {
    /// Closed loop: elastic while doubling the connections raises throughput by at least this share (0.2 = 20 %).
    pub elastic_gain_ratio: f64,
    /// A server CPU this busy or more counts as saturated (share of the CPUs it may use).
    pub saturation_ratio: f64,
    /// CPU per request this much above its lowest value counts as efficiency lost (0.15 = 15 %).
    pub efficiency_loss_ratio: f64,
    /// More than this share of failed requests (errors or non-2xx) is failure.
    pub error_ratio: f64,
    /// Open loop: completed less than this share of the offered load is failure (work is late without bound).
    pub goodput_ratio: f64,
    /// Response time at the 99th percentile beyond this is failure, in nanoseconds.
    pub p99_limit_ns: u64,
    /// Failure point is bracketed when the gap between its bounds is at most this share (0.05 = 5 %).
    pub bracket_ratio: f64,
    /// Closed loop: no more repeats once the yield point's interval is at most this share of it (0.25 = 25 %).
    pub yield_interval_ratio: f64,
    /// Confidence of the intervals (0.95 = 95 %).
    pub confidence_ratio: f64,
}

impl Default for Criteria {
    fn default() -> Self {
        Criteria {
            elastic_gain_ratio: 0.2,
            saturation_ratio: 0.95,
            efficiency_loss_ratio: 0.15,
            error_ratio: 0.001,
            goodput_ratio: 0.98,
            p99_limit_ns: 100_000_000,
            bracket_ratio: 0.05,
            yield_interval_ratio: 0.25,
            confidence_ratio: 0.95,
        }
    }
}

/// What `find` sweeps over and how long it may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPlan {
    /// Smallest and largest number of connections of the closed-loop sweep.
    pub connections_min: u64,
    /// See `connections_min`.
    pub connections_max: u64,
    /// How often each point is repeated.
    pub repeats: u32,
    /// Length of a measured point of the sweep.
    pub point_duration_ns: u64,
    /// Load before every point; absent: a fifth of the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_ns: Option<u64>,
    /// Wall-clock budget for the whole run; the search stops refining when it is spent, and says so.
    pub budget_ns: u64,
    /// Connections of the open-loop search.
    pub open_connections: u64,
    /// Arrival process of the open-loop search.
    pub arrival: Arrival,
    /// Zone criteria.
    pub criteria: Criteria,
    /// One quantity to vary instead of the two sweeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<AxisPlan>,
}

/// The server command that a run started itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCommand {
    /// Program and arguments, as typed after `--`.
    pub argv: Vec<String>,
    /// CPUs the server was pinned to; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Whether it ran in a network namespace of its own, joined to the client's by a veth pair.
    pub isolated: bool,
}

/// The resolved request for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// `load` or `find`.
    pub command: String,
    /// A name given by the user or derived from the URL; part of the run directory's name. Untrusted text.
    pub name: String,
    /// The URL as typed. Untrusted text.
    pub url: String,
    /// The exact command line that repeats the run, quoted for a shell.
    pub repeat_command: String,
    /// The base plan; sweeps vary its connections and pace.
    pub load: LoadPlan,
    /// Present for `find`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepPlan>,
    /// Present when the run started the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCommand>,
    /// Present when client and server were joined by an emulated wide-area path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<crate::path::PathPlan>,
    /// Questions for `predict`, kept with the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_ifs: Vec<crate::WhatIf>,
}
