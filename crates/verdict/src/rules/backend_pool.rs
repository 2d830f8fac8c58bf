use super::backend::{self, busiest_backend, is_slower};
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "backend-pool",
    cause: "the pool of connections to a backend is exhausted",
    evidence: "the account: connections that the server opened, the time from the first byte sent to the first byte \
               received, requests in progress",
    threshold: "each connection had a call in progress for at least 70 % of the time, there were fewer connections \
                than 70 % of the requests, at most 1.25 times as many calls were in progress at a lower load, and a \
                call took at most twice as long as at the lowest load",
    refuted_by: "throughput stays the same with twice as many connections",
    remedy: "a larger pool in the server's configuration, or fewer calls per request",
    source: "Little's law; utilisation law",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge: |evidence| evidence.limit_by("backend-pool"),
};

/// Ratio of the calls in progress at a lower load to the connections from which on the pool is not exhausted.
const MORE_CALLS: f64 = 1.25;

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let (high, low) = busiest_backend(reading)?;
    if !is_used(high, reading.high.in_flight()) {
        return None;
    }
    // More calls than this were in progress at a lower load: it is not the pool that keeps them few.
    let at_lower = reading.all.iter().filter(|level| level.load < reading.high.load);
    if at_lower.filter_map(|level| level.backend(&high.address)).any(|one| one.busy > MORE_CALLS * high.connections) {
        return None;
    }
    // Datagrams need no pool. If calls are slower, the backend is the limit.
    if is_slower(high, low) || high.address.starts_with("udp:") {
        return backend::full(reading);
    }
    exhausted(reading, high, low)
}

/// A full pool of connections between two processes of the server; of several in a row the smallest, at which the
/// others wait. If the process that answers is full, its threads show it.
pub fn full_to_own(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let used = reading.high.asked_of_own().filter(|high| is_used(high, reading.high.in_flight()));
    let high = used.min_by(|a, b| a.connections.total_cmp(&b.connections))?;
    let low = reading.lowest()?.own_backends.iter().find(|one| one.address == high.address);
    if is_slower(high, low) { None } else { exhausted(reading, high, low) }
}

/// Whether all connections have a call in progress while more requests are in progress than there are connections.
fn is_used(one: &BackendLevel, in_flight: f64) -> bool {
    one.busy >= LITTLE_IDLE * one.connections && one.connections < LITTLE_IDLE * in_flight
}

fn exhausted(reading: &AccountRange<'_>, high: &BackendLevel, low: Option<&BackendLevel>) -> Option<FoundLimit> {
    let in_flight = reading.high.in_flight();
    let connections = count(high.connections.round() as u64, "connection");
    let waiting = reading.waiting_at_backends(high.busy);
    let since = reading.since(|level| {
        let mut all = level.backends.iter().chain(&level.own_backends);
        all.any(|one| one.address == high.address && is_used(one, level.in_flight()))
    });
    let before = low.map_or(String::new(), |low| format!(" ({} at the lowest load)", format_nanos(low.call_us * 1e3)));
    let because = format!(
        "The pool of connections to {} is exhausted from {since} on: at {} {:.1} of its {} had a call in progress at \
         any time, while {in_flight:.1} requests were in progress. The backend itself answers in {}{before}.{}",
        high.address,
        reading.at_high(),
        high.busy,
        connections,
        format_nanos(high.call_us * 1e3),
        waiting.map_or(String::new(), |group| format!(" {} waited for each answer.", group.label())),
    );
    let remedy = if waiting.is_some() {
        "To try: more threads or processes, or calls that do not block the thread; more connections alone do not help."
            .into()
    } else {
        format!(
            "To try: more than {connections} in the pool, or fewer calls per request; the backend is not the limit yet."
        )
    };
    let at_once = waiting.map_or(ELSEWHERE, |group| group.threads.round());
    FoundLimit::new(RULE.id, because, remedy, &[])?.dearer(SlowPlace::Request, at_once)
}
