use super::*;
use analyze::point::good_per_sec;
use analyze::predict::readings::in_flight;

pub(super) const RULE: Rule = Rule {
    id: "client",
    cause: "the client was the bottleneck",
    evidence: "`client.cpu_utilisation_ratio` and the client's doubts, compared with the server's busiest thread \
               and CPUs; `client.connection_wait_p99_us` and the response time at the lowest load",
    threshold: "the client is saturated (criterion `saturation_ratio`), the server is not, and no yield point was \
                found at a lower load; levels with errors do not count. Or 70 % of the connections at the failing rate \
                are in use for the response time of the lowest load",
    refuted_by: "with a second client machine the server answers no more requests",
    remedy: "`--client 'ssh HOST straingauge load --worker'`, `--cpus`, `--threads`; more connections",
    source: "Banga and Druschel (1997): a client must be able to overload the server",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client-ports"],
    judge,
};

/// Least share of the open loop's connections that the response time of the lowest load fills at the answered rate, by
/// Little's law.
const FILLED: f64 = 0.7;
/// Least wait for a free connection at p99, so that it was a connection that a request lacked.
const WAITED_US: f64 = 10e3;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    cpus(evidence).or_else(|| connections(evidence))
}

fn connections(evidence: &Evidence<'_>) -> Option<Finding> {
    let open = evidence.findings.rate.as_ref()?;
    let failed = open.failure_point.failed?;
    let closed = evidence.findings.connections.as_ref();
    let levels = &closed.unwrap_or(open).levels;
    let fastest_us = levels.iter().filter_map(|level| Some(level.response_p50_us?.median)).reduce(f64::min)?;
    let points = evidence.quiet_at(Sweep::Rate, failed);
    let of_each = in_flight(&evidence.run.record);
    let most_per_sec = |point: &Point| point.connections as f64 * f64::from(of_each) / (fastest_us / 1e6);
    let is_filled = |point: &&Point| {
        let waited = point.value(names::CONNECTION_WAIT_P99).is_some_and(|us| us >= WAITED_US);
        waited && good_per_sec(point).is_some_and(|rate| rate >= FILLED * most_per_sec(point))
    };
    let widest = points.iter().max_by_key(|point| point.connections)?;
    if !points.iter().all(is_filled) || evidence.is_saturated(&points) == Some(true) {
        return None;
    }
    let count = grouped(widest.connections as f64);
    let more = 4 * widest.connections;
    // The open loop may have as many as the closed one.
    let option = if closed.is_some() { "--max-connections " } else { "--set find.open-connections=" };
    let command = again(evidence.run, "find", &format!("{option}{more}"));
    finding(
        format!(
            "The load had too few connections: at {} all {count} were in use, and each carries {} at a time. With {} \
             a request, as at the lowest load, they carry {}/s.",
            load_words(failed, Sweep::Rate),
            record::units::count(of_each as usize, "request"),
            format_nanos(fastest_us * 1e3),
            format_si(most_per_sec(widest)),
        ),
        format!("To try: more connections, `{command}`."),
        &[command],
    )
}

fn cpus(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep().filter(|sweep| sweep.yield_point.estimate.is_none())?;
    // Errors are cheap for the server, so the client is full of them.
    let is_refused = |load: f64| {
        let points = evidence.quiet_at(sweep.sweep, load);
        let bad: u64 = points.iter().map(|point| point.outcomes.non_2xx).sum();
        bad as f64 > evidence.criteria().error_ratio * answers(&points) as f64
    };
    let level = sweep.levels.iter().find(|level| level.client_limited && !is_refused(level.load))?;
    let whose = if level.crowded { ", much of it with other work" } else { "" };
    let server = level
        .cpus_busy_ratio
        .map_or(String::new(), |busy| format!("; the server's CPUs were {} busy{whose}", percent(busy.median)));
    let command = again(evidence.run, "find", "--client 'ssh HOST straingauge load --worker'");
    finding(
        format!("The client was the bottleneck from {} on{server}.", load_words(level.load, sweep.sweep)),
        format!("To try: more clients, `{command}`, or more CPUs for this one (`--cpus`, `--threads`)."),
        &[command],
    )?
    .dearer(SlowPlace::Request, ELSEWHERE)
}
