use super::*;

pub(super) const RULE: Rule = Rule {
    id: "client-ports",
    cause: "the client had no local port left",
    evidence: "requests that ended because no local port or descriptor was left (`local_limit`)",
    threshold: "more than the criterion `error_ratio` of the requests in most points of a load",
    refuted_by: "the client can send the same requests over keep-alive, or from more addresses",
    remedy: "`sysctl -w net.ipv4.ip_local_port_range='1024 65535' net.ipv4.tcp_tw_reuse=1` on the client, \
             `--source-address`, keep-alive",
    source: "Almeida, Almeida and Yates (1996), section 5.5: ports wait in TIME_WAIT for a minute",
    is_limit: true,
    is_counted: true,
    hidden_by: &[],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.criteria().error_ratio;
    let share = |point: &Point| point.outcomes.local_limit as f64 / point.outcomes.requests().max(1) as f64;
    let (at, points) = evidence.first_level(|point| share(point) > limit)?;
    let most = points.iter().map(|point| share(point)).fold(0.0, f64::max);
    let range = evidence.run.record.machine.sysctls.get("net.ipv4.ip_local_port_range");
    let range = range.map(|range| format!(" (ports {})", plain(&range.replace(' ', " to "), 40))).unwrap_or_default();
    let command = "sysctl -w net.ipv4.ip_local_port_range='1024 65535' net.ipv4.tcp_tw_reuse=1".to_string();
    finding(
        format!(
            "The client had no local port or descriptor left{range}: {} of the requests at {at} could not be sent. A \
             port whose connection the client closed first waits for a minute in TIME_WAIT.",
            percent(most)
        ),
        format!("To try on the client's machine: `{command}`, more addresses with `--source-address`, or keep-alive."),
        &[command],
    )
}
