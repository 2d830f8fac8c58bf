//! Findings that name no cause: slow requests while no CPU is busy, and connections that serve few requests.

use super::cause::busiest;
use super::command::server_pid;
use super::evidence::Evidence;
use crate::point::answers;
use crate::statistics::range;
use crate::zones::{Level, SweepFindings, load_words, percent};
use record::units::{format_nanos, grouped};
use record::{Sweep, names};

/// A p99 of at least this many times the median, and at least this long, is slow.
const TIMES: f64 = 20.0;
const LEAST_US: f64 = 10_000.0;
/// Busy share up to which requests do not wait long for a CPU.
const IDLE_RATIO: f64 = 0.5;
/// Number of lowest loads checked. The machine's busy share differs between them; a wait of the server itself does not.
const LOADS: usize = 3;
const MOST_APART: f64 = 2.0;
/// Least number of requests at one load (so that one in a hundred is at least one), and at all of these loads.
const LEAST_AT_A_LOAD: u64 = 100;
const LEAST_REQUESTS: u64 = 500;

/// A connection that serves fewer requests than this adds the cost of opening it to theirs.
const FEW: f64 = 20.0;
/// Least number of reopened connections.
const LEAST_REOPENED: f64 = 50.0;
/// Largest share of reopened connections that had broken. Broken connections are reopened, too.
const MOST_BROKEN_RATIO: f64 = 0.01;

/// Number of requests that the server answers on a connection before it closes it, if they are few.
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
        "The server closes each connection after about {each:.0} request{} ({} connections were opened again from {} \
         to {}), so each request's cost includes a part of opening one. To try: allow more requests per connection \
         (nginx `keepalive_requests`, Apache `MaxKeepAliveRequests`), or enable keep-alive.",
        if each < 1.5 { "" } else { "s" },
        grouped(reopened),
        load_words(first.load, Sweep::Connections),
        load_words(last.load, Sweep::Connections)
    ))
}

/// Reports requests that are slow while no CPU is busy; `None` without such requests or if it is uncertain.
pub(super) fn slow_requests(evidence: &Evidence<'_>, closed: &SweepFindings) -> Option<String> {
    let requests = |level: &Level| answers(&evidence.quiet_at(Sweep::Connections, level.load));
    let is_stopped = |level: &Level| {
        let points = evidence.quiet_at(Sweep::Connections, level.load);
        points.iter().any(|point| point.value(names::SERVER_THROTTLED).is_some_and(|ratio| ratio > 0.0))
    };
    let idle: Vec<&Level> = closed
        .levels
        .iter()
        .take(LOADS)
        .take_while(|level| !level.client_limited && busiest(level).is_some_and(|share| share < IDLE_RATIO))
        .take_while(|level| !is_stopped(level))
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
    let medians = |of: fn(&Level) -> Option<f64>| range(idle.iter().filter_map(|level| of(level)));
    let (least, most) = medians(|level| Some(level.response_p99_us?.median))?;
    let (_, typical) = medians(|level| Some(level.response_p50_us?.median))?;
    let n = idle.iter().fold(0_u64, |sum, level| sum.saturating_add(requests(level)));
    if most > MOST_APART * least || n < LEAST_REQUESTS {
        return None;
    }
    let most_busy = idle.iter().filter_map(|level| busiest(level)).fold(0.0, f64::max);
    let limit =
        if idle.iter().any(|level| level.cpu_quota_used_ratio.is_some()) { " or of its CPU time limit" } else { "" };
    Some(format!(
        "Some requests are slow though the server is idle: from {} to {} p99 was {} to {}, the median at most {} (n = \
         {}), and at most {} of a CPU{limit} was busy. They wait for something other than a CPU (a timer, a disk, a \
         pause), or are requests of another kind. To find out: `strace -f -T -p {}` shows how long each call took.",
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
