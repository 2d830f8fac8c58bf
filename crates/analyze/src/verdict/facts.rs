//! What is said without a cause: requests that are slow though no CPU is busy, and connections that serve few requests.

use super::cause::busiest;
use super::command::server_pid;
use super::evidence::Evidence;
use crate::statistics::range;
use crate::zones::{Level, SweepFindings, load_words, percent};
use record::Sweep;
use record::units::{format_nanos, grouped};

/// So many times the median, and so long, is slow.
const TIMES: f64 = 20.0;
const LEAST_US: f64 = 10_000.0;
/// Up to this busy, no request waits long for a CPU.
const IDLE_RATIO: f64 = 0.5;
/// The lowest loads that are looked at; how busy the machine was differs between them, and how long its own wait takes does not.
const LOADS: usize = 3;
const MOST_APART: f64 = 2.0;
/// Requests at a load, of which one in a hundred is at least one, and at all of them.
const LEAST_AT_A_LOAD: u64 = 100;
const LEAST_REQUESTS: u64 = 500;

/// A connection with fewer requests than this is a part of their cost.
const FEW: f64 = 20.0;
/// Connections that were opened again, at least.
const LEAST_REOPENED: f64 = 50.0;
/// Connections that broke are opened again, too.
const MOST_BROKEN_RATIO: f64 = 0.01;

/// How many requests the server answers on a connection before it closes it, where those are few.
pub(super) fn short_connections(evidence: &Evidence<'_>, closed: &SweepFindings) -> Option<String> {
    let plan = evidence.run.record.scenario.load()?;
    let is_asked = plan.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection"));
    if plan.requests_per_connection > 0 || is_asked {
        return None;
    }
    let levels = &closed.levels[..closed.levels.len().min(LOADS)];
    let (mut answered, mut reopened, mut broken) = (0.0, 0.0, 0.0);
    for point in levels.iter().flat_map(|level| evidence.quiet_at(Sweep::Connections, level.load)) {
        // Connections are counted from the warm-up on, requests in the window.
        let whole = 1.0 + point.warmup_ns as f64 / point.duration_ns.max(1) as f64;
        answered += point.outcomes.completed() as f64 * whole;
        reopened += point.outcomes.connects.saturating_sub(point.outcomes.connections_used) as f64;
        broken += point.outcomes.errors() as f64;
    }
    let each = answered / reopened;
    if reopened < LEAST_REOPENED || each >= FEW || broken > MOST_BROKEN_RATIO * answered {
        return None;
    }
    let (first, last) = (levels.first()?, levels.last()?);
    Some(format!(
        "The server closes each connection after about {each:.0} request{} ({} connections were opened again from {} to {}), so a part of every \
         request's cost here is to open one. To try: more requests for each (nginx `keepalive_requests`, Apache `MaxKeepAliveRequests`, or \
         keep-alive at all).",
        if each < 1.5 { "" } else { "s" },
        grouped(reopened),
        load_words(first.load, Sweep::Connections),
        load_words(last.load, Sweep::Connections)
    ))
}

/// How slow requests are though no CPU is busy; `None` where they are not, or where it is not certain.
pub(super) fn slow_requests(evidence: &Evidence<'_>, closed: &SweepFindings) -> Option<String> {
    let requests = |level: &Level| {
        let points = evidence.quiet_at(Sweep::Connections, level.load);
        points.iter().fold(0_u64, |sum, point| sum.saturating_add(point.outcomes.completed()))
    };
    let idle: Vec<&Level> = closed
        .levels
        .iter()
        .take(LOADS)
        .take_while(|level| !level.client_limited && busiest(level).is_some_and(|share| share < IDLE_RATIO))
        .collect();
    let [first, .., last] = idle.as_slice() else { return None };
    let is_slow = |level: &&Level| {
        let (Some(p50), Some(p99)) = (level.response_p50_us, level.response_p99_us) else { return false };
        let own = p99.median - level.reap_p99_us.map_or(0.0, |spread| spread.median);
        own >= LEAST_US && own >= TIMES * p50.median && requests(level) >= LEAST_AT_A_LOAD
    };
    if !idle.iter().all(is_slow) {
        return None;
    }
    let medians = |of: fn(&Level) -> Option<f64>| range(&idle.iter().filter_map(|level| of(level)).collect::<Vec<_>>());
    let (least, most) = medians(|level| Some(level.response_p99_us?.median))?;
    let (_, typical) = medians(|level| Some(level.response_p50_us?.median))?;
    let n = idle.iter().fold(0_u64, |sum, level| sum.saturating_add(requests(level)));
    if most > MOST_APART * least || n < LEAST_REQUESTS {
        return None;
    }
    let most_busy = idle.iter().filter_map(|level| busiest(level)).fold(0.0, f64::max);
    Some(format!(
        "Some requests are slow though the server is idle: from {} to {} p99 was {} to {} beside a median of {} at most (n = {}), with at most {} of a \
         CPU busy. They wait for something else than a CPU (a timer, a disk, a pause), or are requests of another kind. To find out: `strace -f -T \
         -p {}` shows how long each call took.",
        load_words(first.load, Sweep::Connections),
        load_words(last.load, Sweep::Connections),
        format_nanos(least * 1e3),
        format_nanos(most * 1e3),
        format_nanos(typical * 1e3),
        grouped(n as f64),
        percent(most_busy),
        server_pid(evidence.run)
    ))
}
