//! Two servers that are measured in turn.

use analyze::sweep::{Load, Planner, SweepStep, TurnSweep};
use record::scenario::SweepPlan;

fn plan() -> SweepPlan {
    SweepPlan { connections_max: 64, repeats: 4, ..crate::server::plan(900) }
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
    let steps = steps(&plan(), 1, 1_000_000_000);
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
    let with = |seed| steps(&plan(), seed, 1_000_000_000);
    assert_eq!(with(3), with(3));
    assert_ne!(with(3), with(4));
}

#[test]
fn windows_are_equal_for_both_servers_and_short_enough_for_all_rounds() {
    let measured = |budget_s: u64| {
        let plan = SweepPlan { budget_ns: budget_s * 1_000_000_000, repeats: 6, ..plan() };
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
        let plan = SweepPlan { budget_ns: budget_s * 1_000_000_000, ..plan() };
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
        let steps = steps(&SweepPlan { connections_min, connections_max, ..plan() }, 1, 1_000_000_000);
        turns(&steps)[0].1.clone()
    };
    assert_eq!(loads(1, 20), [1, 2, 4, 8, 16, 20]);
    assert_eq!(loads(7, 7), [7]);
    assert_eq!(loads(0, 0), [1]);
}
