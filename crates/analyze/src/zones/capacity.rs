//! The capacity of the open loop, which is its knee: where what is offered meets the most that is answered.

use super::words::load_words;
use super::{Place, PointFinding, failure};
use crate::disturbance::quiet_first;
use crate::point::good_per_sec;
use crate::statistics::{bootstrap, median};
use record::units::format_si;
use record::{Criteria, Point, Sweep};
use std::collections::BTreeMap;

const SEED: u64 = 0x4341;
/// Of the rates beyond the capacity, those up to this multiple of the lowest: far beyond it many servers answer less.
const UP_TO: f64 = 1.3;

/// `groups`: the points by rate. `None` for a closed loop, or where no rate was answered.
pub(super) fn find(
    groups: &[(f64, Vec<&Point>)],
    failure_point: &PointFinding,
    sweep: Sweep,
    criteria: &Criteria,
) -> Option<PointFinding> {
    if sweep != Sweep::Rate {
        return None;
    }
    let answered = |point: &Point| good_per_sec(point).filter(|rate| *rate > 0.0);
    let is_behind =
        |point: &&Point| answered(point).is_some_and(|rate| failure::behind_ratio(point, rate, criteria).is_some());
    let is_mostly_behind = |points: &[&Point]| 2 * points.iter().filter(|p| is_behind(p)).count() > points.len();
    let typical = |points: &[&Point]| median(&points.iter().filter_map(|point| answered(point)).collect::<Vec<_>>());
    let keeps_up = |load: f64, points: &[&Point]| {
        !is_mostly_behind(points) && typical(points).is_some_and(|rate| rate >= criteria.goodput_ratio * load)
    };
    // A server that pauses now and then falls behind at one rate, and keeps up with a higher one.
    let kept_up = groups.iter().filter(|(load, points)| keeps_up(*load, points)).map(|(load, _)| *load);
    let from = kept_up.chain(failure_point.held).reduce(f64::max).unwrap_or(0.0);
    let mostly_behind = groups.iter().filter(|(load, points)| *load > from && is_mostly_behind(points));
    let Some((lowest, _)) = mostly_behind.clone().next() else {
        let most = groups.iter().flat_map(|(_, points)| points).filter_map(|point| answered(point)).reduce(f64::max)?;
        let reason = format!("not reached: up to {} all that was offered was answered", load_words(most, sweep));
        return Some(PointFinding { place: Place::Beyond, low: Some(most), ..PointFinding::none(criteria, 0, reason) });
    };
    let near: Vec<&Point> = mostly_behind
        .filter(|(load, _)| *load <= lowest * UP_TO)
        .flat_map(|(_, points)| points.iter().copied())
        .collect();
    let mut by_repeat: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for point in quiet_first(&near).into_iter().filter(is_behind) {
        by_repeat.entry(point.repeat).or_default().extend(answered(point));
    }
    let of_repeats: Vec<f64> = by_repeat.values().filter_map(|rates| median(rates)).collect();
    let estimate = median(&of_repeats)?;
    // What was answered at the rate that held: in a short window that may be less than was offered, or more, where what
    // had waited before it was answered, too.
    let held = groups.iter().find(|(load, _)| *load == from);
    let held_per_sec = held.and_then(|(_, points)| typical(points)).unwrap_or(0.0).min(from);
    if estimate < criteria.goodput_ratio * held_per_sec {
        // Overload takes the server's time: most is answered between the rate that held and the one that did not.
        let reason = format!(
            "offered {} it answered more than offered {}, {}/s",
            load_words(from, sweep),
            load_words(*lowest, sweep),
            format_si(estimate)
        );
        return Some(PointFinding {
            place: Place::Within,
            estimate: Some(held_per_sec),
            low: Some(held_per_sec),
            high: Some(*lowest),
            ..PointFinding::none(criteria, of_repeats.len(), reason)
        });
    }
    let interval = bootstrap(&of_repeats, criteria.confidence_ratio, SEED, median);
    // A window counts right but for one request at each end, however well windows agree.
    let seconds: Vec<f64> = near.iter().map(|point| point.duration_ns as f64 / 1e9).collect();
    let edge = median(&seconds).filter(|seconds| *seconds > 0.0).map_or(0.0, |seconds| 1.0 / seconds);
    let reason = format!("offered {} and more, it answered no more than this", load_words(*lowest, sweep));
    Some(PointFinding {
        place: Place::Within,
        estimate: Some(estimate),
        low: interval.map(|found| found.low.min(estimate - edge)),
        high: interval.map(|found| found.high.max(estimate + edge)),
        ..PointFinding::none(criteria, of_repeats.len(), reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a second; what was answered of each rate.
    fn found(answered: &[(f64, f64)], held: f64) -> PointFinding {
        let points: Vec<(f64, Point)> = answered
            .iter()
            .map(|(rate, answered)| {
                let figure = |value: f64, unit: &str| {
                    serde_json::json!({"value": value, "unit": unit, "n": 100, "origin": "counted"})
                };
                let point = serde_json::json!({
                    "schema": 1, "index": 0, "sweep": "rate", "repeat": 0, "connections": 256,
                    "pace": {"loop": "open", "rate_per_sec": rate, "arrival": "constant"},
                    "started_unix_ms": 0, "warmup_ns": 0, "duration_ns": 1_000_000_000u64,
                    "outcomes": {"sent": rate.round() as u64, "ok": answered.round() as u64},
                    "figures": {
                        "client.throughput_per_sec": figure(*answered, "1/s"),
                        "client.response_p50_us": figure(1e3, "us"),
                    },
                });
                (*rate, serde_json::from_value(point).expect("a point"))
            })
            .collect();
        let groups: Vec<(f64, Vec<&Point>)> = points.iter().map(|(rate, point)| (*rate, vec![point])).collect();
        let criteria = Criteria::default();
        let failure = PointFinding { held: Some(held), ..PointFinding::none(&criteria, 1, String::new()) };
        find(&groups, &failure, Sweep::Rate, &criteria).expect("rates were answered")
    }

    proptest::proptest! {
        /// Whatever was answered, also more than was offered.
        #[test]
        fn an_estimate_lies_in_its_interval(
            answered in proptest::collection::vec((1_u32..40, 0.3..1.5_f64), 2..8),
            held in 1_u32..40,
        ) {
            let mut rates: Vec<(f64, f64)> =
                answered.iter().map(|(rate, share)| (f64::from(*rate) * 1e3, f64::from(*rate) * 1e3 * share)).collect();
            rates.sort_by(|a, b| a.0.total_cmp(&b.0));
            rates.dedup_by_key(|(rate, _)| *rate);
            let capacity = found(&rates, f64::from(held) * 1e3);
            if let Some(estimate) = capacity.estimate {
                proptest::prop_assert!(capacity.low.is_none_or(|low| low <= estimate), "{capacity:?}");
                proptest::prop_assert!(capacity.high.is_none_or(|high| estimate <= high), "{capacity:?}");
            }
        }
    }

    #[test]
    fn a_plateau_is_the_capacity() {
        let capacity = found(&[(8e3, 8e3), (10e3, 10e3), (11e3, 10.1e3), (12e3, 10.1e3)], 10e3);
        assert_eq!(capacity.estimate, Some(10.1e3));
    }

    #[test]
    fn a_pause_at_one_rate_is_no_capacity() {
        let paused = [
            (15.8e3, 15.8e3),
            (16.5e3, 14.4e3),
            (18e3, 17.9e3),
            (24.4e3, 24.3e3),
            (27e3, 22.4e3),
            (30e3, 23.9e3),
            (34e3, 24.0e3),
        ];
        let capacity = found(&paused, 15.8e3);
        assert_eq!(
            capacity.estimate,
            Some(23.9e3),
            "of the rates beyond the highest that it kept up with: {capacity:?}"
        );
        let capacity = found(&paused[..4], 15.8e3);
        assert!(
            capacity.estimate.is_none() && capacity.low >= Some(24.3e3),
            "it kept up with the highest: {capacity:?}"
        );
    }

    #[test]
    fn a_rate_that_seemed_to_hold_is_no_capacity() {
        // A backlog that a short window does not tell from chance.
        let capacity = found(&[(950.0, 950.0), (1050.0, 1001.0), (1200.0, 1000.0)], 1050.0);
        assert_eq!(capacity.estimate, Some(1000.0), "{}", capacity.reason);
    }

    #[test]
    fn a_server_that_answers_less_when_overloaded_has_at_least_the_capacity_that_held() {
        // Go's net/http as measured: goroutines wait for the one CPU.
        let capacity = found(&[(30e3, 30e3), (40.1e3, 40e3), (45.6e3, 21.9e3)], 40.1e3);
        assert_eq!((capacity.estimate, capacity.low, capacity.high), (Some(40e3), Some(40e3), Some(45.6e3)));
        assert!(capacity.reason.contains("21.9k/s"), "{}", capacity.reason);
    }
}
