//! Failed trials, and the loads between which failure begins.

use analyze::zones::failure::{Bracket, LevelTrial, TrialResult, bracket, crossed, inconsistent, some_failed};
use record::{Criteria, Origin, Outcomes, Pace, Point, Sweep, names};

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
