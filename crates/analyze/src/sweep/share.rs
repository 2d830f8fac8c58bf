//! The search over shares of live traffic, which real users feel: upward in small steps from the usual share, smaller
//! ones near the limit, back to the usual share after a failure, then between the highest share that was held and the
//! lowest that failed.

use super::{Load, Planner, SweepStep, Trial, done};
use crate::zones::{REQUESTS, TrialResult, crossed, judged};
use record::scenario::{ShiftPlan, SweepPlan};
use record::{Criteria, Point, names};

/// Largest and smallest step, as ratios of two shares.
const STEP: f64 = 1.25;
const LEAST_STEP: f64 = 1.05;
/// The step once the 99th percentile has reached half of its limit.
const STEP_NEAR_LIMIT: f64 = 1.1;
/// Planned maximum busy share of the busiest resource after a step.
const BUSIEST: f64 = 0.97;
/// Shares between the bounds that are tried.
const REFINEMENTS: u32 = 3;
/// Points in a usual search; each takes this part of the budget.
const POINTS: u64 = 14;
const FAILS_AS_USUAL: &str = "the server fails at its usual share";
/// A point with few requests may take this part, to have enough for a percentile.
const LONGEST_PART: u64 = 8;
/// The measured part of a step; before it, connections move.
const WINDOW: f64 = 0.75;
const SHORTEST_NS: u64 = 2_000_000_000;
const LONGEST_NS: u64 = 60_000_000_000;

/// Plans the search over shares.
#[derive(Debug)]
pub struct ShareSearch {
    shift: ShiftPlan,
    criteria: Criteria,
    budget_ns: u64,
    started_ns: Option<u64>,
    refinements: u32,
    is_longer: bool,
}

/// A share that was tried, and its result.
struct TriedShare<'a> {
    share: f64,
    point: &'a Point,
    judged: Option<TrialResult>,
    /// Whether it crossed a limit, even if by few requests: users have felt it.
    is_failed: bool,
}

impl ShareSearch {
    /// A planner between the usual and the largest share.
    pub fn new(plan: &SweepPlan, shift: &ShiftPlan) -> Self {
        ShareSearch {
            shift: shift.clone(),
            criteria: plan.criteria,
            budget_ns: plan.budget_ns,
            started_ns: None,
            refinements: 0,
            is_longer: false,
        }
    }

    /// The share that a command takes: whole numbers if both given shares are whole.
    fn rounded(&self, share: f64) -> f64 {
        let is_whole = self.shift.usual.fract() == 0.0 && self.shift.most.fract() == 0.0;
        if is_whole { share.round() } else { (share * 1e4).round() / 1e4 }
    }

    /// The next share above one that was held.
    fn above(&self, held: &TriedShare<'_>) -> f64 {
        let value = |name| held.point.value(name);
        let used = value(names::SERVER_CPUS_USED).zip(value(names::SERVER_CPUS)).map(|(used, all)| used / all);
        let thread = value(names::SERVER_BUSIEST_THREAD);
        let busiest = [used, thread, value(names::SERVER_QUOTA_USED)].into_iter().flatten().fold(0.0, f64::max);
        let mut step = if busiest > 0.0 { (BUSIEST / busiest).clamp(LEAST_STEP, STEP) } else { STEP };
        let p99_us = held.point.value(names::RESPONSE_P99).unwrap_or(0.0);
        if 2e3 * p99_us > self.criteria.p99_limit_ns as f64 {
            step = step.min(STEP_NEAR_LIMIT);
        }
        let next = self.rounded(held.share * step);
        let next = if next > held.share { next } else { held.share + 1.0 };
        next.min(self.shift.most)
    }

    /// The share between two bounds; `None` if they are close enough or have none between them.
    fn between(&self, held: f64, failed: f64) -> Option<f64> {
        let middle = self.rounded((held * failed).sqrt());
        let is_close = failed / held <= 1.0 + self.criteria.bracket_ratio;
        (!is_close && middle > held && middle < failed && self.refinements < REFINEMENTS).then_some(middle)
    }

    fn measure(&self, share: f64, points: &[TriedShare<'_>]) -> SweepStep {
        let whole_ns = (self.budget_ns / POINTS).clamp(SHORTEST_NS, LONGEST_NS);
        let rate_per_sec = points.last().and_then(|last| last.point.value(names::OFFERED)).filter(|rate| *rate > 0.0);
        let needed_ns = rate_per_sec.map_or(0.0, |rate| WINDOW.recip() * 1e9 * REQUESTS as f64 / rate) as u64;
        let whole_ns = whole_ns.max(needed_ns.min(self.budget_ns / LONGEST_PART));
        let whole_ns = if self.is_longer { 2 * whole_ns } else { whole_ns };
        let repeat = points.iter().filter(|tried| tried.share == share).count() as u32;
        let warmup_ns = (whole_ns as f64 * (1.0 - WINDOW)) as u64;
        let load = Load::Share(share);
        SweepStep::Measure(Trial { load, repeat, duration_ns: whole_ns - warmup_ns, warmup_ns })
    }
}

impl Planner for ShareSearch {
    fn subject(&self) -> &str {
        "live traffic"
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep {
        let started_ns = *self.started_ns.get_or_insert(elapsed_ns);
        let tried = |point| {
            let share = Point::value(point, names::LIVE_SHARE)?;
            let has_crossed = crossed(point, &self.criteria).is_some_and(|crossed| !crossed.is_empty());
            let is_failed = has_crossed || point.value(names::LIVE_STEPPED_BACK).is_some();
            Some(TriedShare { share, point, judged: judged(point, &self.criteria), is_failed })
        };
        let tried: Vec<TriedShare<'_>> = points.iter().filter_map(tried).collect();
        let Some(last) = tried.last() else { return self.measure(self.shift.usual, &tried) };
        let unit = |share: f64| record::units::format_si(share);
        if elapsed_ns - started_ns >= self.budget_ns {
            return done("the time budget is spent");
        }
        let usual = self.shift.usual;
        if last.is_failed {
            self.is_longer = false;
            if last.share <= usual {
                let has_held = tried.iter().any(|tried| tried.share == usual && !tried.is_failed);
                let reason = if has_held { "the server has not recovered at its usual share" } else { FAILS_AS_USUAL };
                return done(reason);
            }
            // Checks that the server recovers before it gets more traffic.
            return self.measure(usual, &tried);
        }
        if last.judged != Some(TrialResult::Held) && !self.is_longer {
            self.is_longer = true;
            return self.measure(last.share, &tried);
        }
        self.is_longer = false;
        let failed =
            tried.iter().filter(|tried| tried.is_failed).map(|tried| tried.share).fold(f64::INFINITY, f64::min);
        let held = tried.iter().filter(|tried| !tried.is_failed && tried.share < failed);
        let Some(held) = held.max_by(|a, b| a.share.total_cmp(&b.share)) else {
            return done(FAILS_AS_USUAL);
        };
        if failed.is_infinite() {
            if held.share >= self.shift.most {
                return done(format!("the largest permitted share, {}, was held", unit(held.share)));
            }
            return self.measure(self.above(held), &tried);
        }
        if let Some(middle) = self.between(held.share, failed) {
            self.refinements += 1;
            return self.measure(middle, &tried);
        }
        done(format!("share {} was held and {} was not", unit(held.share), unit(failed)))
    }
}
