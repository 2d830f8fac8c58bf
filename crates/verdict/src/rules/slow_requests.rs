//! Requests that are slow while no CPU is busy.

use super::super::cause::busiest;
use super::*;
use analyze::zones::Level;

pub(super) const RULE: Rule = Rule {
    id: "slow-requests",
    cause: "some requests are slow though the server is idle",
    evidence: "`client.response_p99_us` against `client.response_p50_us`, less `client.reap_p99_us`, at the lowest \
               loads; the account: waits of that length",
    threshold: "at the lowest loads, at most three and at least two, whose CPUs and busiest thread are less than half \
                busy: p99 at least 10 ms and 20 times the median, and there at most twice as long as at another; at \
                least 100 requests at each and 500 in all; a possibility below the limit on the 99th percentile",
    refuted_by: "they waited in the client (`client.reap_p99_us`), or the server was stopped",
    remedy: "the call in which they wait, or the kind of request that they are",
    source: "Dean and Barroso, \"The Tail at Scale\" (2013)",
    is_limit: false,
    is_counted: false,
    hidden_by: &[
        "stalls",
        "blocked-loop",
        "garbage-collection",
        "delayed-ack",
        "held-answers",
        "send-buffer",
        "hangs",
        "connection-limit",
        "cpu-bursts",
        "cpu-quota",
        "loss",
        "client",
    ],
    judge,
};

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
const LEAST_IN_ALL: u64 = 500;

/// The lowest loads, if some requests are slow at each of them while the server is idle.
pub(super) fn idle_levels<'a>(evidence: &Evidence<'a>) -> Option<Vec<&'a Level>> {
    let closed = evidence.findings.connections.as_ref()?;
    let points = |level: &Level| evidence.quiet_at(Sweep::Connections, level.load);
    let is_stopped = |point: &&Point| point.value(names::SERVER_THROTTLED).is_some_and(|ratio| ratio > 0.0);
    let is_idle = |level: &&Level| {
        !level.client_limited
            && busiest(level).is_some_and(|share| share < IDLE_RATIO)
            && !points(level).iter().any(is_stopped)
    };
    let idle: Vec<&Level> = closed.levels.iter().take(LOADS).take_while(is_idle).collect();
    let is_slow = |level: &&Level| {
        let (Some(p50), Some(p99)) = (level.response_p50_us, level.response_p99_us) else { return false };
        let own = p99.median - level.reap_p99_us.map_or(0.0, |spread| spread.median);
        own >= LEAST_US && own >= TIMES * p50.median
    };
    let (least, most) = range(idle.iter().filter_map(|level| Some(level.response_p99_us?.median)).collect::<Vec<_>>())?;
    let is_alike = most <= MOST_APART * least;
    (idle.len() >= 2 && idle.iter().all(is_slow) && is_alike).then_some(idle)
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let idle = idle_levels(evidence)?;
    let points: Vec<&Point> = idle.iter().flat_map(|level| evidence.quiet_at(Sweep::Connections, level.load)).collect();
    let n = answers(&points);
    let few = |level: &&Level| answers(&evidence.quiet_at(Sweep::Connections, level.load)) < LEAST_AT_A_LOAD;
    if n < LEAST_IN_ALL || idle.iter().any(few) {
        return None;
    }
    let medians = |of: fn(&Level) -> Option<f64>| range(idle.iter().filter_map(|level| of(level)).collect::<Vec<_>>());
    let (least, most) = medians(|level| Some(level.response_p99_us?.median))?;
    let (_, typical) = medians(|level| Some(level.response_p50_us?.median))?;
    let most_busy = idle.iter().filter_map(|level| busiest(level)).fold(0.0, f64::max);
    let waited: Vec<(&Point, f64)> = points.iter().map(|point| (*point, most)).collect();
    let waits = stalls::waits(&waited);
    let finding = finding(
        format!(
            "Some requests are slow though the server is idle: from {} to {} p99 was {} to {}, the median at most {} \
             (n = {}), and at most {} of a CPU or of a limit was busy.{}",
            load_words(idle[0].load, Sweep::Connections),
            load_words(idle[idle.len() - 1].load, Sweep::Connections),
            format_nanos(least * 1e3),
            format_nanos(most * 1e3),
            format_nanos(typical * 1e3),
            grouped(n as f64),
            percent(most_busy),
            waits.clone().unwrap_or_default(),
        ),
        "To try: find what these requests wait for: a timer, a disk, another server, a pause; or measure their kind \
         alone (`--mix`, or another URL)."
            .into(),
        &[],
    )?;
    finding.proven_if(most * 1e3 >= evidence.criteria().p99_limit_ns as f64 && waits.is_some())
}
