//! The length of an open-loop trial.

use crate::fixture;
use analyze::sweep::{needed_ns, too_short};
use analyze::zones;
use record::{Arrival, Criteria, Outcomes, Pace, Point, Sweep, names};

fn trial(rate_per_sec: f64, seconds: f64, stall_ms: f64, p99_ms: f64) -> Point {
    let sent = (rate_per_sec * seconds) as u64;
    let figures = [
        (names::GOODPUT, rate_per_sec),
        (names::STALL_MAX, stall_ms * 1e3),
        (names::RESPONSE_P99, p99_ms * 1e3),
        (names::RESPONSE_P90, 5e3),
    ];
    Point {
        pace: Pace::Open { rate_per_sec, arrival: Arrival::Poisson },
        duration_ns: (seconds * 1e9) as u64,
        outcomes: Outcomes { sent, ok: sent, ..Outcomes::default() },
        ..fixture::point(Sweep::Rate, 0, 64, &figures)
    }
}

#[test]
fn a_trial_lasts_thirty_stalls_and_a_thousand_requests() {
    let criteria = Criteria::default();
    let points = [trial(800.0, 2.0, 60.0, 70.0), trial(900.0, 2.0, 58.0, 70.0), trial(950.0, 2.0, 700.0, 70.0)];
    let needed = |rate| needed_ns(&points, rate, &criteria) as f64 / 1e9;
    assert_eq!(needed(1_000.0), 1.8, "one stall of the machine alone is none of the server");
    assert_eq!(needed(100.0), 10.0);
    assert_eq!(needed_ns(&[], 50_000.0, &criteria), 20_000_000);
}

#[test]
fn a_window_with_few_stalls_does_not_fail_and_gives_the_reason() {
    let criteria = Criteria::default();
    let short = trial(1_605.0, 0.5, 60.0, 130.0);
    assert!(!zones::fails(&short, &criteria), "a few stalls make any percentile");
    for (trial, rate, words) in [
        (short.clone(), 1_605.0, "stalled for 60.0 ms; whether that is usual needs 1.80 s"),
        (trial(90.0, 2.0, 12.0, 130.0), 90.0, "there were 180 answers, and a 99th percentile needs 1,000"),
    ] {
        let why = too_short(&[trial], rate, &criteria);
        assert!(why.as_ref().is_some_and(|why| why.contains(words)), "{why:?}");
    }
    let long = trial(1_605.0, 2.0, 60.0, 130.0);
    assert!(zones::fails(&long, &criteria));
    assert_eq!(too_short(&[short, long], 1_605.0, &criteria), None);
}
