//! The capacity of the open loop: the highest rate answered, whatever was offered.

use super::levels::counted_at;
use super::words::load_words;
use super::{Level, PointFinding, PointPlace, failure};
use crate::point::good_per_sec;
use record::units::format_si;
use record::{Criteria, Point, Sweep};
use statistics::{bootstrap, median};
use std::collections::BTreeMap;

const SEED: u64 = 0x4341;
/// Rates at which at least this share of the capacity was answered show its variation.
const PLATEAU_RATIO: f64 = 0.9;
/// Minimum relative width of the interval on each side: short windows share the machine's current speed, so they agree
/// better with each other than with a long-term rate.
const WINDOW_ERROR: f64 = 0.03;

/// `groups`: the points by rate, each with its level. `None` for a closed loop, or if no rate was answered.
pub(super) fn find(
    groups: &[(f64, Vec<&Point>)],
    levels: &[Level],
    sweep: Sweep,
    criteria: &Criteria,
) -> Option<PointFinding> {
    if sweep != Sweep::Rate {
        return None;
    }
    let answered = |level: &Level| level.throughput_per_sec.map(|spread| spread.median).filter(|rate| *rate > 0.0);
    let (at, most) =
        levels.iter().filter_map(|level| Some((level.load, answered(level)?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let behind = |point: &&Point| Some(failure::behind_ratio(point, good_per_sec(point)?, criteria).is_some());
    let is_behind = |points: &[&Point]| crate::point::most(&counted_at(points), |point| behind(point) == Some(true));
    // A server that pauses may fall behind at one rate and still keep up with a higher one.
    if !groups.iter().any(|(load, points)| *load > most && is_behind(points)) {
        let reason = format!("not reached: up to {} all offered requests were answered", load_words(most, sweep));
        return Some(PointFinding {
            place: PointPlace::Beyond,
            low: Some(most),
            ..PointFinding::none(criteria, 0, reason)
        });
    }
    let mut by_repeat: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut shortest_s = f64::INFINITY;
    for (_, points) in groups.iter().filter(|(load, _)| *load >= criteria.goodput_ratio * most) {
        for point in counted_at(points) {
            let rate = good_per_sec(point).filter(|rate| *rate >= PLATEAU_RATIO * most);
            by_repeat.entry(point.repeat).or_default().extend(rate);
            shortest_s = shortest_s.min(point.duration_ns as f64 / 1e9);
        }
    }
    let of_repeats: Vec<f64> = by_repeat.values().filter_map(median).collect();
    let (low, high) =
        bootstrap(&of_repeats, criteria.confidence_ratio, SEED, |values| median(values)).unwrap_or((most, most));
    // A window miscounts one request at each end.
    let edge = if shortest_s > 0.0 { 1.0 / shortest_s } else { 0.0 };
    let overloaded = levels.iter().filter(|level| level.load > at);
    let fallen = overloaded.filter_map(|level| Some((level.load, answered(level)?))).min_by(|a, b| a.1.total_cmp(&b.1));
    let reason = match fallen.filter(|(_, rate)| *rate < PLATEAU_RATIO * most) {
        Some((load, rate)) => format!(
            "the highest rate that it answered; offered {}, it answered only {}/s",
            load_words(load, sweep),
            format_si(rate)
        ),
        None => "the highest rate that it answered".into(),
    };
    Some(PointFinding {
        place: PointPlace::Within,
        estimate: Some(most),
        low: Some(low.min(most * (1.0 - WINDOW_ERROR) - edge).max(0.0)),
        high: Some(high.max(most * (1.0 + WINDOW_ERROR) + edge)),
        ..PointFinding::none(criteria, of_repeats.len(), reason)
    })
}
