//! Doubts whether the load sent was that of the log, or the one wanted; for a whole load on all machines.

use crate::result::LoadResult;
use record::units::{format_si, percent};
use record::workload::ReplayResult;
use record::{Doubt, DoubtKind, LoadPlan, Pace, Severity, other_rate_ratio};

const CLAMPED_RATIO: f64 = 0.01;
/// A longer time without a line suggests a wrong clock rather than a quiet site.
const GAP_NS: u64 = 86_400_000_000_000;

/// The doubts about a replay; none if no log is replayed.
pub fn doubts(result: &LoadResult, plan: &LoadPlan) -> Vec<Doubt> {
    let (Some(replay), Some(source)) = (&result.replay, &plan.workload.trace) else { return Vec::new() };
    let is_paced = plan.pace != Pace::Closed;
    let mut doubts = Vec::new();
    doubts.extend(few_clients(replay, plan, source.is_repeated));
    if is_paced {
        doubts.extend(moved_up(replay));
        doubts.extend(long_gap(replay));
    }
    if source.is_repeated && !result.interrupted {
        doubts.extend(other_rate(result, plan));
    }
    doubts
}

pub(crate) fn dominant_client_ratio(replay: &ReplayResult) -> Option<f64> {
    let ratio = replay.largest_client_requests as f64 / replay.requests.max(1) as f64;
    (ratio > 0.5).then_some(ratio)
}

/// Each client sends its requests one after another, so clients limit the requests in flight.
fn few_clients(replay: &ReplayResult, plan: &LoadPlan, is_sweep: bool) -> Option<Doubt> {
    let too_few = plan.pace == Pace::Closed && replay.clients < plan.connections;
    let dominant = dominant_client_ratio(replay);
    if plan.connections < 2 || replay.requests < 2 || !(too_few || dominant.is_some()) {
        return None;
    }
    let of_one = dominant.map(|ratio| format!("{} of them of one client", percent(ratio)));
    let what = format!(
        "the requests come from {}{}, and a client sends its requests one after another, so {} connections were unused",
        if replay.clients == 1 { "1 client".into() } else { format!("{} clients", format_si(replay.clients as f64)) },
        of_one.filter(|_| replay.clients > 1).map(|words| format!(", {words}")).unwrap_or_default(),
        if too_few { format!("all {}", format_si(plan.connections as f64)) } else { "more".into() },
    );
    Some(Doubt::new(
        DoubtKind::ReplayInexact,
        if is_sweep { Severity::Invalid } else { Severity::Warning },
        what,
        "if the log has a proxy's address instead of its clients', log theirs and name the field (--set \
         workload.trace-format= with $http_x_forwarded_for or %{X-Forwarded-For}i); otherwise use a log of more \
         clients",
    ))
}

fn moved_up(replay: &ReplayResult) -> Option<Doubt> {
    let ratio = replay.clamped as f64 / replay.lines.saturating_sub(replay.rejected).max(1) as f64;
    (ratio > CLAMPED_RATIO).then(|| {
        Doubt::new(
            DoubtKind::ReplayInexact,
            if ratio > 0.5 { Severity::Invalid } else { Severity::Warning },
            format!(
                "{} of the log's lines are more than a minute older than a line above them (by up to {}): they are \
                 sent in bursts instead of at their times",
                percent(ratio),
                period(replay.back_max_ns)
            ),
            "sort the log by time (join files in date order), and remove lines with wrong times",
        )
    })
}

fn long_gap(replay: &ReplayResult) -> Option<Doubt> {
    (replay.gap_max_ns > GAP_NS).then(|| {
        DoubtKind::ReplayInexact.warning(
            format!(
                "line {} of the log is {} later than the lines above it: no request is sent meanwhile",
                replay.gap_line,
                period(replay.gap_max_ns)
            ),
            "cut the log there, or correct the time if the clock was wrong",
        )
    })
}

fn other_rate(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
    let ratio = other_rate_ratio(plan.pace, result.counts.outcomes.sent, result.window_ns)?;
    Some(DoubtKind::ReplayInexact.warning(
        format!(
            "the log's requests in this window are {} of the requested rate: the log's rate changes too much",
            percent(ratio)
        ),
        "measure for longer (--duration), or use a part of the log with a steadier rate",
    ))
}

fn period(ns: u64) -> String {
    let hours = ns as f64 / 3.6e12;
    match hours {
        48.0.. => format!("{:.0} days", hours / 24.0),
        2.0.. => format!("{hours:.0} hours"),
        _ => record::units::format_nanos(ns as f64),
    }
}
