//! An event loop that sometimes works for long between two waits; requests that arrive meanwhile wait for all of it.

use super::*;
use crate::hot_function;
use analyze::zones::SweepFindings;

pub(super) const RULE: Rule = Rule {
    id: "blocked-loop",
    cause: "an event loop is blocked by long work",
    evidence: "the account: CPU time between two waits of a thread that waits for events",
    threshold: "at least 10 ms at the two lowest loads, and 20 times the mean at the lowest; at most four times the \
                longest response time; one such thread per process. If the mean is of several requests without a wait, \
                20 times the median response time, and at most 1.5 times the longest",
    refuted_by: "the longest work stays as long without the requests of one kind",
    remedy: "a worker thread or process for the long work; `straingauge profile :PORT` names its functions",
    source: "Node.js documentation, \"Don't Block the Event Loop\"; Welsh, Culler and Brewer, \"SEDA\" (SOSP 2001)",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    const LEAST_MS: f64 = 10.0;
    const TIMES: f64 = 20.0;
    const LOADS: usize = 2;
    // A much longer time without a pause belongs to several requests.
    const PER_RESPONSE: f64 = 4.0;
    // The work of a single request takes about as long as its response.
    const PER_OWN_RESPONSE: f64 = 1.5;
    // Helper threads of Node's engine compile and collect garbage; one of them waits for timers.
    const OF_A_HELPER: f64 = 0.1;
    const OF_A_TIMER: f64 = 0.05;
    let event_waits = |group: &GroupLevel| -> f64 {
        let events = group.waits.iter().filter(|wait| wait.kind == WaitKind::Events);
        events.map(|wait| wait.times_per_sec).sum()
    };
    // Other threads of the program that wait for events and work can serve requests that arrive meanwhile.
    let program = |group: &GroupLevel| group.name.split([':', '(']).next().map(|name| name.trim_end().to_string());
    let has_others = |group: &GroupLevel| {
        let running = |is_wanted: &dyn Fn(&AccountLevel, &GroupLevel) -> bool| -> f64 {
            let of = |level: &AccountLevel| -> f64 {
                level.groups.iter().filter(|one| is_wanted(level, one)).map(|one| one.running).sum()
            };
            evidence.accounts().iter().map(of).sum()
        };
        // A thread that serves requests waits for events much more often than one that waits for a timer.
        let others = running(&|level, other| {
            other.name != group.name
                && program(other) == program(group)
                && event_waits(other) > OF_A_TIMER * level.per_sec()
        });
        others > OF_A_HELPER * running(&|_, one| one.name == group.name)
    };
    // Processes that end and start while the server is measured work for long to begin with.
    let is_alone = |group: &&GroupLevel| {
        let per_process = group.threads.max(1.0) / group.processes.len().max(1) as f64;
        (1.0 / 1.5..1.5).contains(&per_process) && !has_others(group)
    };
    let SweepFindings { sweep, levels, .. } = evidence.sweep()?;
    let response_us = |point: &Point| match point.outcomes.unfinished + point.outcomes.timed_out {
        0 => point.value(names::RESPONSE_MAX).unwrap_or(f64::INFINITY),
        _ => f64::INFINITY,
    };
    let low_loads = evidence.accounts().iter().take(LOADS);
    let low_points = low_loads.flat_map(|level| evidence.points_at(*sweep, level.load));
    let slowest_ms = low_points.map(response_us).fold(0.0, f64::max) / 1e3;
    let most_ms = PER_RESPONSE * slowest_ms;
    let longest = |level: &AccountLevel| {
        let loops = level.groups.iter().filter(|group| event_waits(group) > 0.0).filter(is_alone);
        let group = loops.into_iter().find(|group| (LEAST_MS..=most_ms).contains(&group.longest_work_ms))?;
        Some((group.name.clone(), group.processes.len(), group.work_ms, group.longest_work_ms))
    };
    // With few connections the thread waits after each request; a full loop always works without a pause.
    let lowest: Vec<_> = evidence.accounts().iter().take(LOADS).map(longest).collect::<Option<_>>()?;
    let (name, processes, mean_ms, first_ms) = lowest.first()?;
    let serving = if *processes > 1 {
        format!("Each of {processes} processes of {name} serves its connections with one thread")
    } else {
        format!("One thread of {name} serves all connections")
    };
    let (least, most) = range(lowest.iter().map(|(.., longest)| *longest))?;
    // A thread that finds the next request ready works for several without a wait.
    let median_ms = levels.first()?.response_p50_us.map_or(f64::INFINITY, |us| us.median / 1e3);
    let is_of_one = slowest_ms.is_finite() && most <= PER_OWN_RESPONSE * slowest_ms;
    let usual_ms = if is_of_one { mean_ms.min(median_ms) } else { *mean_ms };
    if lowest.len() < LOADS || *first_ms < TIMES * usual_ms {
        return None;
    }
    let command = format!("straingauge profile :{}", served_port(evidence.run));
    finding(
        format!(
            "{serving}. At the lowest loads it worked for {} to {} without a pause at least once (usually {}), and \
             every request that arrived meanwhile waited.{}",
            format_nanos(least * 1e6),
            format_nanos(most * 1e6),
            format_nanos(usual_ms * 1e6),
            hot_function::of_callees(evidence),
        ),
        format!(
            "To try: move that work to a separate thread or process, or divide it into pieces; `{command}` under load \
             names its functions."
        ),
        std::slice::from_ref(&command),
    )
}
