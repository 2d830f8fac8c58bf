//! State of server and client in one point.

use record::{Criteria, DoubtKind, Figure, Outcomes, Point, RunDir, Sweep, names};

/// With a larger share of the busy time of the server's CPUs, other work filled them, not the server.
const TAKEN_RATIO: f64 = 0.3;

/// Points by ascending load, then repeat, then index, so that findings do not depend on the order of the points.
pub fn by_load<'a>(loaded: impl IntoIterator<Item = (f64, &'a Point)>) -> Vec<(f64, Vec<&'a Point>)> {
    let mut loaded: Vec<(f64, &Point)> = loaded.into_iter().collect();
    loaded.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.repeat.cmp(&b.1.repeat)).then(a.1.index.cmp(&b.1.index)));
    loaded.chunk_by(|a, b| a.0 == b.0).map(|same| (same[0].0, same.iter().map(|(_, point)| *point).collect())).collect()
}

/// The points of a sweep at one load.
pub fn points_at(points: &[Point], sweep: Sweep, load: f64) -> impl Iterator<Item = &Point> {
    points.iter().filter(move |point| point.sweep == sweep && point.load() == load)
}

/// Whether a condition holds for more than half of all.
pub fn most<T>(all: &[T], holds: impl Fn(&T) -> bool) -> bool {
    2 * all.iter().filter(|one| holds(one)).count() > all.len()
}

/// Answers in all of the points.
pub fn answers(points: &[&Point]) -> u64 {
    points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.completed()))
}

/// Good answers per second. Errors do not count, because they are often quick.
pub fn good_per_sec(point: &Point) -> Option<f64> {
    point.value(names::GOODPUT).or(point.value(names::THROUGHPUT)).filter(|rate| rate.is_finite())
}

/// Share of requests without a good answer. A connection that got no byte counts for as many requests as each other
/// one had.
pub fn lost_ratio(outcomes: &Outcomes) -> f64 {
    let silent = if outcomes.completed() == 0 { 1.0 } else { outcomes.silent_ratio().unwrap_or(0.0) };
    let failed = outcomes.failed_ratio();
    failed + (1.0 - failed) * silent
}

/// The largest of three shares: the busiest thread's of a CPU, the busy share of the server's CPUs (without other
/// work, if that is much), and the used share of its CPU time limit.
pub fn saturation(point: &Point) -> Option<f64> {
    let cpus = point.value(names::SERVER_CPU_BUSY);
    let cpus = if is_crowded(point) { cpus.zip(taken(point)).map(|(busy, taken)| busy - taken) } else { cpus };
    larger(own_limit(point), cpus)
}

/// The limits that other work cannot fill: a thread, and a CPU limit.
pub fn own_limit(point: &Point) -> Option<f64> {
    larger(point.value(names::SERVER_BUSIEST_THREAD), point.value(names::SERVER_QUOTA_USED))
}

/// Saturation of the server's CPUs, other work included.
pub(crate) fn saturation_by_any(point: &Point) -> Option<f64> {
    larger(own_limit(point), point.value(names::SERVER_CPU_BUSY))
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// Share of the server's CPUs that other work used; `None` in runs that do not record it.
fn taken(point: &Point) -> Option<f64> {
    point.value(names::SERVER_CPUS_TAKEN)
}

/// CPUs that the server may use: from the point, else those given to it, else all of this machine.
pub fn allowed_cpus(run: &RunDir, point: &Point) -> f64 {
    let given = run.record.scenario.server().map_or(0, |server| server.cpus.len());
    let known = if given > 0 { given } else { run.record.machine.cpus } as f64;
    point.value(names::SERVER_CPUS).filter(|cpus| *cpus >= 1.0).unwrap_or(known).max(1.0)
}

/// Whether much of the busy time of the server's CPUs belonged to neither server nor client.
pub fn is_crowded(point: &Point) -> bool {
    let busy = point.value(names::SERVER_CPU_BUSY);
    busy.zip(taken(point)).is_some_and(|(busy, taken)| taken > TAKEN_RATIO * busy)
}

/// Whether the load generator had no CPU, port or descriptor left.
pub fn client_is_saturated(point: &Point, criteria: &Criteria) -> bool {
    let busy = point.value(names::CLIENT_UTILISATION).is_some_and(|share| share >= criteria.saturation_ratio);
    let doubted = point.doubts.iter().any(|doubt| doubt.kind == DoubtKind::ClientSaturated);
    let requests = point.outcomes.requests().max(1) as f64;
    busy || doubted || point.outcomes.local_limit as f64 / requests > criteria.error_ratio
}

/// Whether the client was the limit and the server, as far as known, was not.
pub fn client_limited(point: &Point, criteria: &Criteria) -> bool {
    client_is_saturated(point, criteria) && !saturation(point).is_some_and(|share| share >= criteria.saturation_ratio)
}

/// CPU time of a request: that of the server's group, and the softirq time of its CPUs outside of it.
pub fn cpu_us(point: &Point) -> Option<f64> {
    Some(point.value(names::SERVER_CPU)? + softirq_beside_us(point).unwrap_or(0.0)).filter(|cpu| *cpu > 0.0)
}

/// Server CPU time per request with softirq time, as a figure; every output shows this value.
pub fn cpu_figure(point: &Point) -> Option<Figure> {
    let own = point.figures.get(names::SERVER_CPU)?;
    Some(Figure { value: own.value.and_then(|_| cpu_us(point)), ..own.clone() })
}

/// With more failed requests, the CPU time of a request is mainly that of errors, which are often cheap.
pub(crate) const FAILED_RATIO_FOR_COST: f64 = 0.05;

/// Whether the CPU time of a request is mainly that of good answers.
pub(crate) fn costs_are_of_answers(point: &Point) -> bool {
    point.outcomes.failed_ratio() <= FAILED_RATIO_FOR_COST
}

/// Softirq time of a request outside the group's own CPU time; `None` in runs that do not record the overlap.
pub fn softirq_beside_us(point: &Point) -> Option<f64> {
    point.value(names::SERVER_SOFTIRQ_BESIDE).or_else(|| point.value(names::SERVER_SOFTIRQ))
}

/// The client's reap delay as a share of the 99th percentile of the response time.
pub fn reap_of_p99(point: &Point) -> Option<f64> {
    let with = point.value(names::SAMPLED_P99).filter(|us| *us > 0.0)?;
    Some((1.0 - point.value(names::ARRIVED_P99)? / with).max(0.0))
}
