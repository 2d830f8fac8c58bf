//! The measured effect of slowing down one place of the server, and the estimated effect of speeding it up.
//!
//! The BPF programs that add the delay also measure it. Each delay is compared with the baseline of its repeat
//! ([`crate::within`]). A slope is that of the least-squares line through the origin, with a bootstrap interval over
//! repeats, widened by Student's factor.

use super::{SEED, estimate};
use crate::disturbance::counted;
use crate::point::{client_limited, cpu_us, most};
use crate::within;
use record::{Criteria, Estimate, Pace, Point, names};
use serde::Serialize;
use statistics::{bootstrap, median, student};
use std::collections::BTreeMap;

/// The forecast makes a place cheaper by this share of a request's CPU time.
pub const CHEAPER_RATIO: f64 = 0.2;
/// Smallest relevant curvature, as a share of the whole effect at the longest delay.
const CURVED: f64 = 0.25;
const LEAST_GAIN: f64 = 0.02;
/// A smaller added share of a request's CPU time cannot be measured.
const LEAST_ADDED_RATIO: f64 = 0.02;

/// Effect of slowing down one place. Slopes are in microseconds per microsecond of CPU time added to a request.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Effect {
    /// Number of times that a request reaches the place.
    pub reached_per_request: Option<Estimate>,
    /// Largest CPU time that was added to a request, microseconds.
    pub most_added_us: f64,
    /// CPU time of a request without added time, microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Slope of the server's time for a request, 1 / throughput: 1 if all of the place's cost limits the server, 0 if
    /// none does. Closed loop only: the throughput of an open loop is that of its clients.
    pub time: Option<Estimate>,
    /// Slope of the 99th percentile of the response time.
    pub p99: Option<Estimate>,
    /// Slope of the CPU time of a request: 1 if it contains all of the added time.
    pub cpu: Option<Estimate>,
    /// Whether the time grows linearly with the added time; absent if too little was measured.
    pub is_linear: Option<bool>,
    /// Whether the client was saturated, and the server not, in most points without a slow-down.
    pub is_client_limited: bool,
    /// Throughput if a request cost [`CHEAPER_RATIO`] of its CPU time less at this place, as a multiple of the
    /// measured one; extrapolated along the line. A place cannot save more than it costs.
    pub gain_ratio: Option<Estimate>,
}

impl Effect {
    /// Whether the forecast is significant and large enough to matter.
    pub fn is_shown(&self) -> bool {
        let Some(gain) = self.gain_ratio else { return false };
        let is_no_chance = gain.low.zip(gain.high).is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        is_no_chance && (gain.value - 1.0).abs() >= LEAST_GAIN
    }
}

/// The effect of a delay in one repeat.
#[derive(Clone)]
struct WeightedEffect {
    added_us: f64,
    /// Difference to the baseline of the same repeat.
    change: f64,
    weight: f64,
}

pub(super) fn reached(slowed: &[&Point], criteria: &Criteria) -> Option<Estimate> {
    let reached = slowed.iter().filter_map(|point| point.value(names::SLOW_REACHED));
    estimate(reached, criteria)
}

/// The effect of a place, from its points and those without a slow-down. `None` if too little was added.
pub(super) fn find(slowed: &[&Point], plain: &[&Point], criteria: &Criteria) -> Option<Effect> {
    // Single points, measured to find the delays, have no baseline.
    let slowed: Vec<&Point> = slowed.iter().copied().filter(|point| point.repeat > 0).collect();
    let slowed = slowed.as_slice();
    let added = |point: &Point| point.value(names::SLOW_ADDED);
    let most_added_us = slowed.iter().filter_map(|point| added(point)).fold(0.0, f64::max);
    let time_us = |point: &Point| {
        let is_closed = matches!(point.pace, Pace::Closed);
        point.value(names::THROUGHPUT).filter(|rate| is_closed && *rate > 0.0).map(|rate| 1e6 / rate)
    };
    let of_time = repeats(slowed, plain, &time_us);
    let costs = counted(plain).into_iter().filter_map(cpu_us);
    let times = counted(plain).into_iter().filter_map(time_us);
    let time = slope(&of_time, criteria);
    let is_client_limited = most(plain, |point| client_limited(point, criteria));
    let (cost_us, time_now_us) = (median(costs), median(times));
    if most_added_us <= LEAST_ADDED_RATIO * cost_us.unwrap_or(0.0) {
        return None;
    }
    let gain = |per_us: f64| {
        let (now_us, saved_us) = (time_now_us?, CHEAPER_RATIO * cost_us?);
        let then_us = now_us - per_us * saved_us;
        (then_us > 0.0).then(|| now_us / then_us)
    };
    Some(Effect {
        reached_per_request: reached(slowed, criteria),
        most_added_us,
        cpu_us_per_request: cost_us,
        time,
        p99: slope(&repeats(slowed, plain, &|point| point.value(names::RESPONSE_P99)), criteria),
        cpu: slope(&repeats(slowed, plain, &cpu_us), criteria),
        is_linear: is_linear(&of_time, most_added_us, criteria),
        is_client_limited,
        gain_ratio: time.filter(|_| !is_client_limited).and_then(|time| {
            let (low, high) = (time.low.and_then(gain), time.high.and_then(gain));
            Some(Estimate { value: gain(time.value)?, low, high: low.and(high), ..time })
        }),
    })
}

/// The pairs of each repeat: each delay with the baseline.
fn repeats(slowed: &[&Point], plain: &[&Point], read: &dyn Fn(&Point) -> Option<f64>) -> Vec<Vec<WeightedEffect>> {
    let delay = |point: &Point| point.axis.map_or(0, |place| place.value.to_bits());
    let mut by_delay: BTreeMap<u64, Vec<&Point>> = BTreeMap::new();
    for point in slowed {
        by_delay.entry(delay(point)).or_default().push(point);
    }
    let plain = within::visits(plain, read);
    let mut repeats: BTreeMap<u32, Vec<WeightedEffect>> = BTreeMap::new();
    for points in by_delay.values() {
        let added = within::visits(points, |point| point.value(names::SLOW_ADDED));
        let slowed = within::visits(points, |point| read(point).filter(|_| point.value(names::SLOW_ADDED).is_some()));
        for pair in within::paired(&plain, &slowed).pairs {
            let found = added.get(&pair.repeat).map(|added| WeightedEffect {
                added_us: added.value,
                change: pair.after - pair.before,
                weight: pair.weight,
            });
            repeats.entry(pair.repeat).or_default().extend(found);
        }
    }
    repeats.into_values().filter(|pairs| !pairs.is_empty()).collect()
}

/// Least-squares slope through the origin.
fn line(repeats: &[Vec<WeightedEffect>]) -> Option<f64> {
    let pairs = || repeats.iter().flatten();
    let squares: f64 = pairs().map(|pair| pair.weight * pair.added_us.powi(2)).sum();
    (squares > 0.0).then(|| pairs().map(|pair| pair.weight * pair.added_us * pair.change).sum::<f64>() / squares)
}

/// The quadratic term of y = a x + b x^2 at x = `most`.
fn bend(repeats: &[Vec<WeightedEffect>], most: f64) -> Option<f64> {
    let sum = |power: i32, of: fn(&WeightedEffect) -> f64| -> f64 {
        repeats.iter().flatten().map(|pair| pair.weight * (pair.added_us / most).powi(power) * of(pair)).sum()
    };
    let (x2, x3, x4) = (sum(2, |_| 1.0), sum(3, |_| 1.0), sum(4, |_| 1.0));
    let (xy, x2y) = (sum(1, |pair| pair.change), sum(2, |pair| pair.change));
    let determinant = x2 * x4 - x3 * x3;
    // This needs two different delays.
    (determinant > 1e-9 * x2 * x4).then(|| (x2 * x2y - x3 * xy) / determinant)
}

/// The bootstrap interval, widened by the ratio of Student's quantile to the normal one, because it is too narrow
/// with few repeats.
fn interval(
    repeats: &[Vec<WeightedEffect>],
    criteria: &Criteria,
    of: impl Fn(&[Vec<WeightedEffect>]) -> Option<f64>,
) -> Option<(f64, f64)> {
    let confidence = criteria.confidence_ratio;
    let ((low, high), middle) = (bootstrap(repeats, confidence, SEED, &of)?, of(repeats)?);
    let n = repeats.len() as f64;
    let wider = (n / (n - 1.0)).sqrt() * student(confidence, n - 1.0)? / student(confidence, 1e6)?;
    let end = |end: f64| middle + wider * (end - middle);
    Some((end(low), end(high)))
}

fn slope(repeats: &[Vec<WeightedEffect>], criteria: &Criteria) -> Option<Estimate> {
    let found = interval(repeats, criteria, line);
    Some(Estimate::new(line(repeats)?, found, criteria.confidence_ratio, repeats.len()))
}

fn is_linear(repeats: &[Vec<WeightedEffect>], most: f64, criteria: &Criteria) -> Option<bool> {
    if repeats.len() < 3 {
        return None;
    }
    let (low, high) = interval(repeats, criteria, |repeats| bend(repeats, most))?;
    let (bent, whole) = (bend(repeats, most)?, line(repeats)? * most);
    let is_none = low <= 0.0 && high >= 0.0;
    Some(is_none || bent.abs() < CURVED * whole.abs())
}
