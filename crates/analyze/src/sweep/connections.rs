//! The sweep over connections: a quick geometric pass finds the region, then repeats in random order, refined where zones
//! change, until the yield point's interval is narrow or the time is spent.

use super::schedule::Schedule;
use super::{Load, Planner, Step, failed_twice, is_mostly_quiet, ladder};
use crate::disturbance::is_disturbed;
use crate::statistics::random;
use crate::zones::{self, SweepFindings, percent};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Point, Sweep};
use std::collections::BTreeSet;

/// The sweep over connections takes this share of the time left, when the search over rate follows.
const BUDGET_SHARE: f64 = 0.5;
/// Loads are refined until neighbours around a change of zone are this near.
const FINEST_RATIO: f64 = 1.25;
/// At most so many loads in one repeat.
const MAX_LOADS: usize = 24;
/// An interval rests on at least so many repeats (or all, if fewer are asked for).
const MIN_REPEATS: u32 = 3;

#[derive(Debug)]
enum Phase {
    /// What is left of the ladder.
    FirstPass(std::vec::IntoIter<u64>),
    Repeats,
    Done(String),
}

/// Plans the closed-loop sweep.
#[derive(Debug)]
pub struct ConnectionSweep {
    plan: SweepPlan,
    schedule: Schedule,
    random: ChaCha8Rng,
    phase: Phase,
    loads: BTreeSet<u64>,
    queue: Vec<u64>,
    repeat: u32,
    /// Loads of this repeat that are measured again, as other work disturbed their point.
    again: BTreeSet<u64>,
}

impl ConnectionSweep {
    /// A sweep by plan; the seed decides the order within repeats.
    pub fn new(plan: &SweepPlan, seed: u64) -> Self {
        ConnectionSweep {
            plan: plan.clone(),
            schedule: Schedule::new(plan, BUDGET_SHARE),
            random: random(seed),
            phase: Phase::FirstPass(ladder(plan).into_iter()),
            loads: BTreeSet::new(),
            queue: Vec::new(),
            repeat: 0,
            again: BTreeSet::new(),
        }
    }

    /// Takes another share of the remaining budget than half: 1 when no search over rate follows.
    pub fn with_budget_share(mut self, share: f64) -> Self {
        self.schedule.set_share(share);
        self
    }

    /// Puts the load just measured at the end of the repeat once more, where other work disturbed it and there is time: not
    /// where most points are disturbed, which measuring again would not mend.
    fn measure_again(&mut self, points: &[Point], left_ns: u64, elapsed_ns: u64) {
        let Some(last) = points.last().filter(|last| last.sweep == Sweep::Connections && last.repeat == self.repeat)
        else {
            return;
        };
        let fits = self.schedule.point_ns(elapsed_ns).saturating_mul(self.queue.len() as u64 + 1) <= left_ns;
        let load = last.connections;
        if is_disturbed(last) && fits && is_mostly_quiet(points, Sweep::Connections) && self.again.insert(load) {
            self.queue.insert(0, load);
        }
    }

    fn repeats(&self) -> u32 {
        self.plan.repeats.max(1)
    }

    fn spent(&self) -> String {
        match &self.phase {
            Phase::FirstPass(_) => "the time budget was spent during the first pass".into(),
            _ => format!("the time budget was spent in repeat {} of {}", self.repeat.max(1), self.repeats()),
        }
    }

    fn measure(&mut self, connections: u64, duration_ns: u64) -> Step {
        self.schedule.measure(Load::Connections(connections), self.repeat, duration_ns)
    }

    fn findings(&self, points: &[Point]) -> Option<SweepFindings> {
        zones::find(points, &self.plan.criteria).connections
    }

    fn start_repeat(&mut self, findings: &SweepFindings, left_ns: u64, elapsed_ns: u64) {
        self.refine(findings);
        let wanted = u64::from(self.repeats().min(MIN_REPEATS).saturating_sub(self.repeat).max(1));
        let fits = left_ns / self.schedule.point_ns(elapsed_ns).saturating_mul(wanted).max(1);
        self.thin(findings, usize::try_from(fits).unwrap_or(usize::MAX).max(5));
        self.repeat += 1;
        self.again.clear();
        self.queue = self.loads.iter().copied().collect();
        self.queue.shuffle(&mut self.random);
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

    /// Drops loads far from where zones change until a repeat fits, the ones first that leave the smallest hole.
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

    fn stop(&self, findings: &SweepFindings) -> Option<String> {
        let criteria = &self.plan.criteria;
        let found = &findings.yield_point;
        if self.repeat >= self.repeats().min(MIN_REPEATS) {
            if let (Some(estimate), Some(low), Some(high)) = (found.estimate, found.low, found.high) {
                let width = (high - low) / estimate;
                if width <= criteria.yield_interval_ratio || high.round() - low.round() <= 1.0 {
                    return Some(format!(
                        "the yield point's interval is narrow enough ({:.0} to {:.0} connections, {} of it) after {} repeats",
                        low,
                        high,
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
        (self.repeat >= self.repeats()).then(|| format!("all {} repeats were measured", self.repeat))
    }
}

impl Planner for ConnectionSweep {
    fn subject(&self) -> &str {
        "connections"
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> Step {
        let left_ns = self.schedule.left_ns(elapsed_ns);
        loop {
            if let Phase::Done(reason) = &self.phase {
                return Step::Done { reason: reason.clone() };
            }
            if left_ns == 0 {
                self.phase = Phase::Done(self.spent());
                continue;
            }
            match &mut self.phase {
                Phase::FirstPass(rest) => {
                    if let Some(load) = rest.next().filter(|_| !failed_twice(points, &self.plan.criteria)) {
                        self.loads.insert(load);
                        return self.measure(load, self.schedule.short_ns());
                    }
                    let Some(findings) = self.findings(points) else {
                        self.phase = Phase::Done("nothing could be measured".into());
                        continue;
                    };
                    self.phase = Phase::Repeats;
                    self.start_repeat(&findings, left_ns, elapsed_ns);
                    return Step::Yardstick;
                }
                Phase::Repeats => {
                    self.measure_again(points, left_ns, elapsed_ns);
                    if let Some(load) = self.queue.pop() {
                        return self.measure(load, self.schedule.full_ns());
                    }
                    let findings = self.findings(points);
                    let point_ns = self.schedule.point_ns(elapsed_ns).saturating_mul(self.loads.len() as u64);
                    self.phase = match findings {
                        None => Phase::Done("nothing could be measured".into()),
                        Some(findings) => match self.stop(&findings) {
                            Some(reason) => Phase::Done(reason),
                            // A repeat of which less than half can be measured is not worth its beginning.
                            None if left_ns < point_ns / 2 => Phase::Done(self.spent()),
                            None => {
                                self.start_repeat(&findings, left_ns, elapsed_ns);
                                return Step::Yardstick;
                            }
                        },
                    };
                }
                Phase::Done(_) => {}
            }
        }
    }
}
