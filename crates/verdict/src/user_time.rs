//! User time of a request at few and at many connections, for the rules on the cache and on spinning locks.

use super::evidence::{Evidence, typical};
use super::layout::{PossibleGain, UserTimeSaving};
use super::rules::{GROWTH_RATIO, LEAST_REQUESTS, LEAST_TICKS};
use analyze::zones::{Findings, Level, load_words};
use record::{Point, RunDir, Sweep, names};
use statistics::mean_and_error;

/// Least share of user time in the growth of CPU time.
const USER_GROWTH_SHARE: f64 = 0.5;
/// Least user time at the most expensive load over that at the cheapest.
pub(super) const USER_GROWTH_RATIO: f64 = 1.5;

/// The kernel divides CPU time into user and system time by a sample at each tick.
const TICKS_PER_SEC: f64 = 100.0;

/// A load whose requests cost at least this share of the most expensive load's counts as equally expensive.
const ABOUT_AS_DEAR: f64 = 0.75;

/// User time of a request over points: total time over total requests, with its standard error.
struct UserTime {
    us: f64,
    error_us: f64,
    /// Mean of the points' logarithms, and its standard error or that of the ticks; `None` with fewer than two points.
    logarithm: Option<(f64, f64)>,
    /// Whether `us` is an upper bound: with too few ticks all CPU time counts as user time.
    is_at_most: bool,
}

fn user_time(points: &[&Point]) -> Option<UserTime> {
    let (mut user_us, mut cpu_us, mut requests, mut each) = (0.0, 0.0, 0.0, Vec::new());
    for point in points {
        let completed = point.outcomes.completed() as f64;
        let (Some(user), Some(cpu)) = (point.value(names::SERVER_CPU_USER), point.value(names::SERVER_CPU)) else {
            continue;
        };
        if user.is_finite() && cpu.is_finite() && completed > 0.0 {
            user_us += user * completed;
            cpu_us += cpu * completed;
            requests += completed;
            each.push(user);
        }
    }
    let ticks = cpu_us * 1e-6 * TICKS_PER_SEC;
    if requests < LEAST_REQUESTS {
        return None;
    }
    if ticks < LEAST_TICKS as f64 {
        return Some(UserTime { us: cpu_us / requests, error_us: 0.0, logarithm: None, is_at_most: true });
    }
    let (us, share) = (user_us / requests, (user_us / cpu_us).clamp(0.0, 1.0));
    let by_ticks = (share * (1.0 - share) / ticks).sqrt().max(1.0 / ticks) * cpu_us / requests;
    // The error is the scatter of the points, or that of their ticks if larger.
    let scatter = |values: &[f64]| mean_and_error(values).filter(|(_, error)| error.is_finite());
    let by_points = scatter(&each).map_or(0.0, |(_, error)| error);
    // Without a tick in user mode, a point has no logarithm.
    let logarithms: Vec<f64> = each.iter().map(|user| user.ln()).collect();
    let logarithm = scatter(&logarithms).map(|(middle, error)| (middle, error.max(by_ticks / us)));
    Some(UserTime { us, error_us: by_ticks.max(by_points), logarithm, is_at_most: false })
}

/// User time of a request at few and at many connections.
pub struct UserGrowth<'a> {
    pub(super) low: Vec<&'a Point>,
    /// The points at many connections.
    pub high: Vec<&'a Point>,
    /// The cheapest load, in connections.
    pub low_load: f64,
    /// The most expensive load, in connections.
    pub high_load: f64,
    /// User time of a request at few connections, in microseconds.
    pub low_us: f64,
    /// User time of a request at many connections, in microseconds.
    pub high_us: f64,
    /// Whether the user time at few connections is an upper bound.
    is_at_most: bool,
    /// Whether the user time at many connections is an upper bound.
    pub is_high_at_most: bool,
    /// The least growth, three standard errors below the estimate.
    at_least_us: f64,
}

/// User time at the loads up to the cheapest, and at higher loads that cost about as much as the most expensive.
pub fn user_times<'a>(run: &'a RunDir, findings: &'a Findings) -> Option<UserGrowth<'a>> {
    let evidence = Evidence::new(run, findings);
    let closed = evidence.findings.connections.as_ref()?;
    let cpu = closed.cpu.as_ref()?;
    let (low_load, high_load) = (cpu.lowest_load, cpu.highest_load);
    // Loads with few connections have few ticks, so all loads up to the cheapest one count.
    let up_to_cheapest = closed.levels.iter().map(|level| level.load).filter(|load| *load <= low_load);
    let low: Vec<&Point> = up_to_cheapest.flat_map(|load| evidence.quiet_at(closed.sweep, load)).collect();
    // The most expensive load may have a single point of 0.2 s, so loads that cost about as much also count.
    let is_dear = |level: &&Level| {
        let cost = level.cpu_us_per_request.map(|cost| cost.median);
        level.load > low_load && cost.is_some_and(|cost| cost >= ABOUT_AS_DEAR * cpu.highest_us)
    };
    let dear = closed.levels.iter().filter(is_dear).map(|level| level.load);
    let high: Vec<&Point> = dear.flat_map(|load| evidence.quiet_at(closed.sweep, load)).collect();
    let (before, after) = (user_time(&low)?, user_time(&high)?);
    // Where threads get in each other's way, the time scatters by factors.
    let by_factors = before
        .logarithm
        .zip(after.logarithm)
        .map(|((low, low_error), (high, high_error))| (high - 3.0 * high_error).exp() - (low + 3.0 * low_error).exp());
    let by_sums = after.us - before.us - 3.0 * before.error_us.hypot(after.error_us);
    let at_least_us = by_factors.map_or(by_sums, |by_factors| by_factors.max(by_sums));
    let (is_at_most, is_high_at_most) = (before.is_at_most, after.is_at_most);
    let (low_us, high_us) = (before.us, after.us);
    Some(UserGrowth { low, high, low_load, high_load, low_us, high_us, is_at_most, is_high_at_most, at_least_us })
}

/// A growth of user time with connections that is more than chance, on CPUs that are full at the expensive load.
pub(super) fn user_growth<'a>(evidence: &Evidence<'a>) -> Option<UserGrowth<'a>> {
    let cpu = evidence.findings.connections.as_ref()?.cpu.as_ref()?;
    if !cpu.is_growth() || cpu.ratio < GROWTH_RATIO {
        return None;
    }
    let times = user_times(evidence.run, evidence.findings)?;
    let user = |points: &[&Point]| typical(points, names::SERVER_CPU_USER);
    let between_medians = user(&times.high).zip(user(&times.low)).map_or(0.0, |(high, low)| high - low);
    let grown = f64::max(times.high_us - times.low_us, between_medians);
    let is_chance = times.at_least_us <= 0.0 || times.is_high_at_most;
    let is_minor = grown < USER_GROWTH_SHARE * (cpu.highest_us - cpu.lowest_us)
        || times.high_us < USER_GROWTH_RATIO * times.low_us;
    // Processes that start as load grows cost user time.
    let processes = |points: &[&Point]| typical(points, names::SERVER_PROCESSES);
    let starts_some = processes(&times.low).zip(processes(&times.high)).is_some_and(|(low, high)| high > low);
    // An expensive request is not the limit while the server's CPUs are idle.
    (!is_chance && !is_minor && !starts_some && evidence.is_saturated(&times.high) != Some(false)).then_some(times)
}

impl UserGrowth<'_> {
    pub(super) fn sentence(&self) -> String {
        format!(
            "A request's time in the server's own code grew from {}{:.1} us at up to {} to {:.1} us at {} (by {:.1} us \
             or more)",
            if self.is_at_most { "at most " } else { "" },
            self.low_us,
            load_words(self.low_load, Sweep::Connections),
            self.high_us,
            load_words(self.high_load, Sweep::Connections),
            self.at_least_us
        )
    }

    /// The gain of smaller state at the expensive load, within the errors of the growth.
    pub fn won(&self) -> Option<PossibleGain> {
        let cpu_us = typical(&self.high, names::SERVER_CPU)?;
        let grown_us = self.high_us - self.low_us;
        let most_us = if self.is_at_most { self.high_us } else { 2.0 * grown_us - self.at_least_us };
        PossibleGain::from_times(cpu_us, self.high_us, UserTimeSaving { least_us: self.at_least_us, most_us })
    }

    /// Memory that grew with the connections, compared with the earliest visit of the low load: later visits include
    /// memory that the server did not give back.
    pub fn memory(&self) -> Option<f64> {
        let value = |points: &[&Point], first: bool| {
            let known = points.iter().filter_map(|point| Some((point.index, point.value(names::SERVER_MEMORY)?)));
            if first { known.min_by_key(|(index, _)| *index) } else { known.max_by_key(|(index, _)| *index) }
        };
        Some(value(&self.high, true)?.1 - value(&self.low, true)?.1)
    }
}
