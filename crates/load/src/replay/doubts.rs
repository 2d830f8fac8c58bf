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

#[cfg(test)]
mod tests {
    use super::*;
    use record::Arrival;
    use record::workload::TraceSource;

    /// The replay doubts about a point of a sweep with 64 connections, closed loop or 1,000/s for 1 s.
    fn doubted(is_closed: bool, sent: u64, replay: ReplayResult) -> Vec<Doubt> {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.connections = 64;
        let open = Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Trace };
        plan.pace = if is_closed { Pace::Closed } else { open };
        plan.workload.trace = Some(TraceSource {
            file: "a.log".into(),
            format: "common".into(),
            speed: Some(1.0),
            session_gap_ns: 0,
            has_host: false,
            is_repeated: true,
        });
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        result.counts.outcomes.sent = sent;
        result.replay = Some(replay);
        doubts(&result, &plan)
    }

    fn log(clients: u64, largest_client_requests: u64) -> ReplayResult {
        ReplayResult { lines: 1000, requests: 1000, clients, largest_client_requests, ..ReplayResult::default() }
    }

    #[test]
    fn a_closed_loop_needs_at_least_as_many_clients_as_connections() {
        let found = doubted(true, 1000, log(1, 1000));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Invalid));
        assert!(found[0].what.contains("from 1 client,") && found[0].what.contains("all 64 connections"), "{found:?}");
        assert!(found[0].remedy.contains("$http_x_forwarded_for"), "{found:?}");
        assert_eq!(doubted(true, 1000, log(63, 20)).len(), 1);
        assert_eq!(doubted(true, 1000, log(64, 20)), []);
        assert_eq!(doubted(false, 1000, log(3, 400)), [], "a schedule needs no more connections than its clients have");
    }

    #[test]
    fn one_address_with_most_of_the_requests_is_named_in_both_loops() {
        for is_closed in [true, false] {
            let found = doubted(is_closed, 1000, log(200, 700));
            assert!(found.len() == 1 && found[0].what.contains("200 clients, 70 % of them of one client"), "{found:?}");
        }
    }

    #[test]
    fn moved_times_and_gaps_of_days_raise_doubts_if_times_matter() {
        let moved = |clamped| ReplayResult { clamped, back_max_ns: 7_200_000_000_000, ..log(200, 20) };
        assert_eq!(doubted(false, 1000, moved(10)), []);
        assert_eq!(doubted(false, 1000, moved(20))[0].severity, Severity::Warning);
        let most = doubted(false, 1000, moved(600));
        assert_eq!(most[0].severity, Severity::Invalid);
        assert!(most[0].what.contains("60 % of the log's lines") && most[0].what.contains("2 hours"), "{most:?}");
        assert_eq!(doubted(true, 1000, moved(600)), []);
        let gap = ReplayResult { gap_max_ns: 56 * 365 * GAP_NS, gap_line: 4, ..log(200, 20) };
        let found = doubted(false, 1000, gap);
        assert!(found[0].what.starts_with("line 4 of the log is 20440 days later than"), "{found:?}");
    }

    #[test]
    fn a_point_that_offered_another_rate_raises_a_doubt() {
        assert_eq!(doubted(false, 950, log(200, 20)), []);
        assert!(doubted(false, 600, log(200, 20))[0].what.contains("60 % of the requested rate"));
        assert_eq!(doubted(false, 0, log(200, 20)).len(), 1);
        assert_eq!(doubted(false, 1300, log(200, 20)).len(), 1);
    }
}
