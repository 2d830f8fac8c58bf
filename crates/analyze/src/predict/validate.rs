//! Tests models that were fitted up to half the yield point on the higher loads, in a run with both sweeps.
//!
//! Closed loop: the model that [`super::check::extrapolate`] chose. Open loop: its demand, the rest of the response
//! time from the points up to half the yield rate, and the wait by Pollaczek and Khinchine. Limits of the errors: 10
//! % for a throughput or rate, 20 % for a median response time or a number of connections.

use super::check::Extrapolation;
use super::demand::shape;
use super::readings::{Readings, levels, typicals};
use crate::zones::Findings;
use serde::Serialize;
use statistics::median;
use statistics::server::{ModelPoint, Server, first};

/// Largest error of a throughput or a rate, as a share.
pub const RATE_ERROR: f64 = 0.10;
/// Largest error of a response time or of a number of connections, as a share.
pub const TIME_ERROR: f64 = 0.20;
/// Larger differences of demands, or between points of one load, are reported.
const NOTABLE: f64 = 0.10;

/// One predicted number and the measured one.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CheckedNumber {
    /// Name of the number: `throughput`, `p50`, `p99`, `peak throughput`, `yield point`, `failure point`, `plan for`,
    /// `breaks at`.
    pub name: &'static str,
    /// Kind of loop: `closed` or `open`.
    pub sweep: &'static str,
    /// Unit of the number: `1/s`, `s`, `connections`.
    pub unit: &'static str,
    /// Connections or offered rate, if the number belongs to one load.
    pub load: Option<f64>,
    /// Measured value: medians over the points of a load, or the finding.
    pub measured: f64,
    /// The predicted value; absent if the model has no such point.
    pub predicted: Option<f64>,
    /// Relative error, predicted / measured - 1.
    pub error_ratio: Option<f64>,
    /// Largest acceptable error.
    pub limit_ratio: f64,
}

impl CheckedNumber {
    /// Whether the error is within its limit.
    pub fn passes(&self) -> bool {
        self.error_ratio.is_some_and(|error| error.abs() <= self.limit_ratio)
    }
}

/// The result of the test.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Validation {
    /// Number of loads of the closed loop that were fitted, and the highest of them.
    pub fitted: (usize, f64),
    /// Every predicted number with its measured value.
    pub numbers: Vec<CheckedNumber>,
    /// Reasons for errors, as far as the points show them; never empty if an error is above its limit.
    pub doubts: Vec<String>,
}

/// Tests the fit of `extrapolation` on the higher points and findings. `None` if nothing could be fitted, or no load
/// is higher.
pub fn validate(readings: &Readings, extrapolation: &Extrapolation, findings: &Findings) -> Option<Validation> {
    // Without a higher load there is nothing to test.
    let server = extrapolation.server.filter(|_| !extrapolation.beyond.is_empty())?;
    let mut numbers = closed(readings, extrapolation, &server, findings);
    numbers.extend(open(readings, &server, findings));
    let doubts = doubts(readings, extrapolation, &server, &numbers);
    Some(Validation { fitted: (extrapolation.levels, extrapolation.up_to_load), numbers, doubts })
}

pub(super) fn checked(
    (name, sweep): (&'static str, &'static str),
    load: Option<f64>,
    measured: f64,
    predicted: Option<f64>,
) -> CheckedNumber {
    let (unit, limit_ratio) = match name {
        "p50" | "p99" => ("s", TIME_ERROR),
        "yield point" | "failure point" => ("connections", TIME_ERROR),
        _ => ("1/s", RATE_ERROR),
    };
    let predicted = predicted.filter(|value| value.is_finite());
    let error_ratio = predicted.map(|value| value / measured - 1.0).filter(|error| error.is_finite());
    CheckedNumber { name, sweep, unit, load, measured, predicted, error_ratio, limit_ratio }
}

/// Median response time of the closed loop: the mean by Little's law with the shape of the low loads below
/// saturation, and the mean itself above it.
fn closed_p50(server: &Server, low: Option<f64>, saturation: f64, connections: f64, cold: f64) -> Option<f64> {
    let (state, cycle_s) = server.cycle(connections, cold);
    Some(cycle_s * if state.utilisation < saturation { low? } else { 1.0 })
}

fn closed(
    readings: &Readings,
    extrapolation: &Extrapolation,
    server: &Server,
    findings: &Findings,
) -> Vec<CheckedNumber> {
    let criteria = &readings.criteria;
    let all = typicals(&readings.closed);
    let is_low = |level: &&ModelPoint| level.load <= extrapolation.up_to_load;
    let low: Vec<ModelPoint> = all.iter().filter(is_low).copied().collect();
    let shape = shape(&low, |_| false, false);
    let low_p50 = shape.map(|shape| shape.mean * shape.p50);
    let p50 = |n: f64, cold: f64| closed_p50(server, low_p50, criteria.saturation_ratio, n, cold);
    let mut numbers = Vec::new();
    for level in all.iter().filter(|level| level.load > extrapolation.up_to_load) {
        let rate = server.closed(level.load, level.cold).throughput_per_sec;
        numbers.push(checked(("throughput", "closed"), Some(level.load), level.throughput_per_sec, Some(rate)));
        if let Some(measured) = level.p50_s {
            numbers.push(checked(("p50", "closed"), Some(level.load), measured, p50(level.load, level.cold)));
        }
    }
    let Some(sweep) = &findings.connections else { return numbers };
    if let Some(peak) = &sweep.peak {
        let rates = all.iter().map(|level| server.closed(level.load, level.cold).throughput_per_sec);
        numbers.push(checked(("peak throughput", "closed"), None, peak.per_sec, rates.reduce(f64::max)));
    }
    if let Some(measured) = sweep.yield_point.estimate {
        let predicted = server.yield_connections(criteria.elastic_gain_ratio, 0.0);
        numbers.push(checked(("yield point", "closed"), None, measured, predicted));
    }
    if let Some(measured) = sweep.failure_point.estimate {
        let limit_s = criteria.p99_limit_ns as f64 * 1e-9;
        let tail = shape.map_or(1.0, |shape| shape.p99 / shape.p50).max(1.0);
        let predicted = first(1.0, 1e6, |n| p50(n, 0.0).is_some_and(|p50| p50 * tail > limit_s));
        numbers.push(checked(("failure point", "closed"), None, measured, predicted));
    }
    numbers
}

fn open(readings: &Readings, server: &Server, findings: &Findings) -> Vec<CheckedNumber> {
    let Some(sweep) = &findings.rate else { return Vec::new() };
    let criteria = &readings.criteria;
    let all = typicals(&readings.open);
    let cold = all.first().map_or(0.0, |level| level.cold);
    // Levels with different numbers of cold connections have no common knee.
    let is_of_one = all.iter().all(|level| level.cold == cold);
    let capacity = server.capacity_per_sec(cold);
    let mut numbers = Vec::new();
    if let Some(measured) = sweep.yield_point.estimate.filter(|_| is_of_one) {
        numbers.push(checked(("plan for", "open"), None, measured, Some(criteria.saturation_ratio * capacity)));
    }
    if let Some(measured) = sweep.failure_point.estimate.filter(|_| is_of_one) {
        numbers.push(checked(("breaks at", "open"), None, measured, Some(capacity / criteria.goodput_ratio)));
    }
    let yields = sweep.yield_point.estimate.unwrap_or(criteria.saturation_ratio * capacity);
    let fails = sweep.failure_point.estimate.unwrap_or(f64::INFINITY);
    let beside: Vec<f64> = all
        .iter()
        .filter(|level| level.load <= yields / 2.0)
        .filter_map(|level| Some(level.p50_s? - server.open_queue(level.load, level.cold)?.wait_quantile_s(0.5)))
        .collect();
    let Some(beside) = median(&beside).filter(|beside| *beside > 0.0) else { return numbers };
    // Close to the capacity, a window is too short for a steady queue.
    let is_steady =
        |level: &&ModelPoint| level.load > yields / 2.0 && level.load < 0.9 * fails.min(capacity) && !level.failed;
    for level in all.iter().filter(is_steady) {
        let (Some(measured), Some(queue)) = (level.p50_s, server.open_queue(level.load, level.cold)) else { continue };
        let predicted = Some(beside + queue.wait_quantile_s(0.5));
        numbers.push(checked(("p50", "open"), Some(level.load), measured, predicted));
    }
    numbers
}

/// Reasons for errors beyond the limits that the points themselves show.
fn doubts(
    readings: &Readings,
    extrapolation: &Extrapolation,
    server: &Server,
    numbers: &[CheckedNumber],
) -> Vec<String> {
    let off: Vec<&CheckedNumber> = numbers.iter().filter(|number| !number.passes()).collect();
    if off.is_empty() {
        return Vec::new();
    }
    let mut doubts = Vec::new();
    let beyond: Vec<ModelPoint> =
        typicals(&readings.closed).into_iter().filter(|level| level.load > extrapolation.up_to_load).collect();
    let demand_error = |level: &ModelPoint| level.demand_s / server.closed(level.load, level.cold).demand_s - 1.0;
    let worst = beyond.iter().max_by(|a, b| demand_error(a).abs().total_cmp(&demand_error(b).abs()));
    if let Some(level) = worst.filter(|level| demand_error(level).abs() > NOTABLE) {
        doubts.push(format!(
            "a request at {} connections took {:.1} us of CPU, {:+.0} % compared with the fit: the low loads do not \
             show a cost that changes above them",
            record::units::grouped(level.load),
            level.demand_s * 1e6,
            demand_error(level) * 100.0
        ));
    }
    if off.iter().any(|number| number.unit != "s" || number.sweep == "closed") {
        doubts.extend(unknown_cost(extrapolation));
        doubts.extend(workers(readings, extrapolation));
    }
    let scatter = |level: &Vec<ModelPoint>| {
        let rates: Vec<f64> = level.iter().map(|reading| reading.throughput_per_sec).collect();
        let (low, high) = statistics::range(&rates)?;
        Some((level[0].load, high / low - 1.0, rates.len()))
    };
    let scattered = levels(&readings.closed).iter().filter_map(scatter).max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((load, spread, n)) = scattered.filter(|(_, spread, _)| *spread > NOTABLE) {
        doubts.push(format!(
            "points of one load differ by up to {:.0} % (at {} connections, n = {n})",
            spread * 100.0,
            record::units::grouped(load)
        ));
    }
    if readings.others_cpus >= NOTABLE {
        doubts.push(format!("other work used {:.2} CPUs of the machine meanwhile", readings.others_cpus));
    }
    if off.iter().any(|number| number.sweep == "open" && number.unit == "s") {
        doubts.push(
            "medians of the open loop depend on scheduling and wake-ups of both machines more than on queueing; the \
             model does not include their variance"
                .into(),
        );
    }
    if doubts.is_empty() {
        doubts.push(format!(
            "{} of {} numbers exceed their error limit, and neither cost, scatter nor other work explains it: measure \
             more loads below half the yield point",
            off.len(),
            numbers.len()
        ));
    }
    doubts
}

/// Models that fit the low loads equally well but diverge above them.
fn unknown_cost(extrapolation: &Extrapolation) -> Option<String> {
    let (low, high) = extrapolation.demand_range_s.filter(|(low, high)| *high > (1.0 + NOTABLE) * low)?;
    let busy = extrapolation.most_busy_ratio?;
    let points = extrapolation.yield_range.map_or_else(String::new, |(low, high)| {
        format!(
            ", and a yield point of {} to {} connections",
            record::units::grouped(low),
            record::units::grouped(high)
        )
    });
    Some(format!(
        "at the fitted loads the CPU was at most {:.0} % busy; models that fit equally well predict {:.1} to {:.1} us \
         per request on a full CPU{points}: measure a load closer to the yield point to decide",
        busy * 100.0,
        low * 1e6,
        high * 1e6
    ))
}

/// Detects a server with all threads in use: its rate stops following the connections while its CPUs are idle. The
/// rate of an event-driven server follows until its CPUs are full.
pub fn workers(readings: &Readings, extrapolation: &Extrapolation) -> Option<String> {
    /// Numbers of threads within this tolerance are equal.
    const SAME: f64 = 0.02;
    let levels = typicals(&readings.closed);
    let most = levels.iter().filter_map(|level| level.threads).fold(0.0, f64::max);
    let has_most = |level: &&ModelPoint| level.threads.is_some_and(|threads| threads >= (1.0 - SAME) * most);
    let first = levels.iter().find(has_most)?;
    let full: Vec<&ModelPoint> = levels.iter().filter(|level| level.load >= first.load).filter(has_most).collect();
    let limit = readings.criteria.saturation_ratio * readings.parallel_cpus;
    // There is at least one connection per thread, and from here on more connections had no effect.
    let reached = full.iter().find(|level| level.load >= most)?;
    let last = full.iter().rev().find(|level| level.busy_cpus < limit)?;
    let follows = last.throughput_per_sec > (1.0 + NOTABLE) * reached.throughput_per_sec;
    if most < 2.0 || last.load < 2.0 * reached.load || follows {
        return None;
    }
    let low = levels.iter().filter(|level| level.load <= extrapolation.up_to_load).filter_map(|level| level.threads);
    let low = low.fold(0.0, f64::max);
    let grown = if low < (1.0 - SAME) * most {
        format!("{} at the fitted loads, ", record::units::grouped(low))
    } else {
        String::new()
    };
    Some(format!(
        "the server has {} threads ({grown}constant from {} to {} connections), and throughput no longer grows while \
         its CPUs are {:.0} % busy: if each connection holds a thread, further ones wait (Apache: MaxRequestWorkers); \
         no model includes such a limit",
        record::units::grouped(most),
        record::units::grouped(first.load),
        record::units::grouped(last.load),
        last.busy_cpus / readings.parallel_cpus * 100.0
    ))
}
