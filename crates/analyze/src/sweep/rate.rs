//! The search over rate, similar to MLRsearch (Polak and Konstantynowicz, "Multiple Loss Ratio Search", RFC 9971):
//! outward in growing steps with short trials, then bisection with trials that grow to full length, then blocks in
//! random order that confirm both bounds and measure the curve. A trial that is too short to judge
//! ([`super::length`]) is repeated with twice the length; if the budget does not permit that, its rate stays
//! undecided.

use super::length::{needed_ns, too_short};
use super::schedule::WindowSchedule;
use super::{Load, MIN_REPEATS, Planner, Remeasured, SweepStep, all_measured, done, sure};
use crate::zones::{self, PointFinding, STALLS, SweepFindings, TrialResult, judged, percent, stall_ns};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Point, Sweep};
use statistics::random;
use std::collections::BTreeSet;

/// Points of the curve, as shares of the lower and the upper bound. A nearby rate that was measured before replaces
/// one.
const BELOW: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.9];
const BEYOND: [f64; 2] = [1.1, 1.25];
/// The same points in order of importance, for little time.
const FIRST: [f64; 7] = [0.8, 1.1, 0.9, 0.6, 0.4, 1.25, 0.2];
/// Width of the bracket from which on trials get longer.
const NEARLY: f64 = 0.25;
/// A trial of the search gets at most this part of the remaining time, and so does a repeated trial or one of a
/// block.
const SEARCH_PART: u64 = 8;
const LONGEST_PART: u64 = 4;
/// Bisection leaves the time of this many full trials to the blocks.
const RESERVED: u64 = 4;
/// Number of low rates that remain when only the bounds matter; above the bounds one remains.
const NEAREST: usize = 4;
/// The first rate without a hint, requests per second.
const BLIND_START_PER_SEC: f64 = 100.0;
/// Maximum steps of the search; beyond them it does not converge.
const MAX_OUTWARD: u32 = 40;
const MAX_BISECTIONS: u32 = 16;
const HIGHEST_PER_SEC: f64 = 1e8;
const LOWEST_PER_SEC: f64 = 0.1;
/// Minimum number of grid rates per octave; neighbours differ by 4.4 %.
const LEAST_IN_OCTAVE: i64 = 16;

/// The rates of a search: octaves from the first one, divided into steps no larger than the wanted width. A repeated
/// rate is exactly the same.
#[derive(Debug, Clone, Copy)]
struct Grid {
    anchor_per_sec: f64,
    in_octave: i64,
}

impl Grid {
    fn new(anchor_per_sec: f64, wanted_ratio: f64) -> Self {
        let mut in_octave = LEAST_IN_OCTAVE;
        while (1.0 / in_octave as f64).exp2() - 1.0 > wanted_ratio {
            in_octave *= 2;
        }
        Grid { anchor_per_sec, in_octave }
    }

    fn rate(self, place: i64) -> f64 {
        self.anchor_per_sec * (place as f64 / self.in_octave as f64).exp2()
    }

    fn place(self, rate: f64) -> i64 {
        self.steps(rate / self.anchor_per_sec)
    }

    fn steps(self, ratio: f64) -> i64 {
        (ratio.log2() * self.in_octave as f64).round() as i64
    }
}

/// Plans the open-loop search.
#[derive(Debug)]
pub struct RateSearch {
    plan: SweepPlan,
    schedule: WindowSchedule,
    random: ChaCha8Rng,
    grid: Grid,
    in_blocks: BTreeSet<i64>,
    /// Factor of the first steps: small with a hint, 2 without.
    outward_factor: f64,
    outward: u32,
    bisections: u32,
    repeat: u32,
    queue: Vec<f64>,
    /// Whether the last step belonged to the search, so that its result decides the next.
    is_searching: bool,
    /// Places whose trials stayed undecided at the greatest length that the budget permits.
    undecided: BTreeSet<i64>,
    /// Rates of this block that are measured again because other work disturbed them.
    again: Remeasured,
    known: Option<String>,
}

impl RateSearch {
    /// A planner. `hint_per_sec`: goodput of the closed loop while it met the criteria, if one was measured.
    pub fn new(plan: &SweepPlan, hint_per_sec: Option<f64>, seed: u64) -> Self {
        let hint = hint_per_sec.filter(|hint| hint.is_finite() && *hint > 0.0);
        RateSearch {
            plan: plan.clone(),
            schedule: WindowSchedule::new(plan, 1.0),
            random: random(seed ^ 0x7261_7465),
            grid: Grid::new(
                hint.map_or(BLIND_START_PER_SEC, |hint| 0.9 * hint).clamp(LOWEST_PER_SEC, HIGHEST_PER_SEC),
                wanted_ratio(plan),
            ),
            in_blocks: BTreeSet::new(),
            outward_factor: if hint.is_some() { 1.15 } else { 2.0 },
            outward: 0,
            bisections: 0,
            repeat: 0,
            queue: Vec::new(),
            is_searching: false,
            undecided: BTreeSet::new(),
            again: Remeasured::default(),
            known: None,
        }
    }

    /// Adds a disturbed rate to the block again if time permits; the search measures it again at once.
    fn measure_again(&mut self, points: &[Point]) {
        let Some(rate) = points.last().and_then(|last| last.offered_per_sec()) else { return };
        let fits = self.schedule.points_ns(self.queue.len() + 1) <= self.schedule.left_ns();
        if fits && self.again.wants(Load::Rate(rate), points, self.repeat) {
            self.queue.insert(0, rate);
        }
    }

    fn blocks(&self) -> u32 {
        self.plan.repeats.max(1)
    }

    /// The number of grid steps to go outward, which grows, so that a wrong hint costs few trials.
    fn steps(&self) -> i64 {
        self.grid.steps(self.outward_factor.powi(1 << self.outward.saturating_sub(1).min(3)).min(4.0))
    }

    /// The length of a trial that confirms a bound or measures the curve.
    fn full_ns(&self, points: &[Point], rate: f64) -> u64 {
        let needed_ns = needed_ns(points, rate, &self.plan.criteria).min(self.schedule.left_ns() / LONGEST_PART);
        self.schedule.full_ns.max(needed_ns)
    }

    /// Repeats the last trial of the search at least twice as long, if it was too short to judge.
    fn longer(&mut self, points: &[Point]) -> Option<SweepStep> {
        let last = points.last().filter(|last| self.is_searching && last.sweep == Sweep::Rate)?;
        let rate = last.offered_per_sec()?;
        // At a low rate, a short window may contain no request.
        let is_empty = last.outcomes.requests() == 0;
        if judged(last, &self.plan.criteria) != Some(TrialResult::Unclear) && !is_empty {
            return None;
        }
        let wanted_ns = (2 * last.duration_ns).max((STALLS * stall_ns(last)) as u64);
        let next_ns = wanted_ns.min(self.schedule.left_ns() / LONGEST_PART);
        if 2 * next_ns < 3 * last.duration_ns {
            self.undecided.insert(self.grid.place(rate));
            return None;
        }
        Some(self.measure(rate, next_ns))
    }

    /// The next place in this direction that is not undecided.
    fn decided(&self, from: i64, direction: i64) -> i64 {
        let mut place = from;
        while self.undecided.contains(&place) {
            place += direction;
        }
        place
    }

    /// The place between two others that is closest to their middle and not undecided.
    fn middle(&self, low: i64, high: i64) -> Option<i64> {
        let middle = (low + high).div_euclid(2);
        let between = (low + 1..high).filter(|place| !self.undecided.contains(place));
        between.min_by_key(|place| (place - middle).abs())
    }

    fn outward(&mut self, points: &[Point], from: i64, direction: i64) -> SweepStep {
        let rate = self.grid.rate(self.decided(from + direction * self.steps(), direction));
        self.outward += 1;
        if self.outward > MAX_OUTWARD || !(LOWEST_PER_SEC..=HIGHEST_PER_SEC).contains(&rate) {
            return done(format!("no change from holding to failing up to {}/s", record::units::format_si(rate)));
        }
        self.search(points, rate, self.schedule.short_ns())
    }

    fn search(&mut self, points: &[Point], rate: f64, base_ns: u64) -> SweepStep {
        self.is_searching = true;
        let needed_ns = needed_ns(points, rate, &self.plan.criteria).min(self.schedule.left_ns() / SEARCH_PART);
        self.measure(rate, base_ns.max(needed_ns))
    }

    /// With both bounds known: bisects, then confirms them in blocks.
    fn between(&mut self, points: &[Point], findings: &SweepFindings, bounds: [f64; 2]) -> SweepStep {
        let [lower, upper] = bounds;
        let found = &findings.failure_point;
        let width = upper / lower - 1.0;
        let wanted = wanted_ratio(&self.plan);
        let (left_ns, point_ns) = (self.schedule.left_ns(), self.schedule.point_ns());
        let has_time = left_ns > RESERVED * point_ns;
        // A server can fail by its response times while it still answers all requests. Overload shows its capacity.
        let is_overloaded = findings.levels.iter().any(|level| level.load >= BEYOND[0] * upper);
        if !is_overloaded && (width <= NEARLY || !has_time) {
            let place = self.grid.place(upper) + self.grid.steps(BEYOND[1]);
            return self.search(points, self.grid.rate(place), self.schedule.middle_ns());
        }
        if width > wanted * (1.0 + 1e-9)
            && has_time
            && self.bisections < MAX_BISECTIONS
            && let Some(middle) = self.middle(self.grid.place(lower), self.grid.place(upper))
        {
            self.bisections += 1;
            let duration_ns = if self.repeat > 0 || width <= 2.5 * wanted {
                self.schedule.full_ns
            } else if width <= NEARLY {
                self.schedule.middle_ns()
            } else {
                self.schedule.short_ns()
            };
            return self.search(points, self.grid.rate(middle), duration_ns);
        }
        let needed = self.blocks().min(MIN_REPEATS);
        let confirmed = self.full_trials(points, lower).min(self.full_trials(points, upper));
        let is_sure = match (self.plan.until_sure_ratio, found.width_ratio()) {
            (None, _) => true,
            (Some(asked), Some(known)) => known <= asked,
            (Some(_), None) => false,
        };
        if confirmed >= needed && self.repeat >= needed && width <= wanted * (1.0 + 1e-9) && is_sure {
            return done(format!(
                "the failure point is bracketed within {} and both bounds were confirmed by {confirmed} trials",
                percent(width)
            ));
        }
        if self.repeat >= self.blocks() {
            return done(format!(
                "{}; failure is bracketed within {}",
                all_measured(self.repeat, "block"),
                percent(width)
            ));
        }
        let fits = usize::try_from(left_ns / point_ns.max(1)).unwrap_or(usize::MAX);
        if fits < 2 {
            return done(self.spent());
        }
        self.repeat += 1;
        self.again.clear();
        self.bisections = self.bisections.min(MAX_BISECTIONS / 2);
        // After the curve is measured, only rates near the bounds narrow the interval.
        let drawn = if self.plan.until_sure_ratio.is_some() && self.repeat > needed { NEAREST } else { 0 };
        self.queue = self.block(bounds, drawn, fits);
        self.queue.retain(|rate| (LOWEST_PER_SEC..=HIGHEST_PER_SEC).contains(rate));
        self.queue.shuffle(&mut self.random);
        // The rate that was measured last must not come first.
        if points.last().and_then(Point::offered_per_sec) == self.queue.last().copied() {
            self.queue.reverse();
        }
        let times = sure::RepeatTimes { repeat_ns: self.schedule.points_ns(self.queue.len()), left_ns };
        self.known = sure::width_words(&self.plan, found, ("failing rate", Sweep::Rate), self.repeat - 1, times);
        SweepStep::Yardstick
    }

    /// The rates of a block, at most `fits`: both bounds, and the curve without its `drawn` lowest rates.
    fn block(&mut self, bounds: [f64; 2], drawn: usize, fits: usize) -> Vec<f64> {
        let bounds = bounds.map(|rate| self.grid.place(rate));
        let is_drawn = |share: f64| {
            BELOW[drawn.min(BELOW.len())..].contains(&share)
                || BEYOND[..BEYOND.len() - drawn / NEAREST].contains(&share)
        };
        let mut places = BTreeSet::from(bounds);
        for share in FIRST.into_iter().filter(|share| is_drawn(*share)) {
            if places.len() >= fits {
                break;
            }
            let (bound, steps) = (bounds[usize::from(share > 1.0)], self.grid.steps(share));
            // Prefers a rate of an earlier block that is up to a third nearer or farther.
            let (wanted, about) = (bound + steps, (steps.abs() / 3).max(1));
            let is_of_curve = |place: i64| (place - bound).signum() == steps.signum() && !places.contains(&place);
            let earlier = self.in_blocks.range(wanted - about..=wanted + about).copied();
            let nearest = earlier.filter(|place| is_of_curve(*place)).min_by_key(|place| (place - wanted).abs());
            let chosen = nearest.or(Some(wanted).filter(|place| is_of_curve(*place)));
            places.extend(chosen);
        }
        self.in_blocks.extend(&places);
        places.into_iter().map(|place| self.grid.rate(place)).collect()
    }

    fn full_trials(&self, points: &[Point], rate: f64) -> u32 {
        let full = |point: &&Point| {
            point.sweep == Sweep::Rate
                && point.offered_per_sec() == Some(rate)
                && point.duration_ns as f64 >= 0.6 * self.schedule.full_ns as f64
        };
        points.iter().filter(full).count() as u32
    }

    /// The rate of the last trial, if the client could not send it.
    fn client_limit(&self, points: &[Point], findings: &SweepFindings) -> Option<f64> {
        let last = points.iter().rev().find(|point| point.sweep == Sweep::Rate)?;
        let rate = last.offered_per_sec()?;
        let level = findings.level(rate)?;
        let PointFinding { held, failed, .. } = findings.failure_point;
        (level.client_limited && failed.is_none() && held != Some(rate)).then_some(rate)
    }

    /// The trial is shortened to the budget.
    fn measure(&mut self, rate_per_sec: f64, duration_ns: u64) -> SweepStep {
        let duration_ns = self.schedule.within(duration_ns);
        self.schedule.measure(Load::Rate(rate_per_sec), self.repeat, duration_ns)
    }

    fn spent(&self) -> String {
        let during = if self.repeat == 0 { "during the search".into() } else { format!("in block {}", self.repeat) };
        format!("the time budget was spent {during}")
    }
}

impl Planner for RateSearch {
    fn subject(&self) -> &str {
        "rate"
    }

    fn known(&self) -> Option<&str> {
        self.known.as_deref()
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep {
        self.schedule.at(elapsed_ns);
        if self.schedule.is_spent() {
            let undecided = self.undecided.iter().rev();
            let unclear = undecided
                .filter_map(|place| too_short(points, self.grid.rate(*place), &self.plan.criteria))
                .map(|why| format!("; {why}"))
                .next();
            return done(self.spent() + &unclear.unwrap_or_default());
        }
        if let Some(longer) = self.longer(points) {
            return longer;
        }
        self.measure_again(points);
        self.is_searching = false;
        if let Some(rate) = self.queue.pop() {
            return self.measure(rate, self.full_ns(points, rate));
        }
        let Some(findings) = zones::of_sweep(points, Sweep::Rate, &self.plan.criteria) else {
            if self.outward > 0 {
                return done("nothing could be measured");
            }
            self.outward += 1;
            return self.search(points, self.grid.rate(0), self.schedule.short_ns());
        };
        if let Some(rate) = self.client_limit(points, &findings) {
            return done(format!(
                "the client was saturated at {}/s before the server failed",
                record::units::format_si(rate)
            ));
        }
        let found = &findings.failure_point;
        match (found.held, found.failed) {
            (Some(lower), Some(upper)) => self.between(points, &findings, [lower, upper]),
            (Some(lower), None) => self.outward(points, self.grid.place(lower), 1),
            (None, Some(upper)) => self.outward(points, self.grid.place(upper), -1),
            // No window was long enough to judge.
            (None, None) => match self.undecided.first() {
                Some(lowest) => self.outward(points, *lowest, -1),
                None => done("no trial could be judged"),
            },
        }
    }
}

fn wanted_ratio(plan: &SweepPlan) -> f64 {
    plan.criteria.bracket_ratio.max(0.001)
}
