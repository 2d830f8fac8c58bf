//! Rules on the cost of a request: by load (the cache, a lock that spins) and by time (state that grows with each
//! request).

use super::Certainty;
use super::command::server_pid;
use super::evidence::{Evidence, typical};
use super::judge::{Finding, finding};
use super::layout::{self, Remedy, Saved, Won};
use super::rules::*;
use crate::disturbance::is_disturbed;
use crate::growth;
use crate::statistics::{mean, median};
use crate::zones::{Findings, Level, load_words, percent};
use record::layers::Layer;
use record::units::{format_bytes, format_si};
use record::{Point, RunDir, Sweep, names};
use std::collections::BTreeMap;

/// The kernel divides CPU time into user and system time by a sample at each tick.
const TICKS_PER_SEC: f64 = 100.0;

/// A load whose requests cost at least this share of the most expensive load's counts as equally expensive.
const ABOUT_AS_DEAR: f64 = 0.75;

/// User time of a request over points: total time over total requests, with its standard error.
struct UserTime {
    us: f64,
    error_us: f64,
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
        return Some(UserTime { us: cpu_us / requests, error_us: 0.0, is_at_most: true });
    }
    let (us, share) = (user_us / requests, (user_us / cpu_us).clamp(0.0, 1.0));
    let by_ticks = (share * (1.0 - share) / ticks).sqrt().max(1.0 / ticks) * cpu_us / requests;
    // The error is the scatter of the points, if it is larger than that of their ticks.
    let middle = mean(&each)?;
    let squares: f64 = each.iter().map(|user| (user - middle).powi(2)).sum();
    let n = each.len() as f64;
    let by_points = if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
    Some(UserTime { us, error_us: by_ticks.max(by_points), is_at_most: false })
}

/// User time of a request at few and at many connections.
pub struct UserGrowth<'a> {
    low: Vec<&'a Point>,
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

/// User time at the loads up to the cheapest, and at those above it that cost about as much as the most expensive.
pub fn user_times<'a>(run: &'a RunDir, findings: &'a Findings) -> Option<UserGrowth<'a>> {
    let evidence = Evidence::new(run, findings);
    let closed = evidence.findings.connections.as_ref()?;
    let cpu = closed.cpu.as_ref()?;
    let (low_load, high_load) = (cpu.lowest_load, cpu.highest_load);
    // Few connections have few ticks, so all loads up to the cheapest one count.
    let up_to_cheapest = closed.levels.iter().map(|level| level.load).filter(|load| *load <= low_load);
    let low: Vec<&Point> = up_to_cheapest.flat_map(|load| evidence.quiet_at(closed.sweep, load)).collect();
    // The most expensive load may have one point of 0.2 s, so loads that cost about as much count, too.
    let is_dear = |level: &&Level| {
        let cost = level.cpu_us_per_request.map(|cost| cost.median);
        level.load > low_load && cost.is_some_and(|cost| cost >= ABOUT_AS_DEAR * cpu.highest_us)
    };
    let dear = closed.levels.iter().filter(is_dear).map(|level| level.load);
    let high: Vec<&Point> = dear.flat_map(|load| evidence.quiet_at(closed.sweep, load)).collect();
    let (before, after) = (user_time(&low)?, user_time(&high)?);
    let at_least_us = after.us - before.us - 3.0 * before.error_us.hypot(after.error_us);
    let (is_at_most, is_high_at_most) = (before.is_at_most, after.is_at_most);
    let (low_us, high_us) = (before.us, after.us);
    Some(UserGrowth { low, high, low_load, high_load, low_us, high_us, is_at_most, is_high_at_most, at_least_us })
}

/// A user time that grew with connections by more than chance, on CPUs that are full at the expensive load.
fn user_growth<'a>(evidence: &Evidence<'a>) -> Option<UserGrowth<'a>> {
    let cpu = evidence.findings.connections.as_ref()?.cpu.as_ref()?;
    if !cpu.is_growth() || cpu.ratio < GROWTH_RATIO {
        return None;
    }
    let times = user_times(evidence.run, evidence.findings)?;
    let grown = times.high_us - times.low_us;
    let is_chance = times.at_least_us <= 0.0 || times.is_high_at_most;
    let is_minor = grown < USER_GROWTH_SHARE * (cpu.highest_us - cpu.lowest_us)
        || times.high_us < USER_GROWTH_RATIO * times.low_us;
    // Starting processes as load grows costs user time.
    let processes = |points: &[&Point]| typical(points, names::SERVER_PROCESSES);
    let starts_some = processes(&times.low).zip(processes(&times.high)).is_some_and(|(low, high)| high > low);
    // An expensive request is no limit while the server's CPUs are idle.
    (!is_chance && !is_minor && !starts_some && evidence.is_saturated(&times.high) != Some(false)).then_some(times)
}

impl UserGrowth<'_> {
    fn words(&self) -> String {
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
    pub fn won(&self) -> Option<Won> {
        let cpu_us = typical(&self.high, names::SERVER_CPU)?;
        let grown_us = self.high_us - self.low_us;
        let most_us = if self.is_at_most { self.high_us } else { 2.0 * grown_us - self.at_least_us };
        Won::from_times(cpu_us, self.high_us, Saved { least_us: self.at_least_us, most_us })
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

/// User time and memory grow with connections, and memory grew beyond the cache.
pub fn memory_bound(evidence: &Evidence<'_>) -> Option<Finding> {
    let grown = user_growth(evidence)?;
    let cache = evidence.run.record.machine.l2_cache_bytes;
    let memory = grown.memory()?;
    if memory < cache.unwrap_or(1 << 20) as f64
        || !are_same_functions(&grown.low, &grown.high, evidence.criteria().confidence_ratio)
    {
        return None;
    }
    let misses = misses_grew(&grown.low, &grown.high);
    if misses == Some(false) {
        return None;
    }
    let counted = if misses.is_some() { "; its cache misses, counted by the hardware, grew with it" } else { "" };
    let won = grown.won();
    let words =
        |won: Won| format!(" Without that growth a CPU would serve at most {:.2} times the requests.", won.at_most);
    let helps = won.is_some_and(|won| layout::remedy(won, Some(memory), None, cache) != Some(Remedy::Neither));
    let pid = server_pid(evidence.run);
    let (command, shows) = if helps {
        (
            "memwalk -p BUILD --report".to_string(),
            "on its source (BUILD has compile_commands.json) shows what each stage holds for a connection",
        )
    } else {
        (format!("perf top -p {pid}"), "under load shows its most expensive functions")
    };
    let cache = cache.map_or("size not known".into(), |bytes| format_bytes(bytes as f64));
    let mut finding = finding(
        format!(
            "{}, more than the kernel's, and its memory by {} with the connections, more than the second-level cache \
             ({cache}){counted}.{}",
            grown.words(),
            format_bytes(memory),
            won.map(words).unwrap_or_default()
        ),
        format!(
            "To distinguish cache misses from more work: `straingauge simulate` counts the misses, `perf top -p {pid}` \
             under load shows a list that is searched; `{command}` {shows}."
        ),
        &[command],
    )?;
    if misses.is_none() {
        finding.certainty = Certainty::Possibility;
    }
    Some(finding)
}

/// Whether cache misses grew by half; `None` without hardware counters.
fn misses_grew(low: &[&Point], high: &[&Point]) -> Option<bool> {
    let of = |points: &[&Point], event: &str| typical(points, &names::event_per_packet("user", event));
    let events = ["llc-load-misses", "l1d-load-misses"];
    let known: Vec<(f64, f64)> = events.iter().filter_map(|event| Some((of(low, event)?, of(high, event)?))).collect();
    (!known.is_empty())
        .then(|| known.iter().any(|(before, after)| *after >= USER_GROWTH_RATIO * before && *after > 0.0))
}

/// Whether the user function that grew most was sampled at the low load, too. Unknown counts as yes.
fn are_same_functions(low: &[&Point], high: &[&Point], confidence: f64) -> bool {
    let is_user = |name: &str| {
        let mut known = high.iter().flat_map(|point| &point.functions);
        known.any(|cost| cost.function == name && cost.layer == Some(Layer::User))
    };
    let grown = growth::functions(low, high, confidence);
    grown.iter().find(|growth| is_user(&growth.name)).is_none_or(|growth| growth.low_us > 0.0)
}

/// User time grows with the number of runnable threads: they poll a lock instead of sleeping.
pub fn spin(evidence: &Evidence<'_>) -> Option<Finding> {
    let grown = user_growth(evidence)?;
    let waited = typical(&grown.high, names::SERVER_RUN_QUEUE)?;
    let cpu = typical(&grown.high, names::SERVER_CPU)?;
    let threads = typical(&grown.high, names::SERVER_THREADS)?;
    if threads < 2.0 || grown.high_us < SPIN_RATIO * grown.low_us || waited < SPIN_WAITED * cpu {
        return None;
    }
    let pid = server_pid(evidence.run);
    let command = format!("perf top -p {pid}");
    let mut finding = finding(
        format!(
            "{}, while its {threads:.0} threads waited {} us for a CPU for each request: they use the CPU without \
             making progress.",
            grown.words(),
            format_si(waited)
        ),
        format!(
            "To decide: `{command}` (or `--profile always`) names the function that they spin in; a lock that sleeps \
             (pthread_mutex) gives the CPU to its holder."
        ),
        &[command],
    )?;
    finding.certainty = Certainty::Possibility;
    Some(finding)
}

/// A point with the compared figure.
type Visit<'a> = (&'a Point, f64);

/// A figure at the first and the last visit of each load, for loads that were visited twice.
fn visits<'a>(
    evidence: &Evidence<'a>,
    with_disturbed: bool,
    value: impl Fn(&Point) -> Option<f64>,
) -> Vec<(Visit<'a>, Visit<'a>)> {
    let Some(sweep) = evidence.sweep() else { return Vec::new() };
    let mut by_load: BTreeMap<u64, Vec<(&Point, f64)>> = BTreeMap::new();
    let points = evidence.run.points.iter().filter(|point| point.sweep == sweep.sweep);
    for point in points.filter(|point| with_disturbed || !is_disturbed(point)) {
        let load = point.offered_per_sec().unwrap_or(point.connections as f64);
        if let Some(value) = value(point).filter(|value| value.is_finite() && *value > 0.0) {
            by_load.entry(load.to_bits()).or_default().push((point, value));
        }
    }
    let ends = by_load.into_values().filter_map(|mut visits| {
        visits.sort_by_key(|(point, _)| point.index);
        (visits.len() > 1).then(|| (visits[0], visits[visits.len() - 1]))
    });
    ends.collect()
}

/// Answers of the whole run until a point began.
fn served_before(evidence: &Evidence<'_>, index: u32) -> f64 {
    let earlier = evidence.run.points.iter().filter(|point| point.index < index);
    earlier.map(|point| point.outcomes.completed() as f64).sum()
}

/// The cost of a request grows with the number of requests served before, at every load.
pub fn slows_with_time(evidence: &Evidence<'_>) -> Option<Finding> {
    // Without softirq time, which includes other work on the server's CPUs.
    let cost =
        |point: &Point| point.value(names::SERVER_CPU).filter(|_| point.outcomes.completed() as f64 >= LEAST_REQUESTS);
    // Other work changes with time, too. Without quiet points only a cost that rose with each request counts: other
    // work makes steps.
    let quiet = visits(evidence, false, cost);
    let is_unquiet = quiet.len() < LEAST_LOADS;
    let visits = if is_unquiet { visits(evidence, true, cost) } else { quiet };
    if visits.len() < LEAST_LOADS {
        return None;
    }
    let ratios: Vec<f64> = visits.iter().map(|((_, first), (_, last))| last / first).collect();
    let speeds: Vec<f64> = evidence
        .run
        .points
        .iter()
        .filter(|point| point.sweep == Sweep::Yardstick)
        .filter_map(|point| point.value(names::YARDSTICK_CPU))
        .collect();
    let machine = match (speeds.first(), speeds.last()) {
        (Some(first), Some(last)) if *last > 0.0 => (first / last).max(1.0),
        _ => 1.0,
    };
    let rose = median(&ratios)? / machine;
    if is_unquiet && !is_straight(evidence, cost) {
        return None;
    }
    let least = if is_unquiet { UNQUIET_TIME_GROWTH } else { TIME_GROWTH_RATIO };
    if rose < least || ratios.iter().any(|ratio| ratio / machine < 1.1) {
        return None;
    }
    // The CPU cost of a server that mostly sleeps depends on what the CPU did before; its response times do not grow.
    let waits: Vec<f64> = self::visits(evidence, is_unquiet, |point| point.value(names::RESPONSE_P50))
        .iter()
        .map(|((_, first), (_, last))| last / first)
        .collect();
    if median(&waits)? / machine < 1.1 {
        return None;
    }
    let ((first, low), (last, high)) = *visits.iter().max_by_key(|((first, _), (last, _))| last.index - first.index)?;
    let served = served_before(evidence, last.index) - served_before(evidence, first.index);
    let pid = server_pid(evidence.run);
    let command = format!("perf top -p {pid}");
    finding(
        format!(
            "The server slows down with what it has served, not with load: at each of {} loads a request cost more CPU \
             at the last visit than at the first; at {} {low:.1} us, and {high:.1} us after {} more requests ({} more \
             in the middle of all loads).",
            visits.len(),
            load_words(first.offered_per_sec().unwrap_or(first.connections as f64), first.sweep),
            format_si(served),
            percent(rose - 1.0)
        ),
        format!(
            "To try: `{command}` under load names the function that grows (a list that is searched, a log or cache \
             that is kept whole); bound what is kept for each request."
        ),
        &[command],
    )
}

/// Whether a straight line by the requests served before explains most of the cost of a request, at all loads together.
fn is_straight(evidence: &Evidence<'_>, cost: impl Fn(&Point) -> Option<f64>) -> bool {
    let points = evidence.run.points.iter().filter(|point| point.sweep != Sweep::Yardstick);
    let costs: Vec<_> = points.filter_map(|point| Some((served_before(evidence, point.index), cost(point)?))).collect();
    line(&costs).is_some_and(|(slope, share)| slope > 0.0 && share >= UNQUIET_EXPLAINED)
}

/// Programs whose heap grows for long before it is collected.
const COLLECTED_LATE: [&str; 5] = ["java", "node", "dotnet", "ruby", "beam"];

/// Memory grows with each request and is not given back: a leak, or similar in a short run.
pub fn leak(evidence: &Evidence<'_>) -> Option<Finding> {
    let points: Vec<(f64, f64)> = evidence
        .run
        .points
        .iter()
        .filter(|point| point.sweep != Sweep::Yardstick)
        .filter_map(|point| {
            let at_end = served_before(evidence, point.index) + point.outcomes.completed() as f64;
            let memory = point.value(names::SERVER_ANONYMOUS_MEMORY).or_else(|| point.value(names::SERVER_MEMORY));
            Some((at_end, memory?))
        })
        .filter(|(_, bytes)| bytes.is_finite())
        .collect();
    let (first, last) = (*points.first()?, *points.last()?);
    let middle = (first.0 + last.0) / 2.0;
    let (first_half, second_half): (Vec<_>, Vec<_>) = points.iter().copied().partition(|(served, _)| *served <= middle);
    let (grown, served) = (last.1 - first.1, last.0 - first.0);
    let program = crate::point::executable(&evidence.run.record);
    let has_heap = COLLECTED_LATE.iter().any(|runtime| program.starts_with(runtime));
    if points.len() < LEAST_LEAK_POINTS
        || grown < if has_heap { LEAK_BYTES_OF_A_HEAP } else { LEAK_BYTES }
        || last.1 < LEAK_RATIO * first.1
        || served < LEAST_REQUESTS
    {
        return None;
    }
    let (slope, share) = line(&points)?;
    let (early, late) = (line(&first_half)?.0, line(&second_half)?.0);
    // Growth with connections, or of a cache that fills, ends; a leak does not.
    if share < LEAK_EXPLAINED || late < LEAK_STEADY * early || slope < LEAST_LEAK_PER_REQUEST {
        return None;
    }
    let pid = server_pid(evidence.run);
    let command = format!("grep -E 'VmRSS|RssAnon' /proc/{pid}/status");
    let mut finding = finding(
        format!(
            "The server's memory grew with every request and was not given back: from {} to {} over {} requests, {} \
             for each (a straight line explains {} of it, n = {} points).",
            format_bytes(first.1),
            format_bytes(last.1),
            format_si(served),
            format_bytes(slope),
            percent(share),
            points.len()
        ),
        format!(
            "To distinguish a leak from a cache that fills, or a heap before it is collected: `{command}` under a \
             longer steady load shows whether it ends; a heap profiler (heaptrack, valgrind --tool=massif) on the \
             server shows what is kept."
        ),
        &[command],
    )?;
    finding.certainty = Certainty::Possibility;
    Some(finding)
}

/// Least squares: slope, and the share of the scatter that the line explains.
pub(super) fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    if n < 3.0 {
        return None;
    }
    let (x, y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|a, _| a * a), sum(|a, b| a * b), sum(|_, b| b * b));
    (xx > 0.0 && yy > 0.0).then(|| (xy / xx, xy * xy / (xx * yy)))
}
