//! The sweep over connections. A quick geometric pass finds the region; then repeats in random order follow, refined
//! where zones change, until the yield point's interval is narrow or the time is spent. With an unloading curve, a
//! repeat goes up in order and then down, without a restart of the server.

use super::schedule::WindowSchedule;
use super::{Load, MIN_REPEATS, Planner, Remeasured, SweepStep, all_measured, done, failed_twice, ladder, sure};
use crate::zones::{self, SweepFindings, percent};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Point, Sweep};
use statistics::random;
use std::collections::BTreeSet;

/// The share of the remaining time for the sweep over connections when the search over rate follows.
const BUDGET_SHARE: f64 = 0.5;
/// Loads are refined until neighbours around a change of zone differ by this factor.
const FINEST_RATIO: f64 = 1.25;
/// Maximum number of loads that refining adds at once.
const REFINED: usize = 2;
const MAX_LOADS: usize = 24;

#[derive(Debug)]
enum ConnectionPhase {
    /// The remaining loads, ascending.
    FirstPass(std::vec::IntoIter<u64>),
    Repeats,
}

/// The planner of the closed-loop sweep.
#[derive(Debug)]
pub struct ConnectionSweep {
    plan: SweepPlan,
    schedule: WindowSchedule,
    random: ChaCha8Rng,
    phase: ConnectionPhase,
    loads: BTreeSet<u64>,
    /// The remaining loads of the repeat, the next one last.
    queue: Vec<Load>,
    /// The loads that the first pass left out after two failures.
    higher: std::vec::IntoIter<u64>,
    known: Option<String>,
    repeat: u32,
    /// Loads of this repeat that are measured again because other work disturbed them.
    again: Remeasured,
}

impl ConnectionSweep {
    /// A sweep by plan; the seed determines the order within repeats.
    pub fn new(plan: &SweepPlan, seed: u64) -> Self {
        ConnectionSweep {
            plan: plan.clone(),
            schedule: WindowSchedule::new(plan, BUDGET_SHARE),
            random: random(seed),
            phase: ConnectionPhase::FirstPass(ladder(plan).into_iter()),
            loads: BTreeSet::new(),
            queue: Vec::new(),
            higher: Vec::new().into_iter(),
            known: None,
            repeat: 0,
            again: Remeasured::default(),
        }
    }

    /// With all of the remaining budget: no search over rate follows.
    pub fn alone(mut self) -> Self {
        self.schedule.share = 1.0;
        self
    }

    /// Adds a disturbed load to the repeat again if time permits; as the next one if the order matters.
    fn measure_again(&mut self, points: &[Point]) {
        let load = match points.last() {
            Some(last) if last.sweep == Sweep::Unloading => Load::Unloading(last.connections),
            Some(last) => Load::Connections(last.connections),
            None => return,
        };
        let fits = self.schedule.points_ns(self.queue.len() + 1) <= self.schedule.left_ns();
        if fits && self.again.wants(load, points, self.repeat) {
            self.queue.insert(if self.plan.unload { self.queue.len() } else { 0 }, load);
        }
    }

    fn repeats(&self) -> u32 {
        self.plan.repeats.max(1)
    }

    fn spent(&self) -> String {
        match &self.phase {
            ConnectionPhase::FirstPass(_) => "the time budget was spent during the first pass".into(),
            _ if self.plan.until_sure_ratio.is_some() => {
                format!("the time limit was spent in repeat {}", self.repeat.max(1))
            }
            _ => format!("the time budget was spent in repeat {} of {}", self.repeat.max(1), self.repeats()),
        }
    }

    fn measure(&mut self, load: Load, duration_ns: u64) -> SweepStep {
        self.schedule.measure(load, self.repeat, duration_ns)
    }

    fn ways(&self) -> usize {
        if self.plan.unload { 2 } else { 1 }
    }

    fn order(&mut self, findings: &SweepFindings) -> Vec<Load> {
        // With enough repeats, only loads near the knee narrow its interval.
        let knee = findings.yield_point.estimate.filter(|_| self.plan.until_sure_ratio.is_some());
        let knee = knee.filter(|_| self.repeat > MIN_REPEATS && !self.plan.unload);
        let is_far = |load: u64| knee.is_some_and(|knee| !statistics::knee::speaks_for(knee, load as f64));
        let mut up: Vec<u64> = self.loads.iter().copied().filter(|load| !is_far(*load)).collect();
        if self.plan.unload {
            let down = up.iter().rev().skip(1).map(|load| Load::Unloading(*load));
            return up.iter().map(|load| Load::Connections(*load)).chain(down).collect();
        }
        up.shuffle(&mut self.random);
        up.into_iter().map(Load::Connections).collect()
    }

    fn findings(&self, points: &[Point]) -> Option<SweepFindings> {
        zones::of_sweep(points, Sweep::Connections, &self.plan.criteria)
    }

    fn start_repeat(&mut self, findings: &SweepFindings) {
        let wanted = self.repeats().min(MIN_REPEATS).saturating_sub(self.repeat).max(1) as usize;
        let fits = self.schedule.left_ns() / self.schedule.points_ns(wanted * self.ways()).max(1);
        let fits = usize::try_from(fits).unwrap_or(usize::MAX).max(5);
        // A way down must be complete, so no load is added if the repeats would not fit.
        if !self.plan.unload || self.loads.len() + REFINED <= fits {
            self.refine(findings);
        }
        self.thin(findings, fits);
        self.repeat += 1;
        self.again.clear();
        self.queue = self.order(findings);
        self.queue.reverse();
        let name = ("yield point", Sweep::Connections);
        let repeat_ns = self.schedule.points_ns(self.queue.len());
        let times = sure::RepeatTimes { repeat_ns, left_ns: self.schedule.left_ns() };
        self.known = sure::width_words(&self.plan, &findings.yield_point, name, self.repeat - 1, times);
    }

    /// Adds the geometric middle between the loads on either side of the yield point and of the failure point.
    fn refine(&mut self, findings: &SweepFindings) {
        for point in [&findings.yield_point, &findings.failure_point] {
            let Some(estimate) = point.estimate else { continue };
            let below = self.loads.iter().copied().rfind(|load| *load as f64 <= estimate);
            let above = self.loads.iter().copied().find(|load| *load as f64 > estimate);
            if let (Some(below), Some(above)) = (below, above) {
                let middle = (below as f64 * above as f64).sqrt().round() as u64;
                let coarse = above as f64 / below as f64 > FINEST_RATIO;
                if coarse && middle > below && middle < above && self.loads.len() < MAX_LOADS {
                    self.loads.insert(middle);
                }
            }
        }
    }

    /// Drops loads far from a change of zone until a repeat fits, first those with the closest neighbours.
    fn thin(&mut self, findings: &SweepFindings, fits: usize) {
        let near = |load: u64| {
            [&findings.yield_point, &findings.failure_point]
                .into_iter()
                .any(|point| point.estimate.is_some_and(|estimate| (load as f64 / estimate).ln().abs() <= 2.1f64.ln()))
        };
        while self.loads.len() > fits {
            let loads: Vec<u64> = self.loads.iter().copied().collect();
            let hole = |at: usize| loads[at + 1] as f64 / loads[at - 1] as f64;
            let candidate = (1..loads.len() - 1)
                .filter(|at| !near(loads[*at]))
                .min_by(|a, b| hole(*a).total_cmp(&hole(*b)).then(loads[*b].cmp(&loads[*a])));
            let Some(at) = candidate else { break };
            self.loads.remove(&loads[at]);
        }
    }

    /// Whether the failures that ended the first pass did not recur. A server that is slow after its start (cold
    /// cache, uncompiled code) fails at the lowest loads.
    fn is_cut_short(&self, findings: &SweepFindings, points: &[Point]) -> bool {
        // With two loads, failures in the first pass may outweigh later successes.
        let is_found = self.loads.len() > 2 && findings.failure_point.failed.is_some();
        let has_failed = is_found || failed_twice(points, &self.plan.criteria);
        self.higher.len() > 0 && !has_failed && !self.plan.unload
    }

    fn stop(&self, findings: &SweepFindings) -> Option<String> {
        let criteria = &self.plan.criteria;
        let found = &findings.yield_point;
        if self.repeat >= self.repeats().min(MIN_REPEATS) {
            if let (Some(width), Some(low), Some(high)) = (found.width_ratio(), found.low, found.high) {
                let is_whole = self.plan.until_sure_ratio.is_none() && high.round() - low.round() <= 1.0;
                if width <= criteria.yield_interval_ratio || is_whole {
                    return Some(format!(
                        "the yield point's interval is narrow enough ({} connections, {} of it) after {} repeats",
                        crate::zones::interval(found, Sweep::Connections).trim_matches([' ', '(', ')']),
                        percent(width),
                        self.repeat
                    ));
                }
            } else if found.estimate.is_none() {
                return Some(format!(
                    "there is no yield point to narrow after {} repeats: {}",
                    self.repeat, found.reason
                ));
            }
        }
        (self.repeat >= self.repeats()).then(|| all_measured(self.repeat, "repeat"))
    }
}

impl Planner for ConnectionSweep {
    fn subject(&self) -> &str {
        "connections"
    }

    fn known(&self) -> Option<&str> {
        self.known.as_deref()
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep {
        self.schedule.at(elapsed_ns);
        if self.schedule.is_spent() {
            return done(self.spent());
        }
        loop {
            match &mut self.phase {
                ConnectionPhase::FirstPass(rest) => {
                    // A load that failed because of a disturbance must not end the pass.
                    if let Some(load) = points.last().map(|last| last.connections)
                        && self.again.wants(Load::Connections(load), points, self.repeat)
                    {
                        return self.measure(Load::Connections(load), self.schedule.short_ns());
                    }
                    if !failed_twice(points, &self.plan.criteria)
                        && let Some(load) = rest.next()
                    {
                        self.loads.insert(load);
                        return self.measure(Load::Connections(load), self.schedule.short_ns());
                    }
                    self.higher = std::mem::take(rest);
                    let Some(findings) = self.findings(points) else { return done("nothing could be measured") };
                    self.phase = ConnectionPhase::Repeats;
                    self.start_repeat(&findings);
                    return SweepStep::Yardstick;
                }
                ConnectionPhase::Repeats => {
                    self.measure_again(points);
                    if let Some(load) = self.queue.pop() {
                        return self.measure(load, self.schedule.full_ns);
                    }
                    let Some(findings) = self.findings(points) else { return done("nothing could be measured") };
                    if self.is_cut_short(&findings, points) {
                        self.phase = ConnectionPhase::FirstPass(std::mem::take(&mut self.higher));
                        continue;
                    }
                    if let Some(reason) = self.stop(&findings) {
                        return done(reason);
                    }
                    // A repeat of which less than half would fit is not begun.
                    if self.schedule.left_ns() < self.schedule.points_ns(self.loads.len() * self.ways()) / 2 {
                        return done(self.spent());
                    }
                    self.start_repeat(&findings);
                    return SweepStep::Yardstick;
                }
            }
        }
    }
}
