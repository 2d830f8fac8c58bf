//! The server answers nothing for a while, and then goes on.

use super::*;
use analyze::disturbance::is_disturbed;

pub(super) const RULE: Rule = Rule {
    id: "stalls",
    cause: "the server stops answering now and then",
    evidence: "`client.stall_max_us` against the median response time and the mean gap between answers; the account: \
               waits of that length",
    threshold: "at least 10 ms and 20 times both, twice the client's own delay, in 3 points and 5 % of those with 4 or \
                more connections (32 with `slow-requests`) and CPUs that are not full; a possibility below half of the \
                limit on the 99th percentile",
    refuted_by: "the stalls are in the client or the machine: `client.reap_max_us`, `machine.cpu_steal_ratio`",
    remedy: "what runs at these times: a timer, a collection of garbage, a checkpoint, a rotation of logs",
    source: "Dean and Barroso, \"The Tail at Scale\" (2013)",
    is_limit: false,
    is_counted: false,
    hidden_by: &[
        "stopped",
        "garbage-collection",
        "blocked-loop",
        "cpu-bursts",
        "cpu-quota",
        "hangs",
        "memory-limit",
        "client",
    ],
    judge,
};

const LEAST_US: f64 = 10_000.0;
/// A stall of this many medians, and of this many mean gaps between responses, is no chance.
const TIMES: f64 = 20.0;
/// Least number of requests in flight: a single slow request does not stop the others. If some requests are slow at any
/// load, several of them may be in flight at once.
const SEVERAL: u64 = 4;
const MANY: u64 = 32;
/// Least number of points with a stall, and least share of all points.
const LEAST_STALLED: usize = 3;
const LEAST_STALLED_RATIO: f64 = 0.05;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let least = if slow_requests::idle_levels(evidence).is_some() { MANY } else { SEVERAL };
    // The longest stall of a point in which a stall would have been seen.
    let seen = |point: &&Point| {
        let (stall_us, p50_us) = (point.value(names::STALL_MAX)?, point.value(names::RESPONSE_P50)?);
        let window_us = point.duration_ns as f64 / 1e3;
        let ours_us = point.value(names::REAP_MAX).unwrap_or(0.0);
        let taken_us = point.value(names::MACHINE_STEAL).unwrap_or(0.0) * window_us;
        let usual_us = TIMES * f64::max(p50_us, window_us / point.outcomes.completed().max(1) as f64);
        let is_clear = stall_us >= LEAST_US && stall_us >= usual_us && stall_us >= 2.0 * ours_us.max(taken_us);
        let is_stopped = point.value(names::SERVER_THROTTLED).is_some_and(|ratio| ratio > 0.0);
        // On full CPUs, threads wait for their turn.
        let is_full =
            point.value(names::SERVER_CPU_BUSY).is_some_and(|busy| busy >= evidence.criteria().saturation_ratio);
        let could_be = usual_us < window_us / 2.0 && !is_stopped && !is_full && !is_disturbed(point);
        (could_be && point.connections >= least).then_some(is_clear.then_some(stall_us))
    };
    let looked: Vec<(&Point, Option<f64>)> =
        evidence.run.points.iter().filter_map(|point| Some((point, seen(&point)?))).collect();
    let stalled: Vec<(&Point, f64)> = looked.iter().filter_map(|(point, us)| Some((*point, (*us)?))).collect();
    if stalled.len() < LEAST_STALLED || (stalled.len() as f64) < LEAST_STALLED_RATIO * looked.len() as f64 {
        return None;
    }
    let lengths: Vec<f64> = stalled.iter().map(|(_, us)| *us).collect();
    let (shortest, longest) =
        range(&lengths).map(|(least, most)| (format_nanos(least * 1e3), format_nanos(most * 1e3)))?;
    let window_ns: f64 = looked.iter().map(|(point, _)| point.duration_ns as f64).sum();
    let is_long = lengths.iter().any(|us| us * 1e3 >= 0.5 * evidence.criteria().p99_limit_ns as f64);
    finding(
        format!(
            "In {} of {} points the server answered nothing for {}, though {least} or more requests waited: at least \
             once in {} of load.{}",
            stalled.len(),
            looked.len(),
            if shortest == longest { longest } else { format!("{shortest} to {longest}") },
            format_nanos(window_ns / stalled.len() as f64),
            waits(&stalled).unwrap_or_default(),
        ),
        "To try: look for what it does at these times: a timer, a collection of garbage, a checkpoint, a rotation of \
         logs. A closed loop stops with the server, so the rates of the open loop show the effect better."
            .into(),
        &[],
    )?
    .proven_if(is_long)
}

/// Where the threads were for as long as the longest of these times whose account shows it.
pub(super) fn waits(stalled: &[(&Point, f64)]) -> Option<String> {
    let mut by_length = stalled.to_vec();
    by_length.sort_by(|a, b| b.1.total_cmp(&a.1));
    by_length.into_iter().find_map(|(point, stall_us)| {
        let level = analyze::account::level(point.load(), &[point])?;
        let is_of_stall = |wait: &WaitLevel| {
            let is_idle = matches!(wait.kind, WaitKind::Requests | WaitKind::Events);
            !is_idle && (0.5..=1.5).contains(&(wait.longest_ms * 1e3 / stall_us))
        };
        let mut waits: Vec<&WaitLevel> = level.waits().map(|(_, wait)| wait).filter(|wait| is_of_stall(wait)).collect();
        waits.sort_by(|a, b| b.threads.total_cmp(&a.threads));
        let words = waits.iter().take(2).map(|wait| {
            let function = if wait.function.is_empty() { String::new() } else { format!(" ({})", wait.function) };
            format!("in {}{function} for up to {}", wait.place, format_nanos(wait.longest_ms * 1e6))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!(" Its threads then waited {}.", words.join(", and ")))
    })
}
