use super::*;
use record::protocol::is_connection_limit;
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    id: "server-errors",
    cause: "the server answers with errors above a load",
    evidence: "answers other than 2xx or 3xx (`non_2xx`) and their statuses (`error_statuses`) by load; lines that \
               the server printed",
    threshold: "more than the criterion `error_ratio` of the answers, and at least 5, in most points of a load and at \
                most of the loads above it",
    refuted_by: "the errors appear at every load: then the request is wrong",
    remedy: "by status: 429, raise the request limit; 502 and 504, check its backend; 503, raise its own limit; see \
             its error log; `straingauge load URL --connections N` at that load",
    source: "RFC 9110, section 15.6: the server knows that it failed; RFC 6585, section 4 (429)",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client-ports", "descriptors"],
    judge,
};

/// Meaning of an HTTP status for the limit, and the first place to look.
fn meaning(status: u16) -> Option<(&'static str, &'static str)> {
    Some(match status {
        429 => (
            "a request limit refuses them",
            "a higher limit (nginx `limit_req`, a gateway's quota), or fewer requests per client",
        ),
        502 => ("a backend was down, or closed the connection", "see whether the backend runs and listens (`ss -ltn`)"),
        503 => (
            "a limit on requests, connections or a queue refuses them, or no backend is up",
            "a higher limit (nginx `limit_req` and `limit_conn`, HAProxy `maxconn` and `timeout queue`); see whether a \
             backend is up",
        ),
        504 => ("a backend answered too late", "measure the backend alone (`straingauge find http://BACKEND/`)"),
        _ => return None,
    })
}

/// The same for the status of a gRPC call.
fn meaning_of_call(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "RESOURCE_EXHAUSTED" => (
            "a limit on calls, messages or memory refuses them",
            "a higher limit (gRPC for Python `maximum_concurrent_rpcs`, a gateway's quota)",
        ),
        "UNAVAILABLE" => meaning(503)?,
        "DEADLINE_EXCEEDED" => meaning(504)?,
        _ => return None,
    })
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.criteria().error_ratio;
    let share = |point: &Point| point.outcomes.non_2xx as f64 / point.outcomes.completed().max(1) as f64;
    let (at, points) = evidence.first_level(|point| share(point) > limit && point.outcomes.non_2xx >= LEAST_ERRORS)?;
    let bad: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.non_2xx));
    let lowest = evidence.lowest();
    let is_new = !lowest.is_empty() && lowest.iter().all(|point| point.outcomes.non_2xx == 0);
    let (which, advice) = statuses(evidence, &points);
    let of_log = evidence.log().and_then(|said| said.first()?.advice());
    let advice = of_log.map_or(advice, |advice| format!("{advice}; "));
    let last = points.last()?;
    let rate = last.offered_per_sec().map(|rate| format!(" --rate {rate:.0}")).unwrap_or_default();
    let command = again(evidence.run, "load", &format!("--connections {}{rate}", last.connections));
    let kept = if evidence.log().is_some() { " (the run's folder has its output as `server.log`)" } else { "" };
    finding(
        format!(
            "The server answers with errors from {at} on: {} of {} answers there were not 2xx or 3xx{which}{}.",
            grouped(bad as f64),
            grouped(answers(&points) as f64),
            if is_new { ", none at the lowest load" } else { "" },
        ),
        format!("To try: {advice}its error log{kept} says which limit it reached; `{command}` repeats only that load."),
        &[command],
    )
}

/// The most frequent error status with its meaning, and the first place to look.
fn statuses(evidence: &Evidence<'_>, points: &[&Point]) -> (String, String) {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for (status, count) in points.iter().flat_map(|point| &point.error_statuses) {
        let sum = counts.entry(*status).or_default();
        *sum = sum.saturating_add(*count);
    }
    let Some((&status, &most)) = counts.iter().max_by_key(|(_, count)| **count) else { return Default::default() };
    let all: u64 = counts.values().fold(0, |sum, count| sum.saturating_add(*count));
    let protocol = evidence.run.record.scenario.load().map(|load| &load.protocol);
    let is_http = protocol.is_none_or(|protocol| protocol.has_status_codes());
    let name = match protocol {
        Some(protocol) if !is_http => protocol.status_words(status).into_owned(),
        _ => format!("status {status}"),
    };
    let part = if most == all { String::new() } else { format!("{} of these ", percent(most as f64 / all as f64)) };
    if !is_http && is_connection_limit(&name) {
        let advice = "a higher limit of connections (Redis `maxclients`, memcached `-c`), or fewer; ";
        return (format!(" ({part}{name}: it has as many connections as it allows)"), advice.into());
    }
    let known = if is_http { meaning(status) } else { meaning_of_call(&name) };
    match known {
        Some((means, advice)) => (format!(" ({part}{name}: {means})"), format!("{advice}; ")),
        None => (format!(" ({part}{name})"), String::new()),
    }
}
