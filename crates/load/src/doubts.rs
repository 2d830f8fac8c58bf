use crate::replay::dominant_client_ratio;
use crate::result::LoadResult;
use record::units::{format_nanos, format_si, percent};
use record::{Doubt, DoubtKind, LoadPlan, Outcomes, Pace, Severity};

/// Busy share from which a thread is a bottleneck, or close to one.
const SATURATED_RATIO: f64 = 0.90;
/// Lateness of the client at p99 that is always acceptable.
const LAG_LIMIT_NS: u64 = 1_000_000;
/// More lateness is acceptable up to this share of the response time.
const LAG_SHARE: f64 = 0.05;
const RUN_QUEUE_RATIO: f64 = 0.05;
const SILENT_RATIO: f64 = 0.01;
/// Tolerance of Little's law, in addition to one response per connection at the window's edges.
const BALANCE_RATIO: f64 = 0.2;
/// Time that the server may take to close a connection before the next one is opened.
const CLOSING_NS: f64 = 1e6;
/// A larger share of reap delay in a response time raises a doubt.
const REAP_RATIO: f64 = 0.1;
/// Every client takes this long to wake up, so a larger share of a short response time is only a note.
const WAKE_UP_NS: u64 = 100_000;
/// Limits for the client's longest stall. The time exceeds the scheduling delays of a busy machine.
const STOOD_RATIO: f64 = 0.01;
const STOOD_NS: u64 = 100_000_000;
const ERROR_RATIO: f64 = 0.01;
/// Answers per connection below which the server does not keep connections.
const ANSWERS_BEFORE_CLOSE: u64 = 2;
/// Limit for requests without a local port. A slot without a port pauses, so each of them stands for many requests
/// that were never made.
const NO_ROOM_RATIO: f64 = 0.001;
const MAX_STATUSES: usize = 4;
const SAMPLES_FOR_P50: u64 = 20;
/// With this many samples, ten lie above p99.
const SAMPLES_FOR_P99: u64 = 1_000;

/// The doubts about a result, the most severe causes first.
pub fn doubts(result: &LoadResult, plan: &LoadPlan) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if result.interrupted {
        let (seconds, planned) = (result.window_s(), plan.duration_ns as f64 / 1e9);
        doubts.push(DoubtKind::Interrupted.warning(
            format!("the run was interrupted after {seconds:.1} s of its {planned:.1} s window"),
            "run it again to the end",
        ));
    }
    doubts.extend(censored(result));
    if result.window_ns > 0 {
        doubts.extend(saturated(result));
        doubts.extend(kept_waiting(result));
        doubts.extend(stood(result));
        doubts.extend(few_samples(result));
        doubts.extend(reaped_late(result));
    }
    if matches!(plan.pace, Pace::Open { .. }) {
        doubts.extend(late(result));
        doubts.extend(starved(result, plan));
    }
    doubts.extend(silent(result));
    doubts.extend(closed_unused(result));
    doubts.extend(waited_for_closes(result));
    doubts.extend(out_of_balance(result, plan));
    doubts.extend(out_of_room(result));
    doubts.extend(timed_out_idle(result));
    doubts.extend(server_errors(result, plan));
    doubts
}

fn saturated(result: &LoadResult) -> Option<Doubt> {
    let ratio = result.engine.busiest_thread_ratio;
    (ratio > SATURATED_RATIO).then(|| {
        DoubtKind::ClientSaturated.warning(
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
        DoubtKind::SharedCpus.warning(
            format!(
                "a client thread waited for a CPU for {} of the window, because other programs used it",
                percent(ratio)
            ),
            "pin the client to CPUs that nothing else uses (--cpus)",
        )
    })
}

fn stood(result: &LoadResult) -> Option<Doubt> {
    // If the schedule was kept, only the main thread was stopped.
    let late_ns = result.counts.times.own_lag.max_ns().unwrap_or(u64::MAX);
    let (stood_ns, ratio) = (result.stood_ns, result.stood_ns as f64 / result.window_ns as f64);
    (ratio > STOOD_RATIO && stood_ns.min(late_ns) > STOOD_NS).then(|| {
        DoubtKind::Steal.warning(
            format!(
                "the client or its machine was stopped for {} of the window ({})",
                format_nanos(stood_ns as f64),
                percent(ratio)
            ),
            "measure again: throughput is too low by this share, and requests in flight took longer by this time",
        )
    })
}

/// Reports a large client's part of a percentile: the fall of the percentile if each sampled request ends when its
/// last byte arrived.
fn reaped_late(result: &LoadResult) -> Option<Doubt> {
    let times = &result.counts.times;
    let part = |name: &'static str, quantile: f64, least: u64| {
        let (all, without) = (times.sampled.quantile_ns(quantile)?, times.arrived.quantile_ns(quantile)?);
        let own_ns = all.saturating_sub(without);
        let ratio = own_ns as f64 / all as f64;
        (times.sampled.len() >= least && ratio > REAP_RATIO).then_some((name, own_ns, all, ratio))
    };
    let parts: Vec<_> =
        [part("p50", 0.5, SAMPLES_FOR_P50), part("p99", 0.99, SAMPLES_FOR_P99)].into_iter().flatten().collect();
    let largest_ns = parts.iter().map(|(_, own_ns, ..)| *own_ns).max()?;
    let words: Vec<String> = parts
        .iter()
        .map(|(name, own_ns, all, ratio)| {
            let (own, all) = (format_nanos(*own_ns as f64), format_nanos(*all as f64));
            format!("{own} of the {all} at {name} ({})", percent(*ratio))
        })
        .collect();
    Some(Doubt::new(
        DoubtKind::ReapDelay,
        if largest_ns > WAKE_UP_NS { Severity::Warning } else { Severity::Note },
        format!(
            "responses waited in the client's kernel before the client read them: {}, n = {}, sampled in {} of the \
             time",
            words.join(" and "),
            format_si(times.sampled.len() as f64),
            percent(result.dated_ratio())
        ),
        "use fewer connections per client thread (--threads, --connections), dedicated client CPUs (--cpus), or more \
         client machines (--client)",
    ))
}

fn few_samples(result: &LoadResult) -> Option<Doubt> {
    let count = result.counts.times.response.len();
    (count < SAMPLES_FOR_P99).then(|| {
        DoubtKind::TooFewSamples.note(
            format!("{count} complete responses: fewer than 10 of them determine the 99th percentile"),
            "measure for longer (--duration)",
        )
    })
}

fn late(result: &LoadResult) -> Option<Doubt> {
    let lag = result.counts.times.own_lag.quantile_ns(0.99)?;
    let response = result.counts.times.response.quantile_ns(0.5).unwrap_or(0);
    let limit = LAG_LIMIT_NS.max((response as f64 * LAG_SHARE) as u64);
    (lag > limit).then(|| {
        DoubtKind::ScheduleLag.warning(
            format!(
                "the client sent late: {} at p99 of {} requests",
                format_nanos(lag as f64),
                format_si(result.counts.times.own_lag.len() as f64)
            ),
            "give the client a dedicated CPU (--cpus, and --set load.precise=true), more threads, or a lower rate; \
             response times include the lateness, service times do not",
        )
    })
}

fn starved(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
    let wait = result.counts.times.connection_wait.quantile_ns(0.99)?;
    let response = result.counts.times.service.quantile_ns(0.5).unwrap_or(0);
    // If requests open connections, connecting is not a shortage of connections.
    let opening = if plan.requests_per_connection > 0 {
        let handshake = result.tls.as_ref().and_then(|tls| tls.times.max_ns());
        result.counts.times.connect.max_ns().unwrap_or(0) + handshake.unwrap_or(0)
    } else {
        0
    };
    let limit = LAG_LIMIT_NS.max((response as f64 * LAG_SHARE) as u64) + opening;
    (wait > limit || result.counts.never_sent > 0).then(|| {
        let wait_words = format_nanos(wait as f64);
        let (mut what, remedy) = if plan.workload.trace.is_some() {
            let dominant = result.replay.as_ref().and_then(dominant_client_ratio);
            let of_one = dominant.map(|ratio| format!(" ({} from one client)", percent(ratio))).unwrap_or_default();
            (
                format!(
                    "requests of the log{of_one} waited for their client's last answer or a connection: {wait_words} \
                         at p99"
                ),
                "replay more slowly (--speed) if the server cannot keep up, or allow more connections (--connections)",
            )
        } else {
            (
                format!(
                    "requests waited for one of {} connections to become free: {wait_words} at p99",
                    plan.connections
                ),
                "use more connections (--connections) if the server can serve them; otherwise the offered rate exceeds \
                 its capacity",
            )
        };
        if result.counts.never_sent > 0 {
            what.push_str(&format!("; {} never left", result.counts.never_sent));
        }
        DoubtKind::ConnectionWait.warning(what, remedy)
    })
}

fn censored(result: &LoadResult) -> Option<Doubt> {
    let outcomes = &result.counts.outcomes;
    // An interrupted run always ends with requests in flight.
    let unfinished = if result.interrupted { 0 } else { outcomes.unfinished };
    let count = unfinished + outcomes.timed_out + outcomes.connect_timed_out;
    if count == 0 {
        return None;
    }
    let share = count as f64 / result.counts.outcomes.requests().max(1) as f64;
    let oldest = result.counts.times.unfinished_age.max_ns().unwrap_or(0);
    Some(Doubt::new(
        DoubtKind::Censored,
        match share {
            share if share > 0.5 => Severity::Invalid,
            share if share > 0.001 => Severity::Warning,
            _ => Severity::Note,
        },
        format!(
            "{count} requests ({:.2} %) had no response when they timed out or the run ended, the oldest after {}: \
             percentiles above {:.2} % are only lower bounds",
            share * 100.0,
            format_nanos(oldest as f64),
            (1.0 - share) * 100.0
        ),
        "measure for longer than the server stalls, or offer less",
    ))
}

fn silent(result: &LoadResult) -> Option<Doubt> {
    let ratio = result.counts.outcomes.silent_ratio()?;
    let (silent, used) = (result.counts.outcomes.connections_silent, result.counts.outcomes.connections_used);
    if silent == 0 || result.interrupted {
        return None;
    }
    let rest = match used - silent {
        0 => "the server answered nothing".into(),
        heard => format!("throughput and times are those of the other {heard}"),
    };
    Some(Doubt::new(
        DoubtKind::SilentConnections,
        match ratio {
            ratio if ratio > 0.5 => Severity::Invalid,
            ratio if ratio > SILENT_RATIO => Severity::Warning,
            _ => Severity::Note,
        },
        format!("{silent} of {used} connections received no byte of a response in the whole window: {rest}"),
        "check how many connections the server serves at a time (its workers, its descriptor limit), or use fewer \
         (--connections)",
    ))
}

fn closed_unused(result: &LoadResult) -> Option<Doubt> {
    let (closed, connects) = (result.counts.outcomes.closed_unused, result.counts.outcomes.connects);
    (closed > 0).then(|| {
        Doubt::new(
            DoubtKind::SilentConnections,
            if closed as f64 > connects as f64 * SILENT_RATIO { Severity::Warning } else { Severity::Note },
            format!(
                "the server closed {closed} connections before any request: does it limit connections or idle time?"
            ),
            "raise the server's connection limit, or use fewer connections (--connections; in find: --set \
             find.open-connections=N)",
        )
    })
}

fn timed_out_idle(result: &LoadResult) -> Option<Doubt> {
    let count = result.counts.idle_timeouts;
    (count > 0).then(|| {
        DoubtKind::ConnectionWait.note(
            format!("the server closed {count} connections that sent no request within its time limit (status 408)"),
            "no request failed, but each connection was reopened: use fewer connections (--connections), or raise the \
             server's time limit for a request",
        )
    })
}

fn waited_for_closes(result: &LoadResult) -> Option<Doubt> {
    let count = result.counts.closes_awaited;
    (count > 0).then(|| {
        DoubtKind::ConnectionWait.note(
            format!(
                "the server announced the close of {count} connections but did not close them, and the client waited"
            ),
            "let the server close such connections, or use a warm-up: the client waits only for the first closes",
        )
    })
}

/// Checks Little's law: the requests in flight equal throughput times mean time. In a closed loop, that is the number
/// of connections without those being opened and those of [`silent`]; in an open loop, at most the number of
/// connections.
fn out_of_balance(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
    if result.window_ns == 0 || result.counts.completed_in_window == 0 || result.interrupted {
        return None;
    }
    let answered = result.counts.completed_in_window as f64;
    let depth = f64::from(plan.protocol.pipeline());
    let held = plan.connections.saturating_sub(result.counts.outcomes.connections_silent) as f64 * depth;
    let room = match depth {
        1.0 => format!("{} connections", format_si(held)),
        _ => format!("at most {} on the connections", format_si(held)),
    };
    let mean_ns = result.counts.times.service.mean_ns()?;
    let under_way = |ns_each: f64| answered * ns_each / result.window_ns as f64;
    let (busy, tolerance) = (under_way(mean_ns), BALANCE_RATIO + held / answered);
    let is_closed = plan.pace == Pace::Closed && plan.workload.trace.is_none();
    let reopened = result.counts.outcomes.connects.saturating_sub(plan.connections) as f64;
    let opens_each = (reopened / result.counts.outcomes.completed().max(1) as f64).min(1.0);
    let handshake_ns = result.tls.as_ref().and_then(|tls| tls.times.mean_ns()).unwrap_or(0.0);
    let opening_ns = opens_each * (result.counts.times.connect.mean_ns().unwrap_or(0.0) + handshake_ns + CLOSING_NS);
    let (what, remedy) = if busy > held * (1.0 + tolerance) {
        (
            format!(
                "throughput times mean service time is {} requests in flight, but there were {room} (Little's law): \
                 requests partly outside the window weigh too much",
                format_si(busy)
            ),
            "measure for longer than the server takes to answer (--duration)",
        )
    } else if is_closed && under_way(mean_ns + opening_ns) < held * (1.0 - tolerance) {
        (
            format!(
                "throughput times mean service time is {} requests in flight, but there were {room} with answers \
                 (Little's law): the others got no answer or were being opened{}",
                format_si(busy),
                if depth > 1.0 { ", or the server allows no more at once" } else { "" }
            ),
            "check the failures, the unfinished requests and the connect times",
        )
    } else {
        return None;
    };
    Some(DoubtKind::LittlesLaw.warning(what, remedy))
}

fn out_of_room(result: &LoadResult) -> Option<Doubt> {
    let outcomes = &result.counts.outcomes;
    let failed = outcomes.local_limit;
    (failed > 0 && failed as f64 >= outcomes.requests() as f64 * NO_ROOM_RATIO).then(|| {
        DoubtKind::ClientSaturated.warning(
            format!("the client had no local port or descriptor left for {failed} requests"),
            "the errors name it. Ports: use more source addresses (--source-address, --client; with ::1 there is only \
             one, with 127.0.0.1 many), or let the server close first (--set clients.close-first=server). Descriptors: \
             raise ulimit -n",
        )
    })
}

/// Whether the server closes connections after an answer without announcing it, so that the next request is lost.
fn closes_unannounced(outcomes: &Outcomes, plan: &LoadPlan) -> bool {
    let Outcomes { closed_early, connects, .. } = *outcomes;
    let is_most = closed_early > 0 && 2 * closed_early >= outcomes.failed();
    is_most && plan.requests_per_connection == 0 && outcomes.completed() < ANSWERS_BEFORE_CLOSE * connects
}

fn server_errors(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
    let protocol = &plan.protocol;
    // Another doubt reports the client's own limits.
    let outcomes = Outcomes { local_limit: 0, ..result.counts.outcomes };
    let ratio = outcomes.failed_ratio();
    if ratio < ERROR_RATIO && result.counts.stray_responses == 0 {
        return None;
    }
    // A status is more specific than "non-2xx".
    let errors = result.counts.status_counts.iter().filter(|(status, _)| !(200..400).contains(*status));
    let mut statuses: Vec<(u16, u64)> = errors.map(|(status, count)| (*status, *count)).collect();
    statuses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let statuses = statuses.iter().take(MAX_STATUSES).map(|(status, count)| {
        let words = protocol.status_words(*status);
        if protocol.has_status_codes() { format!("{count} status {words}") } else { format!("{count} {words}") }
    });
    let others =
        Outcomes { non_2xx: 0, ..outcomes }.failures().into_iter().map(|(kind, count)| format!("{count} {kind}"));
    let kinds: Vec<String> = statuses.chain(others).collect();
    let failed = (ratio >= ERROR_RATIO)
        .then(|| format!("{} of the finished requests failed ({})", percent(ratio), kinds.join(", ")));
    let stray = (result.counts.stray_responses > 0)
        .then(|| format!("the server sent unrequested bytes {} times", result.counts.stray_responses));
    Some(Doubt::new(
        DoubtKind::ServerErrors,
        if ratio > 0.5 { Severity::Invalid } else { Severity::Warning },
        [failed, stray].into_iter().flatten().collect::<Vec<_>>().join("; "),
        if closes_unannounced(&outcomes, plan) {
            "add --requests-per-connection 1, because the server closes connections after an answer without \
             'Connection: close'"
        } else {
            "check the server's error log; the figures include its error path"
        },
    ))
}
