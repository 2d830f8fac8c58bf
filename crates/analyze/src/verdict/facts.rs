//! Findings that name no cause: slow requests while no CPU is busy, connections that serve few requests, and stalls.

use super::cause::busiest;
use super::command::server_pid;
use super::evidence::Evidence;
use crate::disturbance::is_disturbed;
use crate::point::answers;
use crate::statistics::range;
use crate::zones::{Level, SweepFindings, load_words, percent};
use record::units::{format_nanos, grouped};
use record::{Point, Sweep, names};

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

/// Least number of requests in flight: a single slow request does not stop the others.
const SEVERAL: u64 = 4;
/// A gap of this many mean gaps between responses is no chance.
const GAPS: f64 = 20.0;
/// Least number of points with a stall, and least share of all points.
const LEAST_STALLED: usize = 3;
const LEAST_STALLED_RATIO: f64 = 0.05;

/// Stalls: times without any answer while requests waited.
pub(super) fn stalls(evidence: &Evidence<'_>) -> Option<String> {
    // The longest stall of a point in which a stall would have been seen.
    let seen = |point: &&Point| {
        let (stall_us, p50_us) = (point.value(names::STALL_MAX)?, point.value(names::RESPONSE_P50)?);
        let window_us = point.duration_ns as f64 / 1e3;
        let ours_us = point.value(names::REAP_MAX).unwrap_or(0.0);
        let taken_us = point.value(names::MACHINE_STEAL).unwrap_or(0.0) * window_us;
        let usual_us = f64::max(TIMES * p50_us, GAPS * window_us / point.outcomes.completed().max(1) as f64);
        let is_clear = stall_us >= LEAST_US && stall_us >= usual_us && stall_us >= 2.0 * ours_us.max(taken_us);
        let is_stopped = point.value(names::SERVER_THROTTLED).is_some_and(|ratio| ratio > 0.0);
        let could_be = usual_us < window_us / 2.0 && !is_stopped && !is_disturbed(point);
        (could_be && point.connections >= SEVERAL).then_some(is_clear.then_some(stall_us))
    };
    let looked: Vec<(&Point, Option<f64>)> =
        evidence.run.points.iter().filter_map(|point| Some((point, seen(&point)?))).collect();
    let stalled: Vec<f64> = looked.iter().filter_map(|(_, stall_us)| *stall_us).collect();
    if stalled.len() < LEAST_STALLED || (stalled.len() as f64) < LEAST_STALLED_RATIO * looked.len() as f64 {
        return None;
    }
    let (shortest, longest) =
        range(&stalled).map(|(least, most)| (format_nanos(least * 1e3), format_nanos(most * 1e3)))?;
    let window_ns: f64 = looked.iter().map(|(point, _)| point.duration_ns as f64).sum();
    Some(format!(
        "The server stalls: in {} of {} points it answered nothing for {}, though {} or more requests waited, at least \
         once in {} of load. A closed loop stops with the server, so few requests show it. To try: check the log of \
         its garbage collector, and its timers; `strace -f -tt -p {}` shows what came before.",
        stalled.len(),
        looked.len(),
        if shortest == longest { longest } else { format!("{shortest} to {longest}") },
        SEVERAL,
        format_nanos(window_ns / stalled.len() as f64),
        server_pid(evidence.run)
    ))
}

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
