//! The *resolved* form of a command line or scenario file: every default filled in, every number in its base unit. It
//! is stored with the run, so that the run can be repeated from its directory.

use crate::axis::AxisPlan;
use crate::clients::ClientPlan;
use crate::path::PathPlan;
use crate::protocol::Protocol;
use crate::share::LoadShare;
use crate::watch::Watching;
use crate::workload::{KEPT_TARGETS, Workload};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::SocketAddr;

/// The gaps between intended sends of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Constant gaps between requests.
    Constant,
    /// Exponentially distributed gaps (a Poisson process), as from independent users.
    Poisson,
    /// A Poisson process whose rate follows a measured series; the rate is its mean ([`crate::Workload::series`]).
    Series,
    /// The times of a log; the rate is their mean ([`crate::Workload::trace`]).
    Trace,
}

/// Rule for the time of the next request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum Pace {
    /// Closed loop: each connection sends as soon as its response is complete.
    #[default]
    Closed,
    /// Open loop: requests are sent by a schedule that does not wait for responses.
    Open {
        /// Offered load over all connections, requests per second.
        rate_per_sec: f64,
        /// Distribution of the gaps between intended sends.
        arrival: Arrival,
    },
}

/// Rate that a log offered, as a share of the requested rate, if `sent` requests differ from it by more than 10 % and
/// by more than chance (a log of whole seconds is spread randomly).
pub fn other_rate_ratio(pace: Pace, sent: u64, window_ns: u64) -> Option<f64> {
    const TOLERANCE: f64 = 0.1;
    const DEVIATIONS: f64 = 4.0;
    let Pace::Open { rate_per_sec, arrival: Arrival::Trace } = pace else { return None };
    let asked = rate_per_sec * window_ns as f64 / 1e9;
    let difference = (sent as f64 - asked).abs();
    (difference > TOLERANCE * asked && difference > DEVIATIONS * asked.sqrt()).then(|| sent as f64 / asked)
}

/// Request target: path and query in origin form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestTarget {
    /// Origin-form target, beginning with `/`.
    pub path: String,
}

/// Plan of a load point: all that the engine needs. The command line has validated it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadPlan {
    /// Addresses of the server, tried in order; at least one. Names are resolved before the plan is made.
    pub addresses: Vec<SocketAddr>,
    /// Value of the Host header field (`name:port`, without port 80).
    pub host: String,
    /// Request method, such as `GET`.
    pub method: String,
    /// Targets, requested in turn (a URL list); at least one with HTTP.
    pub targets: Vec<RequestTarget>,
    /// Extra header fields, except Host, Content-Length and Connection, which the engine writes.
    pub headers: Vec<(String, String)>,
    /// Whether each request carries a random trace id, in the header field `traceparent`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traceparent: bool,
    /// Request body; empty for none. Not stored with the run, because it may be large; the repeat command names it.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Whether the load is a closed or an open loop.
    pub pace: Pace,
    /// Number of connections: held by the engine (closed loop), or maximum (open loop).
    pub connections: u64,
    /// Requests on a connection before it is closed and reopened; 0 = as many as the server allows.
    pub requests_per_connection: u64,
    /// Engine threads; each owns an equal share of the connections and of the schedule.
    pub threads: usize,
    /// CPUs to which the engine's threads are pinned, one after another; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Length of the load before the measured window, nanoseconds.
    pub warmup_ns: u64,
    /// Length of the measured window, nanoseconds.
    pub duration_ns: u64,
    /// Timeout of a request, nanoseconds; without a complete response it is counted and its connection closed.
    pub timeout_ns: u64,
    /// Nanoseconds after which a connection attempt fails.
    pub connect_timeout_ns: u64,
    /// Maximum new connections per second while connections are opened; 0 = as fast as possible.
    pub connect_rate_per_sec: f64,
    /// Local source addresses to use in turn; empty = the kernel's choice, and for a loopback target further
    /// addresses (127.0.0.x) if more ports are needed.
    pub source_addresses: Vec<std::net::IpAddr>,
    /// Seed of every random choice (arrivals), so that a schedule can be repeated.
    pub seed: u64,
    /// Whether to poll instead of sleeping in the last microseconds before an intended send; for a dedicated CPU.
    pub precise: bool,
    /// Mix, rate series or log; by default, targets are requested in turn.
    #[serde(default)]
    pub workload: Workload,
    /// Kind of clients: slow, of fixed bandwidth, with TLS.
    #[serde(default)]
    pub clients: ClientPlan,
    /// Protocol of the load. With a protocol other than HTTP, `targets` and the fields about HTTP are empty.
    #[serde(default, skip_serializing_if = "Protocol::is_http_1")]
    pub protocol: Protocol,
    /// Part of the load for which this plan is ([`LoadPlan::part`]).
    #[serde(default, skip_serializing_if = "LoadShare::is_whole")]
    pub share: LoadShare,
}

impl LoadPlan {
    /// A closed loop of one connection that requests / for 100 ms; callers change it.
    pub fn simple(address: std::net::SocketAddr) -> LoadPlan {
        LoadPlan {
            addresses: vec![address],
            host: address.to_string(),
            method: "GET".into(),
            targets: vec![RequestTarget { path: "/".into() }],
            connections: 1,
            threads: 1,
            duration_ns: 100_000_000,
            timeout_ns: 5_000_000_000,
            connect_timeout_ns: 5_000_000_000,
            seed: 1,
            ..LoadPlan::default()
        }
    }

    /// The part of this load for one of several machines. Quantities that are held are divided here: connections, and
    /// the rate at which they are opened. All else stays as in the whole load, with its seed: a machine's threads
    /// take the part that falls to their share of the machine's share ([`LoadShare::within`]), be it a place in the
    /// schedule, a stream of random numbers, or the clients of a log. So the parts add up to the load of a single
    /// machine.
    pub fn part(&self, share: LoadShare) -> LoadPlan {
        LoadPlan {
            connections: share.part(self.connections),
            connect_rate_per_sec: self.connect_rate_per_sec * share.fraction(),
            share,
            ..self.clone()
        }
    }

    /// The average rate offered by this part of the load; `None` in a closed loop.
    pub fn offered_per_sec(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { rate_per_sec, .. } => Some(rate_per_sec * self.share.fraction()),
            Pace::Closed => None,
        }
    }

    /// The plan as kept with a run: the first [`KEPT_TARGETS`] targets and the number of all.
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

/// The criteria that separate the zones; all configurable, all stored with the run and printed in the report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Criteria {
    /// Closed loop: the yield point is where doubling the connections raises throughput by less than this share (0.2
    /// = 20 %).
    pub elastic_gain_ratio: f64,
    /// Busy share from which a server CPU counts as saturated.
    pub saturation_ratio: f64,
    /// Relative increase of the CPU time per request over its minimum that counts as lost efficiency (0.15 = 15 %).
    pub efficiency_loss_ratio: f64,
    /// Share of failed requests (errors or non-2xx) above which a point fails.
    pub error_ratio: f64,
    /// Open loop: share of the offered load that must be completed; with less, the point fails, because work is
    /// delayed without limit.
    pub goodput_ratio: f64,
    /// Response time at the 99th percentile above which a point fails, nanoseconds.
    pub p99_limit_ns: u64,
    /// Width of the failure point's bracket at which the search ends, as a share (0.05 = 5 %).
    pub bracket_ratio: f64,
    /// Closed loop: width of the yield point's interval at which repeats end, as a share of the point (0.25 = 25 %).
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

/// Ranges that `find` sweeps over, and its time limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SweepPlan {
    /// Smallest number of connections of the closed-loop sweep.
    pub connections_min: u64,
    /// Largest number of connections of the closed-loop sweep.
    pub connections_max: u64,
    /// Number of repeats of each point.
    pub repeats: u32,
    /// Length of a measured point of the sweep.
    pub point_duration_ns: u64,
    /// Warm-up before every point; absent: a fifth of the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_ns: Option<u64>,
    /// Wall-clock budget for the whole run; when it is spent, the search ends and reports that.
    pub budget_ns: u64,
    /// Connections of the open-loop search.
    pub open_connections: u64,
    /// Arrival process of the open-loop search.
    pub arrival: Arrival,
    /// Criteria of the zones.
    pub criteria: Criteria,
    /// Width of the intervals of the yield point and of the failing rate at which repeats end, as a share (0.05 = 5
    /// %); also bounded by `repeats` and `budget_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_sure_ratio: Option<f64>,
    /// Whether each repeat over connections goes up in order, then down again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unload: bool,
    /// Varied quantity instead of the two sweeps; absent without `--axis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axis: Option<AxisPlan>,
}

/// Server command that a run started itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerCommand {
    /// Program and arguments, as typed after `--`.
    pub argv: Vec<String>,
    /// CPUs to which the server was pinned; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Whether server and clients had separate network stacks: network namespaces connected by a veth pair, or with
    /// `--server-with` another machine or namespace than any client's.
    pub isolated: bool,
}

/// Resolved options of a run: the fields of all kinds of runs, and those of this kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Scenario {
    /// Name given by the user or derived from the URL; part of the run directory's name. Untrusted text.
    pub name: String,
    /// Exact command line that repeats the run, quoted for a shell. Untrusted text.
    pub repeat_command: String,
    /// The command and its fields.
    #[serde(flatten)]
    pub kind: RunKind,
}

/// Kinds of runs. `command` names the kind; its fields are next to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum RunKind {
    /// One load point.
    Load(LoadRun),
    /// A sweep of the load.
    Find(FindRun),
    /// A sweep with a profile of each point.
    Profile(ProfileRun),
    /// Watch of a running server.
    Watch(Watching),
    /// Run of another program, which also draws the report.
    Tool(ToolRun),
}

/// Load on a server: the fields of `load`, and part of those of `find` and `profile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadRun {
    /// The URL as typed. Untrusted text.
    pub url: String,
    /// Plan of the load; sweeps vary its connections and pace.
    pub load: LoadPlan,
    /// Server command; present if the run started the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCommand>,
    /// Emulated path between client and server; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
}

/// The fields of `find`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FindRun {
    /// Load that is varied.
    #[serde(flatten)]
    pub base: LoadRun,
    /// The ranges and limits of the sweeps.
    pub sweep: SweepPlan,
    /// Questions for `predict`, kept with the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_ifs: Vec<crate::WhatIf>,
    /// Command that ran with the server: program and arguments as typed; only in the run in `with/` of `find
    /// --beside`. Untrusted text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// How live traffic was moved to the server; absent if straingauge sent the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shift: Option<ShiftPlan>,
}

/// A command that moves a share of live traffic to one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShiftPlan {
    /// The command for a shell; `{share}` in it is replaced by the share. Untrusted text.
    pub command: String,
    /// The usual share, which is restored at the end.
    pub usual: f64,
    /// The largest share that the search may set.
    pub most: f64,
}

/// The fields of a sweep of `profile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProfileRun {
    /// The load that is varied.
    #[serde(flatten)]
    pub base: LoadRun,
    /// The ranges and limits of the sweep.
    pub sweep: SweepPlan,
}

/// Fields of a tool's run. The program `straingauge-NAME` keeps its results in files of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolRun {
    /// Name of the tool: NAME in `straingauge-NAME`. Untrusted text.
    pub tool: String,
    /// Program and arguments of the server under test; empty without one. Untrusted text.
    #[serde(default)]
    pub argv: Vec<String>,
}

impl RunKind {
    /// The name of the command or of the tool. Untrusted text.
    pub fn command(&self) -> &str {
        match self {
            RunKind::Load(_) => "load",
            RunKind::Find(_) => "find",
            RunKind::Profile(_) => "profile",
            RunKind::Watch(_) => "watch",
            RunKind::Tool(run) => &run.tool,
        }
    }
}

impl Scenario {
    /// The load on a server, if the run had one.
    pub fn loaded(&self) -> Option<&LoadRun> {
        match &self.kind {
            RunKind::Load(run) => Some(run),
            RunKind::Find(FindRun { base, .. }) | RunKind::Profile(ProfileRun { base, .. }) => Some(base),
            RunKind::Watch(_) | RunKind::Tool(_) => None,
        }
    }

    /// Describes the loaded or watched server: the URL as typed, or `:8080`; empty for a tool. Untrusted text.
    pub fn url(&self) -> Cow<'_, str> {
        match &self.kind {
            RunKind::Watch(watching) => format!(":{}", watching.port).into(),
            _ => self.loaded().map_or("", |run| run.url.as_str()).into(),
        }
    }

    /// How the load was varied.
    pub fn sweep(&self) -> Option<&SweepPlan> {
        match &self.kind {
            RunKind::Find(FindRun { sweep, .. }) | RunKind::Profile(ProfileRun { sweep, .. }) => Some(sweep),
            _ => None,
        }
    }

    /// The plan of the load.
    pub fn load(&self) -> Option<&LoadPlan> {
        self.loaded().map(|run| &run.load)
    }

    /// The server that the run started.
    pub fn server(&self) -> Option<&ServerCommand> {
        self.loaded().and_then(|run| run.server.as_ref())
    }

    /// The wide-area path.
    pub fn path(&self) -> Option<&PathPlan> {
        self.loaded().and_then(|run| run.path.as_ref())
    }

    /// Questions for `predict`.
    pub fn what_ifs(&self) -> &[crate::WhatIf] {
        match &self.kind {
            RunKind::Find(run) => &run.what_ifs,
            _ => &[],
        }
    }

    /// The command that ran with the server; empty if there was none.
    pub fn beside(&self) -> &[String] {
        match &self.kind {
            RunKind::Find(run) => &run.beside,
            _ => &[],
        }
    }
}
