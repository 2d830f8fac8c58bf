//! The server answers only so many connections at a time; the others wait until one of these closes, or it closes some
//! of them.

use super::*;

pub(super) const RULE: Rule = Rule {
    id: "connection-limit",
    cause: "the server serves only so many connections at a time",
    evidence: "connections without a byte of a response in the whole window or long after it, and requests that met a \
               closed connection, by number of connections",
    threshold: "in points with two numbers of connections (1.3 times apart or more), or with one and with exactly the \
                limit, as many were answered, to 10 %; fewer connections were all answered, more never; \
                not if p99 was 200 ms and 50 times the median where all were answered. A possibility: connections \
                are kept, and from a number of them on 1 % of the requests and at least 5 meet a reset or a close",
    refuted_by: "with a higher limit, the same number of connections is answered",
    remedy: "a higher limit in its configuration (lighttpd `server.max-connections`, Apache `MaxRequestWorkers`, \
             workers of gunicorn or Puma), or a shorter keep-alive",
    source: "a connection that is kept alive keeps its place, also between requests",
    is_limit: false,
    is_counted: true,
    hidden_by: &[
        "descriptors",
        "hangs",
        "backlog",
        "server-log",
        "server-errors",
        "memory-limit",
        "worker-pool",
        "lock",
        "one-at-a-time",
        "conntrack",
        "dropped-packets",
        "loss",
        "client-ports",
    ],
    judge: |evidence| unanswered(evidence).or_else(|| closed(evidence)),
};

const APART: f64 = 1.3;
const EQUAL: f64 = 0.1;
/// Response times that show connections that are served in turns.
const LATE_TIMES: f64 = 50.0;
const LATE_US: f64 = 200e3;
/// Share of the requests that meet a closed connection from which on a limit may close them. Some servers close a few
/// while all of their workers are busy.
const LEAST_CLOSED: f64 = 0.01;

fn unanswered(evidence: &Evidence<'_>) -> Option<Finding> {
    let in_loop = |point: &&Point| point.sweep == Sweep::Connections && point.outcomes.completed() > 0;
    let points: Vec<&Point> = evidence.run.points.iter().filter(in_loop).collect();
    // A request that was sent in the window and is still unanswered long after it has no server either.
    let silent = |point: &Point| point.outcomes.connections_silent.max(point.outcomes.unfinished);
    let starved: Vec<&Point> = points.iter().copied().filter(|point| silent(point) > 0).collect();
    let served = |point: &Point| point.outcomes.connections_used.saturating_sub(silent(point)) as f64;
    let usual = median(starved.iter().map(|point| served(point)))?;
    let near = |point: &&Point| (served(point) - usual).abs() <= f64::max(1.0, EQUAL * usual);
    let same: Vec<&Point> = starved.iter().copied().filter(near).collect();
    let (least, most) = range(same.iter().map(|point| point.connections as f64).collect::<Vec<_>>())?;
    let ratio = |point: &Point| point.connections as f64 / usual;
    let fits = |point: &&Point| match silent(point) {
        0 => ratio(point) <= 1.0 + EQUAL,
        _ => ratio(point) >= 1.0 - EQUAL,
    };
    // With one larger number only, all connections of the limit's number were answered.
    let is_reached = points.iter().any(|point| silent(point) == 0 && ratio(point) >= 1.0 - EQUAL);
    let is_known = most >= APART * least || is_reached && least >= APART * usual;
    // A server that serves its connections in turns answers all of them late.
    let is_late = |point: &&Point| {
        let (p50, p99) = (point.value(names::RESPONSE_P50), point.value(names::RESPONSE_P99));
        silent(point) == 0 && p50.zip(p99).is_some_and(|(p50, p99)| p99 > LATE_TIMES * p50 && p99 > LATE_US)
    };
    if points.iter().any(is_late) {
        return None;
    }
    if usual < 1.0 || !is_known || same.len() * 4 < starved.len() * 3 || !points.iter().all(fits) {
        return None;
    }
    let largest = load_words(most, Sweep::Connections);
    let loads =
        if most > least { format!("{} and at {largest}", load_words(least, Sweep::Connections)) } else { largest };
    finding(
        format!(
            "At {loads} only {usual:.0} connections got answers; the others waited for one of these to close (n = {}).",
            count(same.len(), "point")
        ),
        "To try: a higher limit of connections or workers in its configuration (lighttpd `server.max-connections`, \
         Apache `MaxRequestWorkers`), or a shorter keep-alive, so that waiting clients get their turn."
            .into(),
        &[],
    )
}

/// Connections that are closed for others.
fn closed(evidence: &Evidence<'_>) -> Option<Finding> {
    let keeps = evidence.run.record.scenario.load().is_some_and(|load| load.requests_per_connection == 0);
    let lost = |point: &Point| point.outcomes.reset.saturating_add(point.outcomes.closed_early);
    let is_many = |point: &Point| {
        let all = point.outcomes.completed().saturating_add(lost(point));
        lost(point) >= LEAST_ERRORS && lost(point) as f64 >= LEAST_CLOSED * all as f64
    };
    let (at, points) = evidence.first_level(|point| point.sweep == Sweep::Connections && keeps && is_many(point))?;
    let lowest = evidence.lowest();
    if lowest.is_empty() || lowest.iter().any(|point| is_many(point)) {
        return None;
    }
    let sum: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(lost(point)));
    finding(
        format!(
            "From {at} on it closed connections that clients kept: {} of {} requests there met a reset or a close, at \
             fewer connections none or hardly any.",
            grouped(sum as f64),
            grouped(answers(&points) as f64 + sum as f64),
        ),
        "To try: see whether that is its limit of connections, for which it closes some to accept others (nginx \
         `worker_connections`, HAProxy `maxconn`), and raise it."
            .into(),
        &[],
    )?
    .proven_if(false)
}
