//! Finds contradictions in a worker's result: counts that do not add up, so that it is rejected.

use load::{ClassCounts, LoadResult};
use record::Latency;

/// No engine sends as many requests in a week; sums over thousands of workers stay in range.
const MOST_REQUESTS: u64 = 1 << 48;

/// Classes of requests at most; each has a histogram.
const MOST_CLASSES: usize = 64;

/// Why this cannot be the result of a load, in words; `None` if all counts agree with each other.
pub fn contradiction(result: &LoadResult) -> Option<String> {
    let outcomes = &result.counts.outcomes;
    let counts = [outcomes.requests(), outcomes.connects, outcomes.connections_used, result.counts.completed_in_window];
    if counts.iter().any(|count| *count > MOST_REQUESTS) {
        return Some("its counts are larger than any load's".into());
    }
    let requests = outcomes.requests();
    if outcomes.sum() != requests {
        return Some(format!(
            "it had {requests} requests and accounts for {}: the outcomes do not add up",
            outcomes.sum()
        ));
    }
    let completed = outcomes.completed();
    for (name, latency) in [
        ("response", &result.counts.times.response),
        ("service", &result.counts.times.service),
        ("first-byte", &result.counts.times.first_byte),
    ] {
        if latency.len() != completed {
            return Some(format!(
                "its histogram of {name} times has {} entries for {completed} responses",
                latency.len()
            ));
        }
    }
    let statuses = result.counts.status_counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let at_most = [
        ("entries of its histogram of the lag", result.counts.times.lag.len(), "requests", requests),
        (
            "entries of its histogram of waits for a connection",
            result.counts.times.connection_wait.len(),
            "requests",
            requests,
        ),
        ("entries of its histogram of its own lag", result.counts.times.own_lag.len(), "requests", requests),
        (
            "entries of its histogram of connect times",
            result.counts.times.connect.len(),
            "connections",
            outcomes.connects,
        ),
        ("silent connections", outcomes.connections_silent, "connections in use", outcomes.connections_used),
        ("connections closed before a request", outcomes.closed_unused, "connections", outcomes.connects),
        ("closes that were waited for", result.counts.closes_awaited, "connections", outcomes.connects),
        ("slow connections", outcomes.connects_slow, "connections", outcomes.connects),
        (
            "ages of requests without a response",
            result.counts.times.unfinished_age.len(),
            "such requests",
            outcomes.unfinished.saturating_add(outcomes.timed_out).saturating_add(outcomes.connect_timed_out),
        ),
        ("requests that never left", result.counts.never_sent, "unfinished requests", outcomes.unfinished),
        ("responses by status", statuses, "responses", completed),
        (
            "good responses in the window",
            result.counts.ok_in_window,
            "responses in it",
            result.counts.completed_in_window,
        ),
        (
            "sampled responses",
            result.counts.times.reap.len().saturating_add(result.counts.arrivals_unknown),
            "responses",
            completed,
        ),
        ("bytes of bodies", result.counts.body_bytes, "bytes received", result.counts.received_bytes),
    ];
    let times = &result.counts.times;
    let sampled = times.reap.len();
    if times.sampled.len() != sampled || times.arrived.len() != sampled {
        return Some("its histograms of the sample of responses differ in their entries".into());
    }
    if let Some((part, count, whole, limit)) = at_most.into_iter().find(|(_, count, _, limit)| count > limit) {
        return Some(format!("it counts {count} {part}, but {limit} {whole}"));
    }
    let histograms = [
        &result.counts.times.response,
        &result.counts.times.service,
        &result.counts.times.first_byte,
        &result.counts.times.lag,
        &result.counts.times.connection_wait,
    ];
    let others = [
        &times.own_lag,
        &times.connect,
        &times.unfinished_age,
        &times.reap,
        &times.sampled,
        &times.arrived,
        &times.part_gap,
    ];
    let is_beyond = |latency: &&Latency| latency.clamped() > latency.len();
    if histograms.iter().chain(&others).copied().any(|latency| is_beyond(&latency)) {
        return Some("a histogram has more values beyond its range than values".into());
    }
    if result.window_ns == 0 && result.counts.completed_in_window > 0 {
        return Some("it counts responses in a window without length".into());
    }
    let of_classes =
        |pick: fn(&ClassCounts) -> u64| result.classes.iter().fold(0, |sum: u64, one| sum.saturating_add(pick(one)));
    if result.classes.len() > MOST_CLASSES
        || of_classes(|class| class.requests) > requests
        || result.classes.iter().any(|class| class.response.len() > completed)
    {
        return Some(format!("its classes have more requests than the {requests} of the load"));
    }
    if result.bits_per_sec.iter().any(|bits| !(0.0..=1e15).contains(bits)) {
        return Some("the bandwidth of a connection is impossible".into());
    }
    if let Some(tls) = &result.tls
        && tls.completed_in_window.max(tls.resumed) > tls.times.len()
    {
        return Some(format!("it counts more handshakes than the {} that it timed", tls.times.len()));
    }
    let engine = &result.engine;
    let ratios = [engine.busiest_thread_ratio, engine.run_queue_wait_ratio.unwrap_or(0.0)];
    if engine.memory_bytes_per_connection < 0.0 || ratios.iter().any(|ratio| !(0.0..=1000.0).contains(ratio)) {
        return Some("its engine's utilisation is not a share".into());
    }
    None
}
