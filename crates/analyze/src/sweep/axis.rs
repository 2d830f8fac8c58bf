//! The planner of an axis: the same values in every repeat, in a random order, so that drift and after-effects of a
//! point affect all values equally. Conforming connections are searched first: by doubling, then by bisection.

use super::schedule::WindowSchedule;
use super::{Load, Planner, Remeasured, SweepStep, all_measured, done, ladder};
use crate::axis::conforms;
use crate::disturbance::counted;
use crate::point::cpu_us;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use record::axis::MAX_SLOW_DOWN_NS;
use record::scenario::SweepPlan;
use record::{Axis, AxisPlace, AxisPlan, Point, SlowPlace, Sweep, names};
use statistics::random;

const GEOMETRIC_FACTOR: f64 = 2.0;
const MAX_VALUES: usize = 64;
/// Offered rates as shares of the capacity; those beyond the requested overload are left out.
const RATES: [f64; 12] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0];

/// The planner of an axis.
#[derive(Debug)]
pub struct AxisSweep {
    axis: AxisPlan,
    repeats: u32,
    schedule: WindowSchedule,
    random: ChaCha8Rng,
    values: Vec<f64>,
    places: Vec<AxisPlace>,
    queue: Vec<AxisPlace>,
    repeat: u32,
    again: Remeasured,
    /// The search for conforming connections.
    search: Option<Bracketing>,
    /// Whether the places had their trial to find delays.
    is_tried: bool,
}

#[derive(Debug, Clone, Copy)]
struct Bracketing {
    low: f64,
    high: f64,
    bracket_ratio: f64,
}

impl AxisSweep {
    /// A planner. `capacity_per_sec`: peak throughput of a closed loop, for rates that are not given. The seed
    /// determines the order within repeats.
    pub fn new(axis: &AxisPlan, plan: &SweepPlan, capacity_per_sec: Option<f64>, seed: u64) -> Self {
        let is_searched = axis.axis == Axis::Conforming && axis.values.is_empty();
        let search = is_searched.then_some(Bracketing {
            low: plan.connections_min.max(1) as f64,
            high: plan.connections_max.max(plan.connections_min.max(1)) as f64,
            bracket_ratio: plan.criteria.bracket_ratio,
        });
        let mut values =
            if axis.values.is_empty() { own_values(axis, plan, capacity_per_sec) } else { axis.values.clone() };
        values.retain(|value| value.is_finite() && *value >= 0.0);
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.truncate(MAX_VALUES);
        let values = if is_searched { Vec::new() } else { values };
        AxisSweep {
            places: places(axis, &values),
            is_tried: axis.axis != Axis::SlowDown || !values.is_empty(),
            axis: axis.clone(),
            repeats: plan.repeats.max(1),
            schedule: WindowSchedule::new(plan, 1.0),
            random: random(seed ^ 0x6178_6973),
            values,
            queue: Vec::new(),
            repeat: 0,
            again: Remeasured::default(),
            search,
        }
    }

    /// The highest value to measure, if known.
    pub fn most(&self) -> f64 {
        self.values.iter().copied().fold(self.search.map_or(0.0, |search| search.high), f64::max)
    }

    /// The time for all slow-downs if requests reach every place, nanoseconds.
    pub fn slow_down_ns(&self) -> u64 {
        let places = self.axis.slowed.len() as u64;
        let (tried, delays) = if self.is_tried {
            (0, self.places.len() as u64 - 2)
        } else {
            (places + 2, places * SLOW_DOWN_RATIOS.len() as u64)
        };
        let points = tried + u64::from(self.repeats) * (delays + 2);
        points.saturating_mul(self.schedule.with_warmup_ns(self.schedule.full_ns))
    }

    fn measure(&mut self, place: AxisPlace) -> SweepStep {
        self.schedule.measure(Load::Place(place), self.repeat, self.schedule.full_ns)
    }

    /// The next value of the search. At its end `None`, and the values to repeat are set.
    fn searched(&mut self, search: Bracketing, points: &[Point]) -> Option<f64> {
        let verdict = |value: f64| {
            let is_there =
                |point: &&Point| point.sweep == Sweep::Axis && point.axis.is_some_and(|place| place.value == value);
            let there: Vec<&Point> = points.iter().filter(is_there).collect();
            let shares: Vec<f64> = counted(&there).iter().filter_map(|point| point.value(names::CONFORMING)).collect();
            conforms(&shares, self.axis.conforming_ratio)
        };
        let mut tried: Vec<f64> = self.values.clone();
        tried.sort_by(f64::total_cmp);
        let judged: Vec<(f64, bool)> = tried.iter().filter_map(|value| Some((*value, verdict(*value)?))).collect();
        // A value that cannot be judged (no answers) does not conform.
        let failed = tried.iter().copied().find(|value| !judged.iter().any(|(at, holds)| at == value && *holds));
        let held = tried.iter().copied().rfind(|value| failed.is_none_or(|failed| *value < failed));
        let next = match (held, failed) {
            (None, None) => Some(search.low),
            (Some(held), None) if held < search.high => Some((held * GEOMETRIC_FACTOR).min(search.high)),
            (Some(held), Some(failed)) => {
                let middle = ((held + failed) / 2.0).round();
                (failed / held - 1.0 > search.bracket_ratio && middle > held && middle < failed).then_some(middle)
            }
            _ => None,
        };
        match next {
            Some(value) if self.values.len() < MAX_VALUES => {
                self.values.push(value);
                Some(value)
            }
            _ => {
                // The bounds, and values slightly below and above, are repeated.
                let at = tried.iter().position(|value| Some(*value) == held).unwrap_or(0);
                self.values = tried[at.saturating_sub(2)..(at + 3).min(tried.len())].to_vec();
                self.places = places(&self.axis, &self.values);
                None
            }
        }
    }
}

impl Planner for AxisSweep {
    fn subject(&self) -> &str {
        self.axis.axis.word()
    }

    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep {
        self.schedule.at(elapsed_ns);
        let left_ns = self.schedule.left_ns();
        if left_ns == 0 {
            let during = if self.repeat == 0 {
                "while searching".into()
            } else {
                format!("in repeat {} of {}", self.repeat, self.repeats)
            };
            return done(format!("the time budget was spent {during}"));
        }
        let last = points.last().and_then(|last| last.axis);
        if let Some(place) = last
            && self.schedule.points_ns(self.queue.len() + 1) <= left_ns
            && self.again.wants(Load::Place(place), points, self.repeat)
        {
            self.queue.insert(0, place);
        }
        // A search needs the result of its last step.
        if let Some(place) = self.queue.pop() {
            return self.measure(place);
        }
        if let Some(search) = self.search {
            match self.searched(search, points) {
                Some(value) => return self.measure(AxisPlace { axis: self.axis.axis, value, slowed: None }),
                None => self.search = None,
            }
        }
        if !self.is_tried {
            if points.iter().all(|point| point.axis.is_none()) {
                self.queue = places(&self.axis, &[FIRST_DELAY_NS]);
                return SweepStep::Yardstick;
            }
            self.is_tried = true;
            self.places = slowed_by_cost(&self.axis, points);
        }
        if self.places.is_empty() {
            return done("there is no value to measure");
        }
        if self.repeat >= self.repeats {
            return done(all_measured(self.repeats, "repeat"));
        }
        // An incomplete repeat cannot be compared.
        if self.repeat > 0 && left_ns < self.schedule.points_ns(self.places.len()) / 10 * 9 {
            return done(format!("the time budget was spent after repeat {} of {}", self.repeat, self.repeats));
        }
        self.repeat += 1;
        self.again.clear();
        self.queue = self.places.clone();
        self.queue.shuffle(&mut self.random);
        SweepStep::Yardstick
    }
}

/// The delay in the trial of a place.
const FIRST_DELAY_NS: f64 = 1000.0;
/// Added CPU time, as shares of the CPU time of a request.
pub const SLOW_DOWN_RATIOS: [f64; 3] = [0.07, 0.13, 0.2];

/// The places to measure in a repeat: every value; on the slow-down axis, the baseline and every value at every
/// place.
fn places(axis: &AxisPlan, values: &[f64]) -> Vec<AxisPlace> {
    let at = |value: f64, slowed: Option<SlowPlace>| AxisPlace { axis: axis.axis, value, slowed };
    if axis.axis != Axis::SlowDown {
        return values.iter().map(|value| at(*value, None)).collect();
    }
    let added = || values.iter().filter(|value| **value > 0.0);
    let slowed = axis.slowed.iter().flat_map(|place| added().map(|value| at(*value, Some(*place))));
    // Every place is compared with the baseline, so it is measured twice.
    slowed.chain([at(0.0, None); 2]).collect()
}

/// Delays that add the wanted shares of a request's CPU time, computed from how often requests reach each place.
/// Places that no request reaches are left out.
fn slowed_by_cost(axis: &AxisPlan, points: &[Point]) -> Vec<AxisPlace> {
    let tried = |slowed: Option<SlowPlace>| {
        points.iter().filter(move |point| point.axis.is_some_and(|place| place.slowed == slowed))
    };
    let Some(cost_us) = tried(None).find_map(cpu_us) else { return Vec::new() };
    let mut found = places(axis, &[]);
    for slowed in &axis.slowed {
        let reached = tried(Some(*slowed)).find_map(|point| point.value(names::SLOW_REACHED)).unwrap_or(0.0);
        // The effect of a place reached less than once in a hundred requests is not visible.
        if reached < 0.01 {
            continue;
        }
        let mut values = SLOW_DOWN_RATIOS
            .map(|ratio| rounded((ratio * cost_us * 1e3 / reached).min(MAX_SLOW_DOWN_NS as f64)))
            .to_vec();
        values.dedup();
        found.extend(values.into_iter().map(|value| AxisPlace { axis: axis.axis, value, slowed: Some(*slowed) }));
    }
    // Without any place there is nothing to compare.
    if found.iter().all(|place| place.slowed.is_none()) { Vec::new() } else { found }
}

/// Cold connections; the figure of Banga and Mogul (1998) goes to 2,000.
pub const COLD: [f64; 6] = [0.0, 100.0, 250.0, 500.0, 1000.0, 2000.0];
/// Requests in flight on a connection; HTTP/2 servers allow 100 to 250.
pub const IN_FLIGHT: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
/// TIME_WAIT sockets.
pub const TIME_WAIT: [f64; 2] = [0.0, 20_000.0];
/// One-way delays, from a machine room to the other side of the world.
pub const DELAYS_MS: [f64; 7] = [0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0];

fn own_values(axis: &AxisPlan, plan: &SweepPlan, capacity_per_sec: Option<f64>) -> Vec<f64> {
    match axis.axis {
        Axis::Connections => ladder(plan).into_iter().map(|load| load as f64).collect(),
        Axis::Rate => {
            let capacity = capacity_per_sec.filter(|rate| rate.is_finite() && *rate > 0.0).unwrap_or(100.0);
            let most = axis.overload_ratio.max(RATES[0]);
            let mut shares: Vec<f64> = RATES.into_iter().filter(|share| *share < most).collect();
            shares.push(most);
            // Rates are rounded: the capacity has fewer than three significant digits.
            shares.into_iter().map(|share| rounded(share * capacity)).collect()
        }
        Axis::InFlight => IN_FLIGHT.into(),
        Axis::Cold => COLD.into(),
        Axis::TimeWait => TIME_WAIT.into(),
        Axis::Delay => DELAYS_MS.map(|delay_ms| delay_ms * 1e6).to_vec(),
        _ => Vec::new(),
    }
}

fn rounded(value: f64) -> f64 {
    let scale = 10f64.powi(value.abs().log10().floor() as i32 - 2);
    if scale.is_finite() && scale > 0.0 { (value / scale).round() * scale } else { value }
}
