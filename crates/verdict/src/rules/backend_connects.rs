use super::*;

pub(super) const RULE: Rule = Rule {
    id: "backend-connects",
    cause: "each call to a backend opens a connection",
    evidence: "the account: connections that the server opened and calls on them, by the other end",
    threshold: "at every load whose account has 30 such calls, and at two or more: at most 1.5 calls a connection, and \
                at least twice as many connections as requests in progress; or at the two highest: at most 3 calls a \
                connection, and twice as many as the most client connections of the run; a possibility unless the \
                server's CPUs are full (criterion `saturation_ratio`)",
    refuted_by: "`ss -tn state time-wait` shows no connections to the backend",
    remedy: "connections that are kept and used again",
    source: "RFC 9112, section 9.3: persistent connections avoid the cost of opening one for each request",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client"],
    judge,
};

const LEAST_CALLS: f64 = 30.0;
/// A program may keep a few connections: Go's client two to each server, which suffice at low loads.
const MOST_CALLS_EACH: f64 = 3.0;
const ONE_CALL_EACH: f64 = 1.5;
/// Connections in a window per request in progress, from which on they are not a pool.
const LEAST_PER_REQUEST: f64 = 2.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let address = &evidence.accounts().iter().rev().find_map(|level| level.asked().next())?.address;
    if address.starts_with("udp:") || address.starts_with("unix:") {
        return None;
    }
    let window_calls = |level: &AccountLevel, backend: &BackendLevel| {
        backend.calls_per_sec * level.seconds / level.points.max(1) as f64
    };
    let levels: Vec<(&AccountLevel, &BackendLevel, f64)> = evidence
        .accounts()
        .iter()
        .filter_map(|level| level.backend(address).map(|backend| (level, backend, window_calls(level, backend))))
        .filter(|(.., calls)| *calls >= LEAST_CALLS)
        .collect();
    let is_new = |(level, backend, calls): &(&AccountLevel, &BackendLevel, f64)| {
        *calls <= ONE_CALL_EACH * backend.connections
            && backend.connections >= LEAST_PER_REQUEST * level.in_flight().max(1.0)
    };
    // A pool keeps the connections that the highest load needed.
    let pool = evidence.run.points.iter().map(|point| point.connections as f64).fold(0.0, f64::max);
    let are_mostly_new = |(_, backend, calls): &(&AccountLevel, &BackendLevel, f64)| {
        *calls <= MOST_CALLS_EACH * backend.connections && backend.connections >= LEAST_PER_REQUEST * pool
    };
    let (.., highest) = levels.split_last_chunk::<2>()?;
    if !levels.iter().all(is_new) && !highest.iter().all(are_mostly_new) {
        return None;
    }
    let (level, backend, calls) = &highest[1];
    let is_each = *calls <= ONE_CALL_EACH * backend.connections;
    let (which, opens) = if is_each { ("Each call", "opens") } else { ("Most calls", "open") };
    let is_full = evidence.are_cpus_full(&evidence.strained()) == Some(true);
    finding(
        format!(
            "{which} to {address} {opens} a connection: at {} a window had {} calls on {} ({:.1} each). Opening one \
             takes a round trip, CPU time at both ends, and a local port until a minute after its end.",
            load_words(level.load, evidence.sweep()?.sweep),
            grouped(*calls),
            count(backend.connections.round() as u64, "connection"),
            calls / backend.connections,
        ),
        "To try: keep connections and use them again (nginx: `keepalive` in the upstream and `proxy_http_version 1.1`; \
         in a program one client or pool for all requests, whose answers are read to their end; Go: \
         `MaxIdleConnsPerHost`, which is 2)."
            .into(),
        &[],
    )?
    .proven_if(is_full)
}
