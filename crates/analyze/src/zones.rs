//! Elastic, plastic and failure zones, the yield point and the failure point, found from points by stated criteria.
//!
//! - **elastic**: throughput follows load. Closed loop: up to the knee, where the line of the low loads meets that of
//!   the high loads; a knee exists where doubling the connections raises throughput by less than
//!   [`Criteria::elastic_gain_ratio`]. Open loop: no CPU of the server is saturated.
//! - **plastic**: throughput no longer follows load (closed loop) or a CPU of the server is saturated (open loop). At
//!   first the cost of a request stays the same; beyond the efficiency point it is higher by more than
//!   [`Criteria::efficiency_loss_ratio`].
//! - **failure**: more than half of the trials crossed a criterion of failure (errors, goodput, p99 limit).
//!
//! The **yield point** is where elastic ends, the **failure point** where failure begins. Loads are compared only
//! within a repeat, because the machine's speed drifts between repeats; `docs/zones.md` explains the intervals.

mod capacity;
pub mod doubts;
pub mod failure;
mod find;
mod levels;
mod plan;
pub mod polling;
pub mod unloading;
mod words;

pub(crate) use crate::point::client_limited;
pub use crate::point::{cpu_figure, cpu_us, good_per_sec, softirq_beside_us};
pub(crate) use failure::{LevelTrial, TrialResult, judged, recovery, stall_ns, unserved};
pub use failure::{REQUESTS, STALLS, crossed, fails};
pub(crate) use find::of_sweep;
pub use find::{find, of_run};
pub(crate) use levels::level;
pub use levels::{counted_at, reduced};
pub use record::units::percent;
pub(crate) use words::load_number;
pub use words::{estimate_number, estimate_words, interval, load_words};

use record::{Criteria, Doubt, Sweep};
use serde::Serialize;

record::worded! {
    /// The zone of a load level.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Zone {
        /// Throughput follows load.
        Elastic = "elastic",
        /// Saturated: throughput no longer follows.
        Plastic = "plastic",
        /// Work is refused, dropped or late.
        Failure = "failure",
        /// The trials at this load disagree with each other, or with those at other loads.
        Inconsistent = "inconsistent",
        /// Unknown: the client was the limit, or too little was measured.
        Unknown = "unknown",
    }
}

/// The place of a point among the measured loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PointPlace {
    /// Within the measured loads, with an estimate.
    Within,
    /// At or below the lowest load: the criterion was crossed from the start.
    Below,
    /// Above the highest load: the criterion was never crossed.
    Beyond,
    /// The place is unknown, for the given reason.
    Unknown,
}

/// A yield, efficiency or failure point, or the reason why none was found.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PointFinding {
    /// Whether the point lies within, below or above the measured loads.
    pub place: PointPlace,
    /// Load (connections, or requests per second); absent if there is no point.
    pub estimate: Option<f64>,
    /// Lower end of the interval. Without an estimate: the point is not below this load.
    pub low: Option<f64>,
    /// Upper end of the interval; absent if the measurements do not bound it.
    pub high: Option<f64>,
    /// Highest load that held; failure point only. The interval is wider if trials disagreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// Lowest load that failed; failure point only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<f64>,
    /// Confidence of the interval as a share.
    pub confidence: f64,
    /// Repeats that the interval is based on. With fewer than two it shows only the spacing of the loads.
    pub n_repeats: u64,
    /// The crossed criterion with its values, or the reason why there is no point.
    pub reason: String,
}

impl PointFinding {
    /// The interval's width as a share of the estimate; `None` without an estimate or with an open end.
    pub fn width_ratio(&self) -> Option<f64> {
        Some((self.high? - self.low?) / self.estimate?)
    }

    pub(crate) fn none(criteria: &Criteria, n_repeats: usize, reason: impl Into<String>) -> Self {
        PointFinding {
            place: PointPlace::Unknown,
            estimate: None,
            low: None,
            high: None,
            held: None,
            failed: None,
            confidence: criteria.confidence_ratio,
            n_repeats: n_repeats as u64,
            reason: reason.into(),
        }
    }
}

/// A number over the points of a level: median, smallest and largest value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Spread {
    /// Median over the points.
    pub median: f64,
    /// Smallest value of a point.
    pub min: f64,
    /// Largest value of a point.
    pub max: f64,
    /// Number of points.
    pub n: u64,
}

/// All points of one sweep at one load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Level {
    /// Connections (closed loop) or offered requests per second (open loop).
    pub load: f64,
    /// Zone of this load: elastic, plastic or failure.
    pub zone: Zone,
    /// Measured points, including the short ones of the first pass.
    pub points: u64,
    /// Points used for the medians: those of full length, and only undisturbed ones if at least half are.
    pub counted: u64,
    /// Points that other work on the machine disturbed.
    pub disturbed: u64,
    /// Points that crossed a criterion of failure.
    pub failing: u64,
    /// Criteria that the point with the longest window crossed.
    pub crossed: Vec<String>,
    /// Requests sent per second in an open loop, if fewer than planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_per_sec: Option<Spread>,
    /// Good answers (2xx, 3xx, no error replies) per second.
    pub throughput_per_sec: Option<Spread>,
    /// Median response time, microseconds.
    pub response_p50_us: Option<Spread>,
    /// 99th percentile of the response time, microseconds.
    pub response_p99_us: Option<Spread>,
    /// Whether both percentiles are lower bounds in most of the used points, because requests without a response take
    /// longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub response_p50_at_least: bool,
    /// Whether the 99th percentile is a lower bound in most of the used points.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub response_p99_at_least: bool,
    /// Median reap delay, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reap_p50_us: Option<Spread>,
    /// 99th percentile of the reap delay, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reap_p99_us: Option<Spread>,
    /// Client's share of the 99th percentile of the response time: the amount by which it falls without the reap
    /// delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reap_of_p99_ratio: Option<Spread>,
    /// CPU time of the server per request, microseconds: user, system and softirq as far as measured.
    pub cpu_us_per_request: Option<Spread>,
    /// User part of the server's CPU time per request, microseconds.
    pub cpu_user_us_per_request: Option<Spread>,
    /// System part of the server's CPU time per request, microseconds.
    pub cpu_system_us_per_request: Option<Spread>,
    /// Softirq time of the server's CPUs per request outside the system part; the three parts add up to the whole.
    pub softirq_us_per_request: Option<Spread>,
    /// Busy share of the CPUs that the server may use.
    pub cpus_busy_ratio: Option<Spread>,
    /// CPU use of the server's busiest thread, in CPUs.
    pub busiest_thread_cpus: Option<Spread>,
    /// Used share of the server's CPU time limit; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota_used_ratio: Option<Spread>,
    /// Whether the client, not the server, was saturated in most of the points.
    pub client_limited: bool,
    /// Whether other work took much of the busy time of the server's CPUs in most of the points.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub crowded: bool,
}

/// The full resource of the server at a load, with its used share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FullResource {
    /// The server's CPU time limit.
    Quota(f64),
    /// The server's CPUs.
    Cpus(f64),
    /// The CPU of the busiest thread.
    Thread(f64),
    /// The server's CPUs, of which other work uses much.
    CrowdedCpus(f64),
}

impl Level {
    /// The resource of which at least `limit` is used.
    pub fn full(&self, limit: f64) -> Option<FullResource> {
        let share = |spread: Option<Spread>| spread.map(|spread| spread.median).filter(|share| *share >= limit);
        let cpus = share(self.cpus_busy_ratio);
        share(self.cpu_quota_used_ratio)
            .map(FullResource::Quota)
            .or(cpus.filter(|_| !self.crowded).map(FullResource::Cpus))
            .or(share(self.busiest_thread_cpus).map(FullResource::Thread))
            .or(cpus.map(FullResource::CrowdedCpus))
    }
}

/// The highest throughput of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Peak {
    /// Load with the highest throughput: connections, or requests per second.
    pub load: f64,
    /// Good answers per second, median over repeats: the highest of the levels.
    pub per_sec: f64,
    /// Lower end of the interval over repeats; absent with fewer than two.
    pub low: Option<f64>,
    /// Upper end of the interval over repeats; absent with fewer than two.
    pub high: Option<f64>,
    /// Good answers per second at the highest load as a share of those at this load: median over the repeats with
    /// both, absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_ratio: Option<f64>,
}

/// A smaller growth of a request's CPU time is within the machine's drift.
const LEAST_GROWTH: f64 = 1.02;

/// The lowest CPU time per request, and the highest at a higher load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CpuGrowth {
    /// Load at which a request cost least.
    pub lowest_load: f64,
    /// CPU time per request at that load, microseconds.
    pub lowest_us: f64,
    /// Load, above `lowest_load`, at which a request cost most.
    pub highest_load: f64,
    /// CPU time per request at that load, microseconds.
    pub highest_us: f64,
    /// Ratio of the highest to the lowest cost: the median over repeats with both loads, which excludes the drift
    /// between repeats.
    pub ratio: f64,
    /// Part that grew most between the two loads: `user`, `system` or `softirq`.
    pub grew_most: Option<String>,
}

impl CpuGrowth {
    /// Whether a request costs more at a higher load, by more than the machine's drift explains.
    pub fn is_growth(&self) -> bool {
        self.highest_load > self.lowest_load && self.ratio >= LEAST_GROWTH
    }
}

/// Findings of one sweep.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct SweepFindings {
    /// Closed loop over connections, or open loop over rate.
    pub sweep: Sweep,
    /// Findings at each load, ascending.
    pub levels: Vec<Level>,
    /// Load at which the elastic zone ends.
    pub yield_point: PointFinding,
    /// Load at which the cost of a request exceeds the lowest cost by the criterion.
    pub efficiency_point: PointFinding,
    /// Load at which the failure zone begins.
    pub failure_point: PointFinding,
    /// Highest rate answered in an open loop, whatever is offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<PointFinding>,
    /// Highest throughput; absent if no request was completed.
    pub peak: Option<Peak>,
    /// Growth of the CPU time per request; absent if the server's CPU was not measured, or if no repeat has both
    /// loads.
    pub cpu: Option<CpuGrowth>,
    /// Repeats of the sweep, including the first pass.
    pub repeats: u64,
    /// Reasons not to trust this sweep's findings.
    pub doubts: Vec<Doubt>,
}

impl Drift {
    /// Whether the server's speed at the same load varied while that of arithmetic did not: the server, memory, disks
    /// or other work changed, not the CPU.
    pub fn is_of_server(&self) -> bool {
        self.load_cv_ratio.zip(self.cpu_cv_ratio).is_some_and(|(load, cpu)| load >= 0.1 && load >= 3.0 * cpu)
    }
}

impl SweepFindings {
    /// The level at a load.
    pub fn level(&self, load: f64) -> Option<&Level> {
        self.levels.iter().find(|level| level.load == load)
    }

    /// The level that shows the cause of the yield point: the first one clearly above it (at twice the load), else
    /// the first one above it.
    pub fn beyond_yield(&self) -> Option<&Level> {
        first_beyond(&self.levels, self.yield_point.estimate?)
    }
}

fn first_beyond(levels: &[Level], estimate: f64) -> Option<&Level> {
    let first = |above: f64| levels.iter().find(|level| level.load > above);
    // Slightly less than a doubling, because the measured loads double, too.
    first(estimate * 1.9).or_else(|| first(estimate))
}

/// The drift of the machine's speed between repeats, by the yardstick.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Drift {
    /// Coefficient of variation of the yardstick's arithmetic, per second of CPU time.
    pub cpu_cv_ratio: Option<f64>,
    /// Coefficient of variation of the reference load's throughput.
    pub load_cv_ratio: Option<f64>,
    /// Number of yardsticks.
    pub n: u64,
}

/// All findings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Findings {
    /// Criteria of the findings.
    pub criteria: Criteria,
    /// Closed loop over connections.
    pub connections: Option<SweepFindings>,
    /// Open loop over rate.
    pub rate: Option<SweepFindings>,
    /// The way down compared with the way up; absent without `--unload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unloading: Option<crate::zones::unloading::Unloading>,
    /// The findings of each axis.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub axes: Vec<crate::axis::AxisFindings>,
    /// The machine's drift; absent without yardsticks.
    pub drift: Option<Drift>,
}

impl Findings {
    /// The sweeps that were measured, closed loop first.
    pub fn sweeps(&self) -> impl Iterator<Item = &SweepFindings> {
        self.connections.iter().chain(self.rate.iter())
    }

    /// The open loop if it was measured, because its numbers are for planning; else the closed loop.
    pub fn main(&self) -> Option<&SweepFindings> {
        self.rate.as_ref().or(self.connections.as_ref())
    }
}
