use super::*;

pub(super) const RULE: Rule = Rule {
    id: "client",
    cause: "the client was the bottleneck",
    evidence: "`client.cpu_utilisation_ratio` and the client's doubts, compared with the server's busiest thread \
               and CPUs",
    threshold: "the client is saturated (criterion `saturation_ratio`), the server is not, and no yield point was \
                found at a lower load; levels with errors do not count",
    refuted_by: "with a second client machine the server answers no more requests",
    remedy: "`--client 'ssh HOST straingauge load --worker'`, `--cpus`, `--threads`",
    source: "Banga and Druschel (1997): a client must be able to overload the server",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client-ports"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
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
