//! Findings along an axis: throughput, response time and CPU per request against one quantity while all others are
//! held.
//!
//! Values are compared within a repeat, because the machine's speed drifts between repeats. A change between the ends
//! of the axis is the median of the repeats' ratios ([`crate::within`]), with a bootstrap interval over repeats.
//! Levels have medians over repeats with intervals of the same kind.

pub mod cpus;
pub mod layers;
pub mod slow_down;
mod words;

pub use words::{effect_words, headline, place_words, sentences, slowed_words, value_cell, value_words};

use crate::disturbance::counted;
use crate::point::{by_load, client_is_saturated, cpu_us, good_per_sec, softirq_beside_us};
use crate::within;
use record::{Axis, Criteria, Doubt, DoubtKind, Estimate, Point, SlowPlace, Sweep, names};
use serde::Serialize;
use statistics::{self, median};
use std::collections::{BTreeMap, BTreeSet};

/// Fixed, so that the same run always gives the same result.
const SEED: u64 = 0x4158;

/// All figures at one value of the axis.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AxisLevel {
    /// The nominal value, in the axis's unit.
    pub value: f64,
    /// Number of measured points.
    pub points: u64,
    /// Points in which the client was saturated.
    pub client_limited: u64,
    /// Complete responses per second.
    pub throughput_per_sec: Option<Estimate>,
    /// Complete responses with status 2xx or 3xx per second.
    pub goodput_per_sec: Option<Estimate>,
    /// Median response time, microseconds.
    pub response_p50_us: Option<Estimate>,
    /// 99th percentile of the response time, microseconds.
    pub response_p99_us: Option<Estimate>,
    /// 99th percentile of the reap delay, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reap_p99_us: Option<Estimate>,
    /// CPU time of the server per request, including the softirq time of its CPUs, microseconds.
    pub cpu_us_per_request: Option<Estimate>,
    /// User part of the server's CPU time per request, microseconds.
    pub cpu_user_us_per_request: Option<Estimate>,
    /// System part of the server's CPU time per request, microseconds.
    pub cpu_system_us_per_request: Option<Estimate>,
    /// Softirq part of the server's CPU time per request, microseconds.
    pub softirq_us_per_request: Option<Estimate>,
    /// Failed requests as a share of the finished requests.
    pub failed_ratio: Option<Estimate>,
    /// Conforming connections as a share of all.
    pub conforming_ratio: Option<Estimate>,
    /// Median bandwidth of a connection of fixed bandwidth, bits per second.
    pub connection_bits_per_sec: Option<Estimate>,
    /// Measured number of the varied objects (cold connections, TIME_WAIT sockets).
    pub present: Option<Estimate>,
    /// Kernel memory of the varied objects, bytes.
    pub kernel_bytes: Option<Estimate>,
}

/// How a figure changed from the axis's lowest value to its highest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct FigureChange {
    /// Median over repeats at the axis's lowest value.
    pub from: f64,
    /// Median over repeats at the axis's highest value.
    pub to: f64,
    /// Median over repeats of (highest / lowest) within the repeat.
    pub ratio: Estimate,
}

/// The largest value at which enough connections conformed.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Conforming {
    /// Share of the connections that must conform.
    pub demanded_ratio: f64,
    /// Largest number of connections up to which enough conformed, in the median over repeats.
    pub held: Option<f64>,
    /// Smallest number of connections of which too few conformed.
    pub failed: Option<f64>,
}

/// The findings of one axis.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AxisFindings {
    /// The quantity that the run varied.
    pub axis: Axis,
    /// The place that was slowed down; absent on other axes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed: Option<SlowPlace>,
    /// Effect of the slow-down; absent if no request reaches the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<slow_down::Effect>,
    /// Unit of every value.
    pub unit: String,
    /// Findings at each value, ascending.
    pub levels: Vec<AxisLevel>,
    /// Throughput from the lowest value to the highest.
    pub throughput_change: Option<FigureChange>,
    /// CPU per request from the lowest value to the highest.
    pub cpu_change: Option<FigureChange>,
    /// Response time p99 from the lowest value to the highest.
    pub p99_change: Option<FigureChange>,
    /// Median response time from the lowest value to the highest.
    pub p50_change: Option<FigureChange>,
    /// The cost of a packet in each layer, if points were profiled per packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<layers::AxisLayers>,
    /// Conforming connections; present only for that axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conforming: Option<Conforming>,
    /// Scaling over CPUs; absent on other axes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<cpus::Scaling>,
    /// Repeats of the axis.
    pub repeats: u64,
    /// Reasons not to trust the axis.
    pub doubts: Vec<Doubt>,
}

/// The findings of every axis, in the order of [`Axis`]. `demanded_ratio`: share of the connections that must conform.
pub fn of_points(points: &[Point], criteria: &Criteria, demanded_ratio: f64) -> Vec<AxisFindings> {
    type PlacedPoints<'p> = Vec<(f64, &'p Point)>;
    let mut by_axis: BTreeMap<(Axis, Option<SlowPlace>), PlacedPoints<'_>> = BTreeMap::new();
    for point in points.iter().filter(|point| point.sweep == Sweep::Axis) {
        if let Some(place) = point.axis.filter(|place| place.value.is_finite()) {
            by_axis.entry((place.axis, place.slowed)).or_default().push((place.value, point));
        }
    }
    // Points without added delay are the baseline of every place.
    let plain = by_axis.remove(&(Axis::SlowDown, None)).unwrap_or_default();
    let mut found = Vec::new();
    for ((axis, slowed), mut placed) in by_axis {
        placed.extend(plain.iter().filter(|_| axis == Axis::SlowDown));
        found.push(of_axis((axis, slowed), placed, criteria, demanded_ratio));
    }
    // Largest effect first.
    let gain =
        |axis: &AxisFindings| axis.effect.as_ref().and_then(|effect| effect.gain_ratio).map_or(0.0, |gain| gain.value);
    found.sort_by(|a, b| a.axis.cmp(&b.axis).then(gain(b).total_cmp(&gain(a))));
    found
}

fn of_axis(
    (axis, slowed): (Axis, Option<SlowPlace>),
    mut placed: Vec<(f64, &Point)>,
    criteria: &Criteria,
    demanded_ratio: f64,
) -> AxisFindings {
    // One trial of each place finds its delays. It is the only point of a place that no request reaches.
    if slowed.is_some() && placed.iter().any(|(value, point)| *value > 0.0 && point.repeat > 0) {
        placed.retain(|(_, point)| point.repeat > 0);
    }
    let groups = by_load(placed.iter().copied());
    let levels: Vec<AxisLevel> = groups.iter().map(|(value, points)| level(axis, *value, points, criteria)).collect();
    let named = |name: &'static str| move |point: &Point| point.value(name);
    let repeats: BTreeSet<u32> = placed.iter().map(|(_, point)| point.repeat).filter(|repeat| *repeat > 0).collect();
    let (plain, added): (Vec<&Point>, Vec<&Point>) = placed
        .iter()
        .map(|(_, point)| *point)
        .partition(|point| point.axis.is_some_and(|place| place.slowed.is_none()));
    let effect = slowed.and_then(|_| slow_down::find(&added, &plain, criteria));
    let mut doubts = doubts(axis, &levels, repeats.len());
    let reached = slow_down::reached(&added, criteria);
    doubts.extend(slowed.and_then(|place| doubt_of_place(place, effect.as_ref(), reached)));
    AxisFindings {
        axis,
        slowed,
        effect,
        unit: axis.unit().into(),
        throughput_change: change(&groups, good_per_sec, criteria),
        cpu_change: change(&groups, cpu_us, criteria),
        p99_change: change(&groups, named(names::RESPONSE_P99), criteria),
        p50_change: change(&groups, named(names::RESPONSE_P50), criteria),
        layers: layers::find(&groups, criteria),
        conforming: (axis == Axis::Conforming).then(|| conforming(&levels, demanded_ratio)),
        scaling: (axis == Axis::Cpus).then(|| cpus::find(&groups, criteria)),
        doubts,
        levels,
        repeats: repeats.len() as u64,
    }
}

/// Estimates a figure over the repeats of one value; `None` if it was not measured.
pub fn estimate(values: impl Iterator<Item = f64>, criteria: &Criteria) -> Option<Estimate> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    statistics::estimate(&values, criteria.confidence_ratio, SEED, |values| median(values))
}

fn level(axis: Axis, value: f64, points: &[&Point], criteria: &Criteria) -> AxisLevel {
    let quiet = counted(points);
    let over = |read: &dyn Fn(&Point) -> Option<f64>| estimate(quiet.iter().filter_map(|point| read(point)), criteria);
    let named = |name: &'static str| over(&|point: &Point| point.value(name));
    let (present, kernel_bytes) = match axis {
        Axis::Cold => (
            named(names::COLD),
            over(&|point| Some(point.value(names::COLD_KERNEL_MEMORY)? * point.value(names::COLD)?)),
        ),
        Axis::TimeWait => (named(names::TIME_WAIT), named(names::TIME_WAIT_MEMORY)),
        _ => (None, None),
    };
    AxisLevel {
        value,
        points: points.len() as u64,
        client_limited: points.iter().filter(|point| client_is_saturated(point, criteria)).count() as u64,
        throughput_per_sec: named(names::THROUGHPUT),
        goodput_per_sec: named(names::GOODPUT),
        response_p50_us: named(names::RESPONSE_P50),
        response_p99_us: named(names::RESPONSE_P99),
        reap_p99_us: named(names::REAP_P99),
        cpu_us_per_request: over(&|point| cpu_us(point)),
        cpu_user_us_per_request: named(names::SERVER_CPU_USER),
        cpu_system_us_per_request: named(names::SERVER_CPU_SYSTEM),
        softirq_us_per_request: over(&softirq_beside_us),
        failed_ratio: over(&|point| Some(point.outcomes.failed_ratio())),
        conforming_ratio: named(names::CONFORMING),
        connection_bits_per_sec: named(names::CONNECTION_BITS),
        present,
        kernel_bytes,
    }
}

/// The change of a figure between the ends of the axis, from the repeats that measured both.
fn change(
    groups: &[(f64, Vec<&Point>)],
    read: impl Fn(&Point) -> Option<f64>,
    criteria: &Criteria,
) -> Option<FigureChange> {
    let ((lowest, first), (highest, last)) = (groups.first()?, groups.last()?);
    if lowest == highest {
        return None;
    }
    let (from, to, ratio) = within::pairs(first, last, read).change(criteria.confidence_ratio)?;
    Some(FigureChange { from, to, ratio })
}

/// Whether enough of a level's connections conformed; `None` if that was not measured.
pub fn conforms(shares: &[f64], demanded_ratio: f64) -> Option<bool> {
    median(shares).map(|share| share >= demanded_ratio - 1e-9)
}

fn conforming(levels: &[AxisLevel], demanded_ratio: f64) -> Conforming {
    let judged = || {
        levels
            .iter()
            .filter_map(|level| Some((level.value, conforms(&[level.conforming_ratio?.value], demanded_ratio)?)))
    };
    let failed = judged().find(|(_, holds)| !holds).map(|(value, _)| value);
    let below = |value: &f64| failed.is_none_or(|failed| *value < failed);
    Conforming { demanded_ratio, held: judged().map(|(value, _)| value).rfind(below), failed }
}

/// The reason why the effect of a slow-down does not predict a speed-up.
fn doubt_of_place(place: SlowPlace, effect: Option<&slow_down::Effect>, reached: Option<Estimate>) -> Option<Doubt> {
    let name = slowed_words(place);
    match effect {
        None => Some(DoubtKind::NotWatched.note(
            format!(
                "the cost of {name} did not vary enough to show an effect: a request reaches it {} times",
                reached.map_or(0.0, |reached| (reached.value * 1000.0).round() / 1000.0)
            ),
            "leave it out of --places, or give a load that reaches it more often",
        )),
        Some(effect) if effect.is_linear == Some(false) => Some(DoubtKind::SourcesDisagree.warning(
            format!(
                "the effect of slowing down {name} is not proportional: batches hide or multiply it, so a speed-up may \
                 have a different effect"
            ),
            "give smaller --axis-values",
        )),
        Some(_) => None,
    }
}

fn doubts(axis: Axis, levels: &[AxisLevel], repeats: usize) -> Vec<Doubt> {
    let mut found = Vec::new();
    if repeats < 3 {
        found.push(DoubtKind::TooFewSamples.warning(
            format!("the axis was measured in only {repeats} repeats: its intervals are unreliable"),
            "allow more time (--budget) or fewer values (--axis-values), and at least 3 --repeats",
        ));
    }
    if let Some(level) = levels.iter().find(|level| 2 * level.client_limited > level.points) {
        let from = value_words(level.value, axis);
        found.push(DoubtKind::ClientSaturated.warning(
            match axis {
                Axis::SlowDown => format!("the client was saturated at {from}: throughput there is the client's limit"),
                _ => format!("from {from} on the client was saturated: throughput there is the client's limit"),
            },
            "give the client more CPUs (--cpus) or a separate machine, or offer less",
        ));
    }
    if let Some(level) = levels.iter().find(|level| level.present.is_some_and(|found| found.value < 0.9 * level.value))
    {
        let present = level.present.map_or(0.0, |found| found.value);
        found.push(DoubtKind::SourcesDisagree.warning(
            format!(
                "only {1} of {0} existed when the window began",
                value_words(level.value, axis),
                record::units::grouped(present)
            ),
            "raise the server's connection and descriptor limits, or use fewer",
        ));
    }
    found
}
