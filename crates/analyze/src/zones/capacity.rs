//! The capacity of the open loop: the highest rate answered, whatever was offered.

use super::levels::counted_at;
use super::words::load_words;
use super::{Level, PointFinding, PointPlace, failure};
use crate::point::good_per_sec;
use crate::statistics::{bootstrap, median};
use record::units::format_si;
use record::{Criteria, Point, Sweep};
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Arrival, Pace, names};

    /// The capacity from points of a second with these rates: offered and answered.
    fn found(answered: &[(f64, f64)]) -> PointFinding {
        let points: Vec<(f64, Point)> = answered
            .iter()
            .map(|(rate, answered)| {
                let figures = [(names::THROUGHPUT, *answered), (names::RESPONSE_P50, 1e3)];
                let mut point = crate::point::tests::point(Sweep::Rate, 0, 256, &figures);
                point.pace = Pace::Open { rate_per_sec: *rate, arrival: Arrival::Constant };
                (point.outcomes.sent, point.outcomes.ok) = (rate.round() as u64, answered.round() as u64);
                (*rate, point)
            })
            .collect();
        let groups: Vec<(f64, Vec<&Point>)> = points.iter().map(|(rate, point)| (*rate, vec![point])).collect();
        let criteria = Criteria::default();
        let levels: Vec<Level> =
            groups.iter().map(|(load, points)| crate::zones::levels::level(*load, points, &criteria)).collect();
        find(&groups, &levels, Sweep::Rate, &criteria).expect("rates were answered")
    }

    proptest::proptest! {
        /// Any answered rates, including more than offered.
        #[test]
        fn an_estimate_is_within_its_interval(
            answered in proptest::collection::vec((1_u32..40, 0.3..1.5_f64), 2..8),
        ) {
            let mut rates: Vec<(f64, f64)> =
                answered.iter().map(|(rate, share)| (f64::from(*rate) * 1e3, f64::from(*rate) * 1e3 * share)).collect();
            rates.sort_by(|a, b| a.0.total_cmp(&b.0));
            rates.dedup_by_key(|(rate, _)| *rate);
            let capacity = found(&rates);
            if let Some(estimate) = capacity.estimate {
                proptest::prop_assert!(capacity.low.is_none_or(|low| low <= estimate), "{capacity:?}");
                proptest::prop_assert!(capacity.high.is_none_or(|high| estimate <= high), "{capacity:?}");
            }
        }
    }

    #[test]
    fn the_capacity_is_the_most_that_was_answered_even_after_a_pause_at_a_lower_rate() {
        let paused = [
            (15.8e3, 15.8e3),
            (16.5e3, 14.4e3),
            (18e3, 17.9e3),
            (24.4e3, 24.3e3),
            (27e3, 22.4e3),
            (30e3, 23.9e3),
            (34e3, 24.0e3),
        ];
        for (rates, most) in [
            (&[(8e3, 8e3), (10e3, 10e3), (11e3, 10.1e3), (12e3, 10.1e3)][..], 10.1e3),
            (&paused, 24.3e3),
            // Measured rates of four workers that share a port, a backend in Node, and a readers-writer lock.
            (&[(640.0, 630.0), (900.0, 893.0), (1.2e3, 880.0), (2.9e3, 2296.0)], 2296.0),
            (&[(1.6e3, 1.6e3), (1.7e3, 1.6e3), (3.4e3, 2672.0)], 2672.0),
            (&[(3.9e3, 3839.0), (4.1e3, 3.8e3), (7.2e3, 5652.0)], 5652.0),
        ] {
            let capacity = found(rates);
            assert_eq!(capacity.estimate, Some(most), "{capacity:?}");
        }
        let capacity = found(&paused[..4]);
        assert!(
            capacity.estimate.is_none() && capacity.low >= Some(24.3e3),
            "it kept up with the highest: {capacity:?}"
        );
        // Measured rates of Go's net/http: goroutines wait for the only CPU.
        let capacity = found(&[(30e3, 30e3), (40.1e3, 40e3), (45.6e3, 21.9e3)]);
        assert_eq!(capacity.estimate, Some(40e3));
        assert!(capacity.reason.contains("offered 45.6k/s, it answered only 21.9k/s"), "{}", capacity.reason);
    }
}
