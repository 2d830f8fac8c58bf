//! The search over shares of live traffic.

use crate::fixture;
use crate::server::plan;
use analyze::sweep::{Load, Planner, ShareSearch, SweepStep, Trial};
use record::scenario::ShiftPlan;
use record::{Arrival, Outcomes, Pace, Point, Sweep, names};

/// The largest step upward, with the rounding to whole shares.
const LARGEST_STEP: f64 = 1.28;
const RATE_PER_SHARE: f64 = 100.0;

/// A point of a server that holds up to `capacity` requests per second; beyond it the guard steps back.
fn point(share: f64, capacity_per_sec: f64) -> Point {
    let rate_per_sec = share * RATE_PER_SHARE;
    let is_late = rate_per_sec > capacity_per_sec;
    let mut figures = vec![
        (names::LIVE_SHARE, share),
        (names::GOODPUT, rate_per_sec),
        (names::SERVER_BUSIEST_THREAD, (rate_per_sec / capacity_per_sec).min(1.0)),
        (names::RESPONSE_P99, if is_late { 900_000.0 } else { 2_000.0 }),
        (names::RESPONSE_P90, if is_late { 500_000.0 } else { 1_000.0 }),
    ];
    figures.extend(is_late.then_some((names::LIVE_STEPPED_BACK, 1.0)));
    let sent = (10.0 * rate_per_sec) as u64;
    Point {
        pace: Pace::Open { rate_per_sec, arrival: Arrival::Series },
        duration_ns: 10_000_000_000,
        outcomes: Outcomes { sent, ok: sent, ..Outcomes::default() },
        ..fixture::point(Sweep::Rate, 0, 1, &figures)
    }
}

fn search(usual: f64, most: f64, capacity_per_sec: f64) -> (Vec<f64>, String) {
    let shift = ShiftPlan { command: "move {share}".into(), usual, most };
    let plan = plan(600);
    let mut planner = ShareSearch::new(&plan, &shift);
    let (mut points, mut shares) = (Vec::new(), Vec::new());
    loop {
        match planner.next(&points, points.len() as u64 * 1_000_000_000) {
            SweepStep::Measure(Trial { load: Load::Share(share), .. }) => {
                shares.push(share);
                points.push(point(share, capacity_per_sec));
            }
            SweepStep::Done { reason } => return (shares, reason),
            other => panic!("{other:?}"),
        }
        assert!(shares.len() < 40, "{shares:?}");
    }
}

#[test]
fn the_capacity_lies_between_the_bounds_and_a_failure_is_followed_by_the_usual_share() {
    for capacity in [2_600.0, 3_333.0, 4_800.0, 7_900.0] {
        let (shares, reason) = search(25.0, 100.0, capacity);
        let fails = |share: &f64| share * RATE_PER_SHARE > capacity;
        let failed = shares.iter().copied().filter(fails).fold(f64::INFINITY, f64::min);
        let held = shares.iter().copied().filter(|share| !fails(share)).fold(0.0, f64::max);
        assert!(failed / held <= 1.1, "{capacity}: {shares:?}");
        for pair in shares.windows(2).filter(|pair| fails(&pair[0])) {
            assert_eq!(pair[1], 25.0, "{shares:?}");
        }
        let steps = shares.windows(2).filter(|pair| pair[1] > pair[0] && !fails(&pair[0]) && pair[0] != 25.0);
        assert!(steps.into_iter().all(|pair| pair[1] / pair[0] <= LARGEST_STEP), "{shares:?}");
        assert!(reason.contains("was held and"), "{reason}");
    }
}

#[test]
fn shares_stay_within_the_permitted_ones() {
    let (shares, reason) = search(10.0, 40.0, 1e9);
    assert!(shares.iter().all(|share| (10.0..=40.0).contains(share)), "{shares:?}");
    assert_eq!(shares.last(), Some(&40.0));
    assert!(reason.contains("40"), "{reason}");
    let (shares, reason) = search(30.0, 40.0, 1_000.0);
    assert_eq!((shares, reason.as_str()), (vec![30.0], "the server fails at its usual share"));
    let (shares, _) = search(0.1, 0.9, 47.0);
    assert!(shares.iter().any(|share| share.fract() != 0.0 && *share > 0.4), "{shares:?}");
    let (shares, _) = search(1.0, 4.0, 250.0);
    assert_eq!(shares[..3], [1.0, 2.0, 3.0], "whole shares of few instances");
}
