use super::backend::{self, busiest_backend, is_slower};
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "backend-pool",
    cause: "the pool of connections to a backend is exhausted",
    evidence: "the account: connections that the server opened, the time from the first byte sent to the first byte \
               received, requests in progress",
    threshold: "each connection had a call in progress for at least 70 % of the time, there were fewer connections \
                than 70 % of the requests, and a call took at most twice as long as at the lowest load",
    refuted_by: "throughput stays the same with twice as many connections",
    remedy: "a larger pool in the server's configuration, or fewer calls per request",
    source: "Little's law; utilisation law",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge: |evidence| evidence.limit_by("backend-pool"),
};

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let (high, low) = busiest_backend(reading)?;
    let in_flight = reading.high.requests.as_ref()?.in_flight;
    let is_used = |one: &BackendLevel, in_flight: f64| {
        one.busy >= LITTLE_IDLE * one.connections && one.connections < LITTLE_IDLE * in_flight
    };
    if !is_used(high, in_flight) {
        return None;
    }
    // Datagrams need no pool. If calls are slower, the backend is the limit.
    if is_slower(high, low) || high.address.starts_with("udp:") {
        return backend::full(reading);
    }
    let since = reading
        .since(|level| level.backends.iter().any(|one| one.address == high.address && is_used(one, level.in_flight())));
    let before = low.map_or(String::new(), |low| format!(" ({} at the lowest load)", format_nanos(low.call_us * 1e3)));
    let because = format!(
        "The pool of connections to {} is exhausted from {since} on: at {} {:.1} of its {:.0} connections had a call \
         in progress at any time, while {:.1} requests were in progress. The backend itself answers in {}{before}.",
        high.address,
        reading.at_high(),
        high.busy,
        high.connections,
        in_flight,
        format_nanos(high.call_us * 1e3),
    );
    let remedy = format!(
        "To try: more than {:.0} connections in the pool, or fewer calls per request; the backend is not the limit \
         yet.",
        high.connections
    );
    FoundLimit::new(RULE.id, because, remedy, &[])
}
