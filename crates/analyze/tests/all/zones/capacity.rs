//! The highest rate answered in an open loop.

use crate::fixture;
use analyze::zones::{self, PointFinding};
use proptest::prelude::*;
use record::{Arrival, Criteria, Pace, Point, Sweep, names};

/// The capacity from points of a second with these rates: offered and answered.
fn found(answered: &[(f64, f64)]) -> PointFinding {
    let point = |(rate, answered): &(f64, f64)| {
        let figures = [(names::THROUGHPUT, *answered), (names::RESPONSE_P50, 1e3)];
        let mut point = fixture::point(Sweep::Rate, 0, 256, &figures);
        point.pace = Pace::Open { rate_per_sec: *rate, arrival: Arrival::Constant };
        (point.outcomes.sent, point.outcomes.ok) = (rate.round() as u64, answered.round() as u64);
        point
    };
    let points: Vec<Point> = answered.iter().map(point).collect();
    let sweep = zones::find(&points, &Criteria::default()).rate.expect("points of an open loop");
    sweep.capacity.expect("rates were answered")
}

proptest! {
    /// Any answered rates, including more than offered.
    #[test]
    fn an_estimate_is_within_its_interval(
        answered in prop::collection::vec((1_u32..40, 0.3..1.5_f64), 2..8),
    ) {
        let mut rates: Vec<(f64, f64)> =
            answered.iter().map(|(rate, share)| (f64::from(*rate) * 1e3, f64::from(*rate) * 1e3 * share)).collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        rates.dedup_by_key(|(rate, _)| *rate);
        let capacity = found(&rates);
        if let Some(estimate) = capacity.estimate {
            prop_assert!(capacity.low.is_none_or(|low| low <= estimate), "{capacity:?}");
            prop_assert!(capacity.high.is_none_or(|high| estimate <= high), "{capacity:?}");
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
    assert!(capacity.estimate.is_none() && capacity.low >= Some(24.3e3), "it kept up with the highest: {capacity:?}");
    // Measured rates of Go's net/http: goroutines wait for the only CPU.
    let capacity = found(&[(30e3, 30e3), (40.1e3, 40e3), (45.6e3, 21.9e3)]);
    assert_eq!(capacity.estimate, Some(40e3));
    assert!(capacity.reason.contains("offered 45.6k/s, it answered only 21.9k/s"), "{}", capacity.reason);
}
