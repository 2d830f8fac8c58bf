//! Measures two servers in turn, round by round, at the loads of the first server's first turn.
//!
//! In each round, both servers are measured at all loads in one random order. The server that comes first alternates
//! (A B, B A, ...), so that drift affects both. Windows are shortened so that all rounds fit into the budget.

use super::schedule::{SHORTEST_NS, WindowSchedule};
use super::{Load, Planner, Remeasured, SweepStep, done, failed_twice, ladder};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::Point;
use record::scenario::SweepPlan;
use statistics::random;

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
