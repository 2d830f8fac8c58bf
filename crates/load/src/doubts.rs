//! The engine doubts itself: what in the measurement speaks against its figures, how much, and what to do about it.

use crate::result::LoadResult;
use record::units::{format_nanos, format_si};
use record::{Doubt, DoubtKind, LoadPlan, Pace, Severity};

/// A thread busier than this is the bottleneck, or about to be.
const SATURATED_RATIO: f64 = 0.90;
/// The generator's own lateness at the 99th percentile that is always good enough.
const LAG_LIMIT_NS: u64 = 1_000_000;
/// More lateness is good enough where response times are this many times longer.
const LAG_SHARE: f64 = 0.05;
/// Waiting for the CPU for more than this share of the window.
const RUN_QUEUE_RATIO: f64 = 0.05;
/// A 99th percentile rests on ten samples beyond it at least.
const SAMPLES_FOR_P99: u64 = 1_000;

/// Every reason that a result gives not to trust it.
pub(crate) fn doubts(result: &LoadResult, plan: &LoadPlan) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if result.interrupted {
        let (seconds, planned) = (result.window_s(), plan.duration_ns as f64 / 1e9);
        doubts.push(Doubt::new(
            DoubtKind::Interrupted,
            Severity::Warning,
            format!("the run was interrupted after {seconds:.1} s of its {planned:.1} s window"),
            "run it again to the end",
        ));
    }
    if result.window_ns > 0 {
        doubts.extend(saturated(result));
        doubts.extend(kept_waiting(result));
        doubts.extend(few_samples(result));
    }
    if matches!(plan.pace, Pace::Open { .. }) {
        doubts.extend(late(result));
        doubts.extend(starved(result, plan));
    }
    doubts.extend(unfinished(result));
    doubts.extend(server_errors(result));
    doubts
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

fn saturated(result: &LoadResult) -> Option<Doubt> {
    let ratio = result.engine.busiest_thread_ratio;
    (ratio > SATURATED_RATIO).then(|| {
        Doubt::new(
            DoubtKind::ClientSaturated,
            Severity::Warning,
            format!(
                "the busiest client thread used {} of its CPU: this may be the client's limit, not the server's",
                percent(ratio)
            ),
            "give the client more CPUs and threads (--cpus, --threads), or another machine",
        )
    })
}

fn kept_waiting(result: &LoadResult) -> Option<Doubt> {
    let ratio = result.engine.run_queue_wait_ratio?;
    (ratio > RUN_QUEUE_RATIO).then(|| {
        Doubt::new(
            DoubtKind::SharedCpus,
            Severity::Warning,
            format!(
                "a client thread was ready to run but had no CPU for {} of the window: something else ran there",
                percent(ratio)
            ),
            "pin the client to CPUs that nothing else uses (--cpus)",
        )
    })
}

fn few_samples(result: &LoadResult) -> Option<Doubt> {
    let count = result.response.len();
    (count < SAMPLES_FOR_P99).then(|| {
        Doubt::new(
            DoubtKind::TooFewSamples,
            Severity::Note,
            format!("{count} complete responses: the 99th percentile rests on fewer than 10 of them"),
            "measure for longer (--duration)",
        )
    })
}

fn late(result: &LoadResult) -> Option<Doubt> {
    let lag = result.own_lag.quantile_ns(0.99)?;
    let response = result.response.quantile_ns(0.5).unwrap_or(0);
    let limit = LAG_LIMIT_NS.max((response as f64 * LAG_SHARE) as u64);
    (lag > limit).then(|| {
        Doubt::new(
            DoubtKind::ScheduleLag,
            Severity::Warning,
            format!(
                "the client sent late: {} at p99 of {} requests",
                format_nanos(lag as f64),
                format_si(result.own_lag.len() as f64)
            ),
            "give the client a CPU of its own (--cpus, --precise), more threads, or a lower rate; \
             response times include the lateness, service times do not",
        )
    })
}

fn starved(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
    let wait = result.connection_wait.quantile_ns(0.99)?;
    let response = result.service.quantile_ns(0.5).unwrap_or(0);
    let limit = LAG_LIMIT_NS.max((response as f64 * LAG_SHARE) as u64);
    (wait > limit || result.never_sent > 0).then(|| {
        let wait_words = format_nanos(wait as f64);
        let (mut what, remedy) = if plan.workload.trace.is_some() {
            (
                format!("requests of the log waited for their client's last answer or a connection: {wait_words} at the 99th percentile"),
                "replay more slowly (--speed) if the server cannot follow, or allow more connections (--connections)",
            )
        } else {
            (
                format!(
                    "requests waited for a free one of {} connections: {wait_words} at the 99th percentile",
                    plan.connections
                ),
                "more connections (--connections) if the server can serve them; else the offered rate is beyond the server",
            )
        };
        if result.never_sent > 0 {
            what.push_str(&format!("; {} never left", result.never_sent));
        }
        Doubt::new(
            DoubtKind::ConnectionWait,
            Severity::Warning,
            what,
            remedy,
        )
    })
}

fn unfinished(result: &LoadResult) -> Option<Doubt> {
    let count = result.outcomes.unfinished;
    // An interrupted run leaves its last requests unfinished by nature.
    if count == 0 || result.interrupted {
        return None;
    }
    let share = count as f64 / result.outcomes.sent.max(1) as f64;
    let oldest = result.unfinished_age.max_ns().unwrap_or(0);
    Some(Doubt::new(
        DoubtKind::Censored,
        if share > 0.001 { Severity::Warning } else { Severity::Note },
        format!(
            "{count} requests ({:.2} %) had no response when the run ended, the oldest after {}: response times beyond \
             that share are longer than the histogram shows",
            share * 100.0,
            format_nanos(oldest as f64)
        ),
        "measure for longer than the server stalls, or offer less",
    ))
}

fn server_errors(result: &LoadResult) -> Option<Doubt> {
    let ratio = result.outcomes.failed_ratio();
    if ratio < 0.01 && result.stray_responses == 0 {
        return None;
    }
    let mut kinds: Vec<String> =
        result.outcomes.failures().into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if result.stray_responses > 0 {
        kinds.push(format!("{} times bytes that no request asked for", result.stray_responses));
    }
    Some(Doubt::new(
        DoubtKind::ServerErrors,
        if ratio > 0.5 { Severity::Invalid } else { Severity::Warning },
        format!("{:.1} % of the finished requests failed ({})", ratio * 100.0, kinds.join(", ")),
        "look at the server's error log; the figures describe its error path, too",
    ))
}
