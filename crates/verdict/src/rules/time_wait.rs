use super::*;

pub(super) const RULE: Rule = Rule {
    id: "time-wait",
    cause: "the server's TIME_WAIT sockets reached their limit",
    evidence: "`tcp.time_wait_overflows_per_sec`, `time-wait` connections",
    threshold: "at least 1 per second in most points of a load and of the loads above it",
    refuted_by: "`ss -tan state time-wait` shows far fewer sockets than net.ipv4.tcp_max_tw_buckets",
    remedy: "let clients close first (keep-alive), `sysctl -w net.ipv4.tcp_max_tw_buckets=262144`",
    source: "Almeida, Almeida and Yates (1996), section 5.5",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client-ports"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let overflows = |point: &Point| point.value(names::TIME_WAIT_OVERFLOWS).unwrap_or(0.0);
    let (at, points) = evidence.first_level(|point| overflows(point) >= LOST_PER_SEC)?;
    let rate = typical(&points, names::TIME_WAIT_OVERFLOWS)?;
    let held = points.iter().filter_map(|point| point.connection_states.get("time-wait")?.value).fold(0.0, f64::max);
    let command = "sysctl -w net.ipv4.tcp_max_tw_buckets=262144".to_string();
    finding(
        format!(
            "The server's TIME_WAIT sockets reached their limit at {at}: its port had {}, and {}/s more connections \
             ended without that state.",
            grouped(held),
            format_si(rate)
        ),
        format!("To try: `{command}`, and keep-alive, so that clients close first."),
        &[command],
    )
}
