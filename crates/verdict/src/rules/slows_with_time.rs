use super::*;
use analyze::disturbance::is_disturbed;
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    id: "slows-with-time",
    cause: "the server slows down with each request served",
    evidence: "`server.cpu_us_per_request` at the first and the last visit of each load, in undisturbed points; \
               the yardstick",
    threshold: "1.25 times in the median of at least three loads (whose visits have half as many requests between them \
                as any load's), at least 1.1 times at each of them, and 1.1 times \
                the median response time, after correction for the machine's own change (yardstick); below 1.5 times \
                a possibility, if a straight line over requests served explains half of all costs; if other work \
                disturbed the points, 1.5 times, and such a line explains 85 %",
    refuted_by: "the server is as slow right after a restart",
    remedy: "`perf top -p PID` names the function; limit the state kept for each request",
    source: "comparison at the same load excludes load as the cause",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client", "cpu-quota", "cpu-bursts"],
    judge,
};

const TIME_GROWTH_RATIO: f64 = 1.25;
/// Below this growth a machine that became slower looks alike.
const CLEAR_GROWTH: f64 = 1.5;
/// Share of the costs that a straight line over the requests served explains. A machine that became slower once
/// explains less.
const EXPLAINED: f64 = 0.5;
const UNQUIET_EXPLAINED: f64 = 0.85;
const LEAST_LOADS: usize = 3;
/// Requests between the visits of a load, as a share of the most: shortly after each other, visits cost the same.
const LEAST_APART: f64 = 0.5;

type PointVisit<'a> = (&'a Point, f64);

/// A figure at the first and the last visit of each load, for loads that were visited twice.
fn visits<'a>(
    evidence: &Evidence<'a>,
    with_disturbed: bool,
    value: impl Fn(&Point) -> Option<f64>,
) -> Vec<(PointVisit<'a>, PointVisit<'a>)> {
    let Some(sweep) = evidence.sweep() else { return Vec::new() };
    let mut by_load: BTreeMap<u64, Vec<(&Point, f64)>> = BTreeMap::new();
    let points = evidence.run.points.iter().filter(|point| point.sweep == sweep.sweep);
    for point in points.filter(|point| with_disturbed || !is_disturbed(point)) {
        if let Some(value) = value(point).filter(|value| value.is_finite() && *value > 0.0) {
            by_load.entry(point.load().to_bits()).or_default().push((point, value));
        }
    }
    let ends = by_load.into_values().filter_map(|mut visits| {
        visits.sort_by_key(|(point, _)| point.index);
        (visits.len() > 1).then(|| (visits[0], visits[visits.len() - 1]))
    });
    ends.collect()
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    // Excludes softirq time, which includes other work on the server's CPUs.
    let cost =
        |point: &Point| point.value(names::SERVER_CPU).filter(|_| point.outcomes.completed() as f64 >= LEAST_REQUESTS);
    // Other work also changes with time, but in steps. Without quiet points, only a cost that rose with each request
    // counts.
    let quiet = visits(evidence, false, cost);
    let is_unquiet = quiet.len() < LEAST_LOADS;
    let mut visits = if is_unquiet { visits(evidence, true, cost) } else { quiet };
    let served = |((first, _), (last, _)): &(PointVisit<'_>, PointVisit<'_>)| {
        evidence.served_before(last.index) - evidence.served_before(first.index)
    };
    let most = visits.iter().map(served).fold(0.0, f64::max);
    visits.retain(|visit| served(visit) >= LEAST_APART * most);
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
    let explained = if is_unquiet { UNQUIET_EXPLAINED } else { EXPLAINED };
    let is_clear = !is_unquiet && rose >= CLEAR_GROWTH;
    if !is_clear && !is_straight(evidence, cost, explained) {
        return None;
    }
    let least = if is_unquiet { CLEAR_GROWTH } else { TIME_GROWTH_RATIO };
    if rose < least || ratios.iter().any(|ratio| ratio / machine < 1.1) {
        return None;
    }
    // The CPU cost of a mostly idle server depends on what the CPU did before, while its response times do not grow.
    let waits = self::visits(evidence, is_unquiet, |point| point.value(names::RESPONSE_P50));
    let waits = waits.iter().map(|((_, first), (_, last))| last / first);
    if median(waits)? / machine < 1.1 {
        return None;
    }
    let ((first, low), (last, high)) = *visits.iter().max_by_key(|((first, _), (last, _))| last.index - first.index)?;
    let served = evidence.served_before(last.index) - evidence.served_before(first.index);
    let pid = server_pid(evidence.run);
    let command = format!("perf top -p {pid}");
    finding(
        format!(
            "The server slows down with the number of requests served, not with load: at each of {} loads a request \
             cost more CPU at the last visit than at the first. At {} it cost {low:.1} us at first, and {high:.1} us \
             after {} more requests ({} more in the median of all loads).",
            visits.len(),
            load_words(first.load(), first.sweep),
            format_si(served),
            percent(rose - 1.0)
        ),
        format!(
            "To try: `{command}` under load names the function that grows (e.g. a list that is searched, a log or \
             cache without a limit); limit the state kept for each request."
        ),
        &[command],
    )?
    .proven_if(rose >= CLEAR_GROWTH)
}

/// Whether a straight line over the requests served so far explains this share of the costs of a request, for all
/// loads together.
fn is_straight(evidence: &Evidence<'_>, cost: impl Fn(&Point) -> Option<f64>, explained: f64) -> bool {
    let points = evidence.run.points.iter().filter(|point| point.sweep != Sweep::Yardstick);
    let costs: Vec<_> = points.filter_map(|point| Some((evidence.served_before(point.index), cost(point)?))).collect();
    line(&costs).is_some_and(|(slope, share)| slope > 0.0 && share >= explained)
}
