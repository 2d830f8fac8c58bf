//! Measures two servers in turn, round by round, at the loads of the first server's first turn.
//!
//! In each round, both servers are measured at all loads in one random order. The server that comes first alternates
//! (A B, B A, ...), so that drift affects both. Windows are shortened so that all rounds fit into the budget.

use super::schedule::{SHORTEST_NS, WindowSchedule};
use super::{Load, Planner, Remeasured, SweepStep, done, failed_twice, ladder};
use crate::statistics::random;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::Point;
use record::scenario::SweepPlan;

const LEAST_ROUNDS: u32 = 2;
/// A round begins only if there is time for this share of the longest round.
const SHORTENED: f64 = 0.8;
/// Share of the first round's time for windows; the rest is not known yet.
const FIRST_SHARE: f64 = 0.7;

#[derive(Debug)]
enum TurnPhase {
    Begin,
    /// The first turn: upward until two consecutive loads failed.
    Search(std::vec::IntoIter<u64>),
    /// The remaining loads, the next one last.
    Measure(Vec<u64>),
}

/// The planner of a comparison of two servers.
#[derive(Debug)]
pub struct TurnSweep {
    plan: SweepPlan,
    schedule: WindowSchedule,
    random: ChaCha8Rng,
    phase: TurnPhase,
    loads: Vec<u64>,
    order: Vec<u64>,
    turns: u32,
    again: Remeasured,
    round_began_ns: u64,
    longest_round_ns: u64,
    window_ns: u64,
}

impl TurnSweep {
    /// A planner; the seed determines the order within rounds.
    pub fn new(plan: &SweepPlan, seed: u64) -> Self {
        TurnSweep {
            plan: plan.clone(),
            schedule: WindowSchedule::new(plan, 1.0),
            random: random(seed ^ 0x7475_726e),
            phase: TurnPhase::Begin,
            loads: Vec::new(),
            order: Vec::new(),
            turns: 0,
            again: Remeasured::default(),
            round_began_ns: 0,
            longest_round_ns: 0,
            window_ns: 0,
        }
    }

    fn rounds(&self) -> u32 {
        self.plan.repeats.max(LEAST_ROUNDS)
    }

    fn is_over(&mut self, round: u32, elapsed_ns: u64) -> Option<String> {
        if round > 0 {
            self.longest_round_ns = self.longest_round_ns.max(elapsed_ns.saturating_sub(self.round_began_ns));
        }
        self.round_began_ns = elapsed_ns;
        if round >= self.rounds() {
            return Some(format!("all {round} were measured"));
        }
        let least_ns = (SHORTENED * self.longest_round_ns as f64) as u64;
        let is_late = elapsed_ns.saturating_add(least_ns) > self.plan.budget_ns;
        (round >= LEAST_ROUNDS && is_late).then(|| format!("{round}, as the next would not fit into the budget"))
    }

    fn begin(&mut self, elapsed_ns: u64) -> Option<SweepStep> {
        let (round, turn) = (self.turns / 2, self.turns % 2);
        if turn == 0 {
            if let Some(reason) = self.is_over(round, elapsed_ns) {
                return Some(done(reason));
            }
            self.window_ns = self.window_of_round(round);
        }
        self.turns += 1;
        self.again.clear();
        if self.turns == 1 {
            // The run has already started this server.
            self.phase = TurnPhase::Search(ladder(&self.plan).into_iter());
            return None;
        }
        // Both servers visit the loads in the same order; in the first round that is the first server's search order.
        if turn == 0 || round == 0 {
            self.order = self.loads.clone();
            self.order.shuffle(&mut self.random);
        }
        self.phase = TurnPhase::Measure(self.order.clone());
        Some(SweepStep::Serve { server: ((round + turn) % 2) as usize })
    }

    /// The window with which all remaining rounds fit into the budget.
    fn window_of_round(&self, round: u32) -> u64 {
        let left_ns = self.schedule.left_ns() as f64;
        let loads = if self.loads.is_empty() { ladder(&self.plan).len() } else { self.loads.len() };
        let points = 2.0 * loads.max(1) as f64 * f64::from(self.rounds() - round);
        let full_ns = self.schedule.full_ns;
        let other_ns = self.schedule.point_ns().saturating_sub(self.schedule.with_warmup_ns(full_ns));
        let share = if round == 0 { FIRST_SHARE } else { 1.0 };
        let each_ns = share * left_ns / points - other_ns as f64;
        // The time before a window depends on its length.
        let without_ns = |window_ns: u64| (self.schedule.with_warmup_ns(window_ns) - window_ns) as f64;
        let guess_ns = (each_ns / 1.2).max(1.0) as u64;
        let window_ns = (each_ns - without_ns(guess_ns)).max(0.0) as u64;
        window_ns.max(SHORTEST_NS).min(full_ns)
    }

    fn measure(&mut self, load: u64, round: u32) -> SweepStep {
        self.schedule.measure(Load::Connections(load), round, self.window_ns)
    }
}

impl Planner for TurnSweep {
    fn subject(&self) -> &str {
        "rounds"
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep {
        self.schedule.at(elapsed_ns);
        let round = self.turns.saturating_sub(1) / 2;
        if let Some(load) = points.last().map(|last| last.connections)
            && elapsed_ns < self.plan.budget_ns
            && self.again.wants(Load::Connections(load), points, round)
        {
            match &mut self.phase {
                TurnPhase::Search(_) => return self.measure(load, round),
                TurnPhase::Measure(rest) => rest.insert(0, load),
                TurnPhase::Begin => {}
            }
        }
        loop {
            let round = self.turns.saturating_sub(1) / 2;
            match &mut self.phase {
                TurnPhase::Begin => {
                    if let Some(step) = self.begin(elapsed_ns) {
                        return step;
                    }
                }
                TurnPhase::Search(rest) => match rest.next().filter(|_| !failed_twice(points, &self.plan.criteria)) {
                    Some(load) => {
                        self.loads.push(load);
                        return self.measure(load, round);
                    }
                    None => {
                        self.phase = TurnPhase::Begin;
                        return SweepStep::Yardstick;
                    }
                },
                TurnPhase::Measure(rest) => match rest.pop() {
                    Some(load) => return self.measure(load, round),
                    None => {
                        self.phase = TurnPhase::Begin;
                        return SweepStep::Yardstick;
                    }
                },
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use record::{Arrival, Criteria};

    pub fn plan() -> SweepPlan {
        SweepPlan {
            connections_min: 1,
            connections_max: 64,
            repeats: 4,
            point_duration_ns: 1_000_000_000,
            warmup_ns: None,
            budget_ns: 900_000_000_000,
            open_connections: 1024,
            arrival: Arrival::Poisson,
            criteria: Criteria::default(),
            until_sure_ratio: None,
            unload: false,
            axis: None,
        }
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
        assert_eq!(
            steps.iter().filter(|step| **step == SweepStep::Yardstick).count(),
            8,
            "one at the end of each turn"
        );
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
}
