//! The *resolved* form of a command line or scenario file: every default filled in, every number in its base unit. It
//! is stored with the run, so that the run can be repeated from its directory alone.

use crate::axis::AxisPlan;
use crate::clients::ClientPlan;
use crate::path::PathPlan;
use crate::protocol::Protocol;
use crate::share::Share;
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
    /// Exponentially distributed gaps (a Poisson process): independent users.
    Poisson,
    /// A Poisson process whose rate follows a measured series; the rate is its mean ([`crate::Workload::series`]).
    Series,
    /// The times of a log; the rate is their mean ([`crate::Workload::trace`]).
    Trace,
}

/// The rule for the time of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum Pace {
    /// Closed loop: each connection sends as soon as its response is complete.
    Closed,
    /// Open loop: requests leave by a schedule that does not wait for responses.
    Open {
        /// Offered load over all connections, requests per second.
        rate_per_sec: f64,
        /// Distribution of the gaps between intended sends.
        arrival: Arrival,
    },
}

/// What a log offered as a share of the rate asked, if `sent` requests differ from it by more than 10 % and by more
/// than chance (a log of whole seconds is spread at random).
pub fn other_rate_ratio(pace: Pace, sent: u64, window_ns: u64) -> Option<f64> {
    const TOLERANCE: f64 = 0.1;
    const DEVIATIONS: f64 = 4.0;
    let Pace::Open { rate_per_sec, arrival: Arrival::Trace } = pace else { return None };
    let asked = rate_per_sec * window_ns as f64 / 1e9;
    let difference = (sent as f64 - asked).abs();
    (difference > TOLERANCE * asked && difference > DEVIATIONS * asked.sqrt()).then(|| sent as f64 / asked)
}

/// One request as it is sent: target path and query, in origin form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestTarget {
    /// Origin-form target, beginning with `/`.
    pub path: String,
}

/// Everything the engine needs to produce one load point. The command line has validated it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadPlan {
    /// The server's addresses, tried in order of the list; at least one. Names are resolved before the plan is made.
    pub addresses: Vec<SocketAddr>,
    /// The value of the Host header field (`name:port`, without the port where it is 80).
    pub host: String,
    /// Request method, such as `GET`.
    pub method: String,
    /// Targets, visited in turn (a URL list); with HTTP at least one.
    pub targets: Vec<RequestTarget>,
    /// Extra header fields, without Host, Content-Length and Connection, which the engine writes.
    pub headers: Vec<(String, String)>,
    /// Whether each request carries a random trace id, in the header field `traceparent`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traceparent: bool,
    /// Request body; empty for none. Not stored with the run (it may be large): the repeat command names it.
    #[serde(skip)]
    pub body: Vec<u8>,
    /// Whether the load is a closed or an open loop.
    pub pace: Pace,
    /// Number of connections held by the engine (closed loop) or at most used by it (open loop).
    pub connections: u64,
    /// Requests before a connection is closed and reopened; 0 = as many as the server allows.
    pub requests_per_connection: u64,
    /// Engine threads; each owns an equal share of the connections and of the schedule.
    pub threads: usize,
    /// CPUs the engine's threads are pinned to, one after another; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Length of the load before the measured window, nanoseconds.
    pub warmup_ns: u64,
    /// Length of the measured window, nanoseconds.
    pub duration_ns: u64,
    /// Nanoseconds after which a request without a complete response counts as timed out and its connection is
    /// closed.
    pub timeout_ns: u64,
    /// Nanoseconds after which a connection attempt fails.
    pub connect_timeout_ns: u64,
    /// New connections per second at most while the connections are being opened; 0 = as fast as possible.
    pub connect_rate_per_sec: f64,
    /// Local source addresses to use in turn; empty = the engine adds loopback addresses (127.0.0.x) where the target
    /// is one and more ports are needed, else the kernel's choice.
    pub source_addresses: Vec<std::net::IpAddr>,
    /// Seed of every random choice (arrivals), so that a schedule can be repeated.
    pub seed: u64,
    /// Dedicated CPU: poll instead of sleeping in the last microseconds before an intended send.
    pub precise: bool,
    /// Mix, rate series or log; the default asks for the targets in turn.
    #[serde(default)]
    pub workload: Workload,
    /// The kind of clients: slow ones, of fixed bandwidth, over TLS.
    #[serde(default)]
    pub clients: ClientPlan,
    /// The protocol. With a protocol other than HTTP `targets` and the fields about HTTP are empty.
    #[serde(default, skip_serializing_if = "Protocol::is_http_1")]
    pub protocol: Protocol,
    /// The part of the load that this plan is for ([`LoadPlan::part`]).
    #[serde(default, skip_serializing_if = "Share::is_whole")]
    pub share: Share,
}

impl LoadPlan {
    /// One connection that asks for / for 100 ms, in a closed loop: what others change.
    pub fn simple(address: std::net::SocketAddr) -> LoadPlan {
        LoadPlan {
            addresses: vec![address],
            host: address.to_string(),
            method: "GET".into(),
            targets: vec![RequestTarget { path: "/".into() }],
            headers: Vec::new(),
            traceparent: false,
            body: Vec::new(),
            pace: Pace::Closed,
            connections: 1,
            requests_per_connection: 0,
            threads: 1,
            cpus: Vec::new(),
            warmup_ns: 0,
            duration_ns: 100_000_000,
            timeout_ns: 5_000_000_000,
            connect_timeout_ns: 5_000_000_000,
            connect_rate_per_sec: 0.0,
            source_addresses: Vec::new(),
            seed: 1,
            precise: false,
            workload: Workload::default(),
            clients: ClientPlan::default(),
            protocol: Protocol::Http,
            share: Share::WHOLE,
        }
    }

    /// The part of this load for one of several machines. What is held is divided here: connections, and the rate at
    /// which they are opened. All else stays that of the whole, with its seed: a machine's threads take from it what
    /// falls to their share of the machine's share ([`Share::within`]), whether that is a place in the schedule, a
    /// stream of draws, or the clients of a log. So the parts add up to the load that one machine would send.
    pub fn part(&self, share: Share) -> LoadPlan {
        LoadPlan {
            connections: share.part(self.connections),
            connect_rate_per_sec: self.connect_rate_per_sec * share.fraction(),
            share,
            ..self.clone()
        }
    }

    /// The rate that this part of the load offers on average; `None` in a closed loop.
    pub fn offered_per_sec(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { rate_per_sec, .. } => Some(rate_per_sec * self.share.fraction()),
            Pace::Closed => None,
        }
    }

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

/// The criteria that separate the zones; all configurable, all stored with the run and printed in the report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Criteria {
    /// Closed loop: there is a yield point where doubling the connections raises throughput by less than this share
    /// (0.2 = 20 %).
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

/// The ranges that `find` sweeps over and its time limit.
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
    /// Load before every point; absent: a fifth of the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_ns: Option<u64>,
    /// Wall-clock budget for the whole run; when it is spent, the search stops refining and reports that.
    pub budget_ns: u64,
    /// Connections of the open-loop search.
    pub open_connections: u64,
    /// Arrival process of the open-loop search.
    pub arrival: Arrival,
    /// Criteria of the zones.
    pub criteria: Criteria,
    /// Repeat until the intervals of the yield point and of the failing rate are at most this share of them (0.05 = 5
    /// %); `repeats` and `budget_ns` bound it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_sure_ratio: Option<f64>,
    /// Whether each repeat over connections goes up in order, and down again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unload: bool,
    /// The quantity that is varied in place of the two sweeps; absent without `--axis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axis: Option<AxisPlan>,
}

/// The server command that a run started itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ServerCommand {
    /// Program and arguments, as typed after `--`.
    pub argv: Vec<String>,
    /// CPUs the server was pinned to; empty = not pinned.
    pub cpus: Vec<usize>,
    /// Whether server and clients had separate network stacks: network namespaces joined by a veth pair, or with
    /// `--server-with` another machine or namespace than that of any client.
    pub isolated: bool,
}

/// The resolved request for a run: the fields of every kind of run, and those of this kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Scenario {
    /// A name given by the user or derived from the URL; part of the run directory's name. Untrusted text.
    pub name: String,
    /// The exact command line that repeats the run, quoted for a shell. Untrusted text.
    pub repeat_command: String,
    /// The command and its fields.
    #[serde(flatten)]
    pub kind: RunKind,
}

/// The kinds of runs. `command` names the kind; its fields are next to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum RunKind {
    /// One load point.
    Load(LoadRun),
    /// A sweep of the load.
    Find(FindRun),
    /// A sweep with a profile of each point.
    Profile(ProfileRun),
    /// A running server was watched.
    Watch(Watching),
    /// Another program made the run; it draws the report, too.
    Tool(ToolRun),
}

/// A load on a server: the fields of `load`, and part of those of `find` and `profile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadRun {
    /// The URL as typed. Untrusted text.
    pub url: String,
    /// The plan; sweeps vary its connections and pace.
    pub load: LoadPlan,
    /// Present when the run started the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerCommand>,
    /// Present when client and server were joined by an emulated wide-area path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
}

/// The fields of `find`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FindRun {
    /// The load that is varied.
    #[serde(flatten)]
    pub base: LoadRun,
    /// The ranges and limits of the sweeps.
    pub sweep: SweepPlan,
    /// Questions for `predict`, kept with the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_ifs: Vec<crate::WhatIf>,
    /// The command that ran beside the server, program and arguments as typed; of the run in `with/` of `find
    /// --beside`. Untrusted text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
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

/// The fields of a run of a tool: a program `straingauge-NAME`, which keeps what it found in files of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolRun {
    /// NAME of the program `straingauge-NAME`. Untrusted text.
    pub tool: String,
    /// Program and arguments of the server under test; empty without one. Untrusted text.
    #[serde(default)]
    pub argv: Vec<String>,
}

impl RunKind {
    /// The command's word, or the tool's name. Untrusted text.
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

    /// The loaded or watched server, in words: the URL as typed, or `:8080`; empty for a tool. Untrusted text.
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

    /// The command that ran beside the server; empty without one.
    pub fn beside(&self) -> &[String] {
        match &self.kind {
            RunKind::Find(run) => &run.beside,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    proptest! {
        #[test]
        fn parts_of_a_load_add_up_to_it_and_have_all_else_in_common(
            connections in 1u64..100_000, rate_per_sec in 0.1f64..1e6, connect_rate in 0.0f64..1e5,
            weights in prop::collection::vec(1u32..9, 1..100), seed: u64,
        ) {
            let whole = LoadPlan {
                connections,
                pace: Pace::Open { rate_per_sec, arrival: Arrival::Series },
                connect_rate_per_sec: connect_rate,
                seed,
                ..LoadPlan::simple(([127, 0, 0, 1], 80).into())
            };
            let parts: Vec<LoadPlan> = Share::by_weight(&weights).into_iter().map(|share| whole.part(share)).collect();
            prop_assert_eq!(parts.iter().map(|part| part.connections).sum::<u64>(), connections);
            let is_whole = |sum: f64, whole: f64| (sum - whole).abs() <= whole * 1e-9;
            prop_assert!(is_whole(parts.iter().filter_map(LoadPlan::offered_per_sec).sum(), rate_per_sec));
            prop_assert!(is_whole(parts.iter().map(|part| part.connect_rate_per_sec).sum(), connect_rate));
            for part in parts {
                let back = LoadPlan { connections, connect_rate_per_sec: connect_rate, share: Share::WHOLE, ..part };
                prop_assert_eq!(&back, &whole);
            }
        }
    }

    fn read(text: &str) -> Scenario {
        serde_json::from_str(text).expect("a scenario")
    }

    #[test]
    fn a_kept_run_that_loaded_a_server_is_written_as_it_was_read() {
        let first_line = |text: &'static str| text.lines().next().expect("run.json");
        for kept in [
            first_line(include_str!("../../analyze/tests/recorded/haproxy-poll.jsonl")),
            first_line(include_str!("../../analyze/tests/recorded/nginx.jsonl")),
        ] {
            let before: Value = serde_json::from_str(kept).expect("JSON");
            let record: crate::RunRecord = serde_json::from_str(kept).expect("a record");
            let after = serde_json::to_value(&record).expect("JSON");
            for member in ["command", "name", "url", "repeat_command", "server", "sweep", "path", "what_ifs"] {
                assert_eq!(after["scenario"].get(member), before["scenario"].get(member), "{member}");
            }
            assert_eq!(serde_json::from_value::<crate::RunRecord>(after).expect("a record"), record);
            assert!(record.scenario.load().is_some() && record.schema == crate::run::SCHEMA);
        }
    }

    #[test]
    fn what_loads_nothing_has_no_load_plan() {
        let kind = RunKind::Watch(Watching { port: 8080, ..Watching::default() });
        let watch = Scenario { name: "n".into(), repeat_command: "r".into(), kind };
        let written = serde_json::to_value(&watch).expect("JSON");
        assert_eq!((&written["command"], &written["port"], written.get("load")), (&json!("watch"), &json!(8080), None));
        assert_eq!(read(&written.to_string()), watch);
    }
}
