//! The demand law, D = U / X, for each resource, and straight lines of idle, user and kernel CPU over the rate. Banga
//! and Mogul (1998) extrapolate idle CPU to zero, and warn that the cost of a request may change on the way.

use super::readings::{levels, typicals};
use record::Estimate;
use serde::Serialize;
use statistics::regression::{FittedLine, line};
use statistics::server::ModelPoint;
use statistics::{mean_estimate, median};

type CpuPart<'a> = (&'static str, &'a dyn Fn(&ModelPoint) -> Option<f64>);

/// Service demand of one resource at one load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Demand {
    /// `cpu`, `user` or `kernel`.
    pub resource: &'static str,
    /// Connections or offered requests per second.
    pub load: f64,
    /// Busy time per request, microseconds: mean over the points, with an interval by Student's t.
    pub demand_us: Estimate,
}

/// Demands of each resource at each load of one sweep.
pub fn demands(readings: &[ModelPoint], confidence: f64) -> Vec<Demand> {
    let resources: [CpuPart<'_>; 3] = [
        ("cpu", &|r| Some(r.demand_s)),
        ("user", &|r| Some(r.user_cpus? / r.throughput_per_sec)),
        ("kernel", &|r| Some(r.kernel_cpus? / r.throughput_per_sec)),
    ];
    let mut found = Vec::new();
    for (resource, value) in resources {
        for level in levels(readings) {
            let values: Vec<f64> =
                level.iter().filter_map(value).map(|seconds| seconds * 1e6).filter(|us| us.is_finite()).collect();
            let Some(demand_us) = mean_estimate(&values, confidence) else { continue };
            found.push(Demand { resource, load: level[0].load, demand_us });
        }
    }
    found
}

/// A CPU share as a function of the rate of completed requests.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Regression {
    /// Part of the CPU time: `idle`, `user` or `kernel`.
    pub part: &'static str,
    /// The line: CPUs over requests per second.
    pub line: FittedLine,
}

/// Fits lines to the points below saturation; none with fewer than three loads.
pub fn regressions(readings: &[ModelPoint], cpus: f64, saturation: f64, confidence: f64) -> Vec<Regression> {
    let elastic: Vec<ModelPoint> =
        readings.iter().copied().filter(|r| !r.failed && r.busy_cpus < saturation * cpus).collect();
    if levels(&elastic).len() < 3 {
        return Vec::new();
    }
    let parts: [CpuPart<'_>; 3] =
        [("idle", &|r| Some(cpus - r.busy_cpus)), ("user", &|r| r.user_cpus), ("kernel", &|r| r.kernel_cpus)];
    parts
        .into_iter()
        .filter_map(|(part, value)| {
            let points: Vec<(f64, f64)> =
                elastic.iter().filter_map(|r| Some((r.throughput_per_sec, value(r)?))).collect();
            Some(Regression { part, line: line(&points, confidence)? })
        })
        .collect()
}

/// Shape of the response time's distribution, below or at saturation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Shape {
    /// Mean response time over [`ModelPoint::cycle_s`].
    pub mean: f64,
    /// p50 over the mean.
    pub p50: f64,
    /// p99 over the mean.
    pub p99: f64,
}

/// The shape at the measured levels on the given side of saturation; of all levels if that side has none.
pub fn shape(readings: &[ModelPoint], is_saturated: impl Fn(&ModelPoint) -> bool, wanted: bool) -> Option<Shape> {
    let all = typicals(readings);
    let same: Vec<&ModelPoint> = all.iter().filter(|reading| is_saturated(reading) == wanted).collect();
    let chosen = if same.is_empty() { all.iter().collect() } else { same };
    let ratio = |of: fn(&ModelPoint) -> Option<f64>| median(chosen.iter().filter_map(|reading| of(reading)));
    Some(Shape {
        mean: ratio(|r| Some(r.mean_s? / r.cycle_s()))?,
        p50: ratio(|r| Some(r.p50_s? / r.mean_s?))?,
        p99: ratio(|r| Some(r.p99_s? / r.mean_s?))?,
    })
}
