//! Parts of the findings: curves, knees, failed trials, capacities, and their words.

use crate::fixture;
use analyze::zones::failure::{Bracket, LevelTrial, TrialResult, bracket, crossed, inconsistent, some_failed};
use analyze::zones::{self, PointFinding, PointPlace, estimate_words};
use proptest::prelude::*;
use record::{Arrival, Criteria, Origin, Outcomes, Pace, Point, Sweep, names};
use statistics::curve::{BlockCurve, Crossing, CurvePoint, isotonic};
use statistics::knee::knee_of;

fn readings(repeats: &[(f64, &[f64])], loads: &[f64]) -> Vec<CurvePoint> {
    let mut all = Vec::new();
    for (repeat, (drift, values)) in repeats.iter().enumerate() {
        for (load, value) in loads.iter().zip(*values) {
            all.push(CurvePoint {
                load: *load,
                repeat: repeat as u32,
                value: value * drift,
                weight: 1.0,
                precision: 1.0,
            });
        }
    }
    all
}

#[test]
fn drift_between_repeats_does_not_change_the_curve() {
    let values: &[f64] = &[10.0, 20.0, 40.0, 42.0, 41.0];
    let loads = [1.0, 2.0, 4.0, 8.0, 16.0];
    let steady = BlockCurve::fit(&readings(&[(1.0, values), (1.0, values), (1.0, values)], &loads)).unwrap();
    let mut drifting = readings(&[(1.0, values), (0.7, values), (1.3, values)], &loads);
    // The fast repeat lacks the low loads and the slow one the high loads, which would distort plain medians.
    drifting.retain(|r| match r.repeat {
        1 => r.load < 16.0,
        2 => r.load > 2.0,
        _ => true,
    });
    let drifting = BlockCurve::fit(&drifting).unwrap();
    let first = steady.at[0].level - drifting.at[0].level;
    assert!(steady.at.iter().zip(&drifting.at).all(|(a, b)| (a.level - b.level - first).abs() < 1e-6));
}

#[test]
fn the_gain_of_a_sharp_knee_ends_at_the_knee() {
    let loads: Vec<f64> = (0..40).map(|step| 2f64.powf(step as f64 / 4.0)).collect();
    let values: Vec<f64> = loads.iter().map(|load| load.min(32.0)).collect();
    let curve = BlockCurve::fit(&readings(&[(1.0, &values)], &loads)).unwrap();
    let Some(Crossing::At(at)) = curve.gain_falls_below(0.2) else { panic!("no crossing") };
    // By definition, 32 / (x / sqrt 2) = 1.2.
    assert!((at / (32.0 * std::f64::consts::SQRT_2 / 1.2) - 1.0).abs() < 0.03, "{at}");
}

#[test]
fn isotonic_regression_pools_falling_values() {
    assert_eq!(isotonic(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0), (4.0, 1.0)]), vec![1.0, 2.5, 2.5, 4.0]);
    assert_eq!(isotonic(&[(3.0, 1.0), (2.0, 1.0), (1.0, 2.0)]), vec![1.75; 3]);
}

/// The knee of a curve without noise, with this many measured loads per doubling.
fn knee(per_doubling: u32, throughput: impl Fn(f64) -> f64) -> f64 {
    let loads = (0..=11 * per_doubling).map(|step| (f64::from(step) / f64::from(per_doubling)).exp2());
    let curve = BlockCurve::exact(loads.map(|load| (load, throughput(load).ln())));
    let Some(Crossing::At(at)) = curve.knee(0.2) else { panic!("no knee") };
    at
}

#[test]
fn the_knee_of_a_pool_is_its_number_of_workers() {
    for workers in [1.0, 2.0, 3.0, 5.0, 7.0, 8.0, 9.0, 11.0, 15.0, 32.0, 100.0] {
        let sharp = |n: f64| n.min(workers) * 200.0;
        let (at, continuous) = (knee(1, sharp), knee_of(sharp, 0.2).unwrap());
        assert!((at / workers - 1.0).abs() < 0.02, "{at} for {workers}");
        assert!((continuous / workers - 1.0).abs() < 0.02, "{continuous} for {workers}");
        let dearer = knee(2, |n| sharp(n) / (1.0 + n / (16.0 * workers)));
        assert!((dearer / workers - 1.0).abs() < 0.05, "{dearer} for {workers} whose time grows with connections");
    }
}

#[test]
fn slowly_rising_throughput_does_not_move_the_knee() {
    let knee = knee(1, |n| if n <= 8.0 { n } else { 8.0 * (n / 8.0).powf(0.15) });
    assert!((knee / 8.0 - 1.0).abs() < 0.02, "{knee}");
}

#[test]
fn a_curve_that_keeps_rising_has_no_knee() {
    assert_eq!(knee_of(|n| n.powf(0.9), 0.2), None);
}

#[test]
fn one_bad_trial_at_a_low_load_does_not_move_the_failure_point() {
    let mut trials = Vec::new();
    for repeat in 0..3 {
        for load in [10.0, 20.0, 40.0, 42.0, 44.0] {
            trials.push(LevelTrial::new(load, repeat, load > 42.0));
        }
    }
    trials[1].judged = TrialResult::Failed;
    assert_eq!(bracket(&trials), Bracket { lower: Some(42.0), upper: Some(44.0) });
    assert_eq!(inconsistent(&trials), vec![20.0]);
}

#[test]
fn failed_trials_are_named_at_loads_where_most_held() {
    let mut trials = [LevelTrial::new(8.0, 0, true), LevelTrial::new(8.0, 1, false), LevelTrial::new(4.0, 0, false)];
    let words = |load: f64| format!("{load} connections");
    assert_eq!(some_failed(&trials, 4.0, words), "1 of 2 trials failed at 8 connections");
    assert_eq!(some_failed(&trials[1..], 4.0, words), "");
    trials[0].is_disturbed = true;
    assert_eq!(some_failed(&trials, 4.0, words), "1 of 2 trials failed at 8 connections, while other work ran");
}

#[test]
fn one_undisturbed_trial_does_not_outweigh_three_that_failed() {
    let mut trials = vec![
        LevelTrial::new(2_896.0, 0, false),
        LevelTrial::new(2_896.0, 1, false),
        LevelTrial::new(4_096.0, 0, false),
    ];
    for repeat in 1..4 {
        trials.push(LevelTrial { is_disturbed: true, ..LevelTrial::new(4_096.0, repeat, true) });
    }
    assert_eq!(bracket(&trials), Bracket { lower: Some(2_896.0), upper: None }, "not known");
    trials[2].judged = TrialResult::Failed;
    assert_eq!(bracket(&trials).upper, Some(4_096.0));
}

#[test]
fn a_load_that_fails_half_the_time_lies_between_the_bounds() {
    let trials = [
        LevelTrial::new(10.0, 0, false),
        LevelTrial::new(20.0, 0, false),
        LevelTrial::new(20.0, 1, true),
        LevelTrial::new(30.0, 0, true),
    ];
    assert_eq!(bracket(&trials), Bracket { lower: Some(10.0), upper: Some(30.0) });
}

/// A closed loop over `connections`, 2 s.
fn closed(connections: u64, outcomes: Outcomes) -> Point {
    let point = Point::new(Sweep::Connections, 0, connections, Pace::Closed);
    Point { warmup_ns: 1_000_000_000, duration_ns: 2_000_000_000, outcomes, ..point }
}

#[test]
fn a_point_without_an_answer_has_failed() {
    let criteria = Criteria::default();
    let said = |outcomes| crossed(&closed(256, outcomes), &criteria);
    let no_answer = Some(vec!["no request was answered".to_string()]);
    assert_eq!(said(Default::default()), no_answer, "earlier versions did not count requests of the warm-up");
    assert_eq!(said(Outcomes { carried_in: 256, unfinished: 256, ..Default::default() }), no_answer);
    let refused = said(Outcomes { carried_in: 256, refused: 256, ..Default::default() });
    assert!(refused.is_some_and(|why| why.len() == 1 && why[0].contains("refused")));
    let clients = said(Outcomes { sent: 256, local_limit: 256, ..Default::default() });
    assert_eq!(clients, Some(vec![]), "the client's limit is not the server's failure");
    assert_eq!(crossed(&Point { duration_ns: 0, ..closed(256, Default::default()) }, &criteria), None);
}

#[test]
fn a_log_that_offered_another_rate_neither_held_nor_failed() {
    let at = |sent, arrival| {
        let mut point = closed(100, Outcomes { sent, ok: sent, ..Default::default() });
        point.pace = Pace::Open { rate_per_sec: 1000.0, arrival };
        point.figures.measured(names::GOODPUT, sent as f64 / 2.0, sent, Origin::Counted);
        crossed(&point, &Criteria::default())
    };
    use record::Arrival::{Constant, Trace};
    assert_eq!((at(1200, Trace), at(2800, Trace)), (None, None));
    assert_eq!((at(1900, Trace), at(1200, Constant)), (Some(vec![]), Some(vec![])));
}

#[test]
fn a_point_with_unserved_connections_has_failed() {
    let served = |silent| {
        let outcomes = Outcomes {
            sent: 90_000,
            carried_in: 500,
            ok: 90_500 - silent,
            unfinished: silent,
            connections_used: 500,
            connections_silent: silent,
            ..Default::default()
        };
        crossed(&closed(500, outcomes), &Criteria::default()).expect("it can be judged")
    };
    assert_eq!(served(436), ["436 of 500 connections got no answer in the whole window"]);
    assert_eq!(served(6).len(), 1);
    assert!(served(5).is_empty(), "one connection of a hundred, as the limit of the 99th percentile");
}

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

fn shown(estimate: f64, low: f64, high: f64) -> String {
    let found = PointFinding {
        place: PointPlace::Within,
        estimate: Some(estimate),
        low: Some(low),
        high: Some(high),
        held: None,
        failed: None,
        confidence: 0.95,
        n_repeats: 3,
        reason: String::new(),
    };
    estimate_words(&found, Sweep::Connections).expect("an estimate")
}

#[test]
fn the_printed_value_lies_in_the_printed_interval() {
    assert_eq!(shown(8.02, 7.8, 8.3), "8 connections (7.8 to 8.3)");
    assert_eq!(shown(1.0, 1.0, 2.4), "1 connection (1 to 2)");
    assert_eq!(shown(1.35, 1.3, 1.4), "1.4 connections (1.3 to 1.4)", "uvicorn");
    assert_eq!(shown(1500.4, 1448.0, 4096.0), "1,500 connections (1,448 to 4,096)");
    for tenths in 10..200 {
        for (below, above) in [(0.05, 0.05), (0.3, 0.1), (0.04, 2.0), (3.0, 0.02)] {
            let at = f64::from(tenths) / 10.0;
            let said = shown(at, (at - below).max(1.0), at + above);
            let numbers: Vec<f64> =
                said.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect();
            assert!((numbers[1] - 0.051..=numbers[2] + 0.051).contains(&numbers[0]), "{said}");
        }
    }
}
