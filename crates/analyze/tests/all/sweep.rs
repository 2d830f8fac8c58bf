//! Planners: shares of live traffic, two servers in turn, and the length of trials and of the warm-up.

use crate::fixture;
use crate::server::plan;
use analyze::sweep::{Load, Planner, ShareSearch, SweepStep, Trial, TurnSweep, WarmUp, needed_ns, too_short};
use analyze::zones;
use record::scenario::{ShiftPlan, SweepPlan};
use record::{Arrival, Criteria, Outcomes, Pace, Point, Sweep, names};

/// The largest step upward, with the rounding to whole shares.
const LARGEST_STEP: f64 = 1.28;
const RATE_PER_SHARE: f64 = 100.0;

/// A point of a server that holds up to `capacity` requests per second; beyond it the guard steps back.
fn share_point(share: f64, capacity_per_sec: f64) -> Point {
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
                points.push(share_point(share, capacity_per_sec));
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

fn turn_plan() -> SweepPlan {
    SweepPlan { connections_max: 64, repeats: 4, ..plan(900) }
}

/// All steps of a plan if each takes this long and no load fails.
fn steps(plan: &SweepPlan, seed: u64, step_ns: u64) -> Vec<SweepStep> {
    let mut planner = TurnSweep::new(plan, seed);
    let mut steps = Vec::new();
    for at in 0..10_000 {
        steps.push(planner.next(&[], at * step_ns));
        if matches!(steps.last(), Some(SweepStep::Done { .. })) {
            return steps;
        }
    }
    panic!("it does not end");
}

fn turns(steps: &[SweepStep]) -> Vec<(usize, Vec<u64>)> {
    let mut turns = vec![(0, Vec::new())];
    for step in steps {
        match step {
            SweepStep::Serve { server } => turns.push((*server, Vec::new())),
            SweepStep::Measure(trial) => match trial.load {
                Load::Connections(load) => turns.last_mut().unwrap().1.push(load),
                other => panic!("{other:?}"),
            },
            SweepStep::Yardstick | SweepStep::Done { .. } => {}
        }
    }
    turns
}

#[test]
fn both_servers_get_the_same_loads_in_the_same_order_and_alternate_at_being_first() {
    let steps = steps(&turn_plan(), 1, 1_000_000_000);
    let turns = turns(&steps);
    assert_eq!(turns.iter().map(|turn| turn.0).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1, 1, 0]);
    assert_eq!(turns[0].1, [1, 2, 4, 8, 16, 32, 64], "the first server finds the loads, upward");
    for pair in turns[2..].chunks(2) {
        assert_eq!(pair[0].1, pair[1].1);
    }
    for (_, loads) in &turns {
        let mut sorted = loads.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, turns[0].1, "whole");
    }
    assert!(turns[2].1 != turns[4].1 && turns[4].1 != turns[6].1, "another order in the next round: {turns:?}");
    assert_eq!(steps.iter().filter(|step| **step == SweepStep::Yardstick).count(), 8, "one at the end of each turn");
    assert_eq!(steps.last(), Some(&SweepStep::Done { reason: "all 4 were measured".into() }));
}

#[test]
fn the_same_seed_repeats_the_turns_and_another_seed_changes_them() {
    let with = |seed| steps(&turn_plan(), seed, 1_000_000_000);
    assert_eq!(with(3), with(3));
    assert_ne!(with(3), with(4));
}

#[test]
fn windows_are_equal_for_both_servers_and_short_enough_for_all_rounds() {
    let measured = |budget_s: u64| {
        let plan = SweepPlan { budget_ns: budget_s * 1_000_000_000, repeats: 6, ..turn_plan() };
        let mut planner = TurnSweep::new(&plan, 1);
        let mut windows: Vec<Vec<u64>> = vec![Vec::new(); 6];
        let mut elapsed_ns = 0;
        loop {
            elapsed_ns += match planner.next(&[], elapsed_ns) {
                SweepStep::Measure(trial) => {
                    windows[trial.repeat as usize].push(trial.duration_ns);
                    trial.duration_ns + trial.warmup_ns + 30_000_000
                }
                SweepStep::Yardstick | SweepStep::Serve { .. } => 300_000_000,
                SweepStep::Done { .. } => return (windows, elapsed_ns as f64 / 1e9),
            };
        }
    };
    for budget_s in [45, 60, 100] {
        let (windows, seconds) = measured(budget_s);
        assert!(windows.iter().all(|round| round.len() == 14), "six rounds of 2 x 7 loads: {windows:?}");
        assert!(windows.iter().all(|round| round.iter().all(|window| *window == round[0])), "{windows:?}");
        assert!((0.75 * budget_s as f64..=1.02 * budget_s as f64).contains(&seconds), "{seconds} of {budget_s}");
    }
    let (windows, _) = measured(900);
    assert!(windows.iter().flatten().all(|window| *window == 1_000_000_000), "never longer than asked for");
}

#[test]
fn two_rounds_always_run_and_others_only_if_they_fit() {
    // A round has 2 x 7 points, 2 yardsticks and the changes of server: about 18 steps.
    let rounds = |budget_s: u64| {
        let plan = SweepPlan { budget_ns: budget_s * 1_000_000_000, ..turn_plan() };
        let steps = steps(&plan, 1, 1_000_000_000);
        let Some(SweepStep::Done { reason }) = steps.last() else { panic!("{steps:?}") };
        (turns(&steps).len() / 2, reason.clone())
    };
    assert_eq!(rounds(5), (2, "2, as the next would not fit into the budget".into()));
    assert_eq!(rounds(60), (3, "3, as the next would not fit into the budget".into()));
}

#[test]
fn the_loads_of_the_first_turn_double_up_to_the_maximum() {
    let loads = |connections_min, connections_max| {
        let steps = steps(&SweepPlan { connections_min, connections_max, ..turn_plan() }, 1, 1_000_000_000);
        turns(&steps)[0].1.clone()
    };
    assert_eq!(loads(1, 20), [1, 2, 4, 8, 16, 20]);
    assert_eq!(loads(7, 7), [7]);
    assert_eq!(loads(0, 0), [1]);
}

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

/// The number of windows, and whether the cost settled.
fn windows(budget_s: u64, cost_us: impl Fn(usize) -> f64) -> (usize, bool) {
    let mut warm_up = WarmUp::new(budget_s * 1_000_000_000);
    let mut count = 0;
    loop {
        count += 1;
        if !warm_up.continues(1_000, Some(cost_us(count - 1)), count as u64 * WarmUp::WINDOW_NS) {
            return (count, warm_up.is_settled());
        }
    }
}

#[test]
fn the_warm_up_ends_when_the_cost_stops_falling_or_its_share_of_time_is_spent() {
    assert_eq!(windows(90, |_| 30.0), (3, true));
    let compiling = |at: usize| 30.0 + 150.0 * 0.5f64.powi(at as i32);
    let (count, is_settled) = windows(90, compiling);
    assert!((6..=10).contains(&count) && is_settled, "{count}");
    assert_eq!(windows(20, compiling), (6, false), "a tenth of the budget");
    assert_eq!(windows(90, |at| if at.is_multiple_of(2) { 30.0 } else { 33.0 }), (3, true), "noise");
    assert_eq!(windows(2, |_| 30.0), (1, false));
}

#[test]
fn the_warm_up_does_not_wait_for_a_slow_or_silent_server() {
    assert!(!WarmUp::new(u64::MAX).continues(5, Some(1e4), 0));
    assert!(!WarmUp::new(u64::MAX).continues(0, None, 0));
    let mut fell = WarmUp::new(u64::MAX);
    assert!(fell.continues(1_000, Some(178.0), 0) && fell.fell().is_none());
    assert!(fell.continues(1_000, Some(30.0), 0));
    assert_eq!(fell.fell(), Some((178.0, 30.0)));
}
