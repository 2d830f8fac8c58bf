//! The table of tracked connections, which the kernel keeps for firewalls and address translation.

use super::*;

pub(super) const RULE: Rule = Rule {
    id: "conntrack",
    cause: "the table of tracked connections is full",
    evidence: "`net.conntrack_drops_per_sec`, `net.conntrack_drops_before_window` and `net.conntrack_used_ratio` in \
               the server's network namespace; connections without an answer",
    threshold: "at least 1 dropped packet per second in most points of a load and of the loads above it, or 1 while \
                connections were opened of which some got no answer; a possibility if less than 90 % of the table was \
                in use",
    refuted_by: "`/proc/net/stat/nf_conntrack` counts no `drop` under this load",
    remedy: "`sysctl -w net.netfilter.nf_conntrack_max=1048576`; disable tracking for the server's port",
    source: "Linux, Documentation/networking/nf_conntrack-sysctl.rst",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client"],
    judge,
};

const NEARLY_FULL: f64 = 0.9;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let value = |point: &Point, name| point.value(name).unwrap_or(0.0);
    let (at, points) = evidence.first_level(|point| {
        let is_unanswered = point.outcomes.connect_timed_out + point.outcomes.connections_silent > 0;
        value(point, names::NET_CONNTRACK_DROPS) >= LOST_PER_SEC
            || value(point, names::NET_CONNTRACK_DROPS_BEFORE) >= 1.0 && is_unanswered
    })?;
    let rate = typical(&points, names::NET_CONNTRACK_DROPS)?;
    let seen = if rate >= LOST_PER_SEC {
        format!("{}/s packets dropped", format_si(rate))
    } else {
        let before = typical(&points, names::NET_CONNTRACK_DROPS_BEFORE)?;
        format!("{} dropped while connections were opened", count(before as u64, "packet"))
    };
    let used = typical(&points, names::NET_CONNTRACK_USED);
    let has_room = used.is_some_and(|used| used < NEARLY_FULL);
    let command = "sysctl -w net.netfilter.nf_conntrack_max=1048576".to_string();
    finding(
        format!(
            "The table of tracked connections {} from {at} on: {seen}{}. {SENT_AGAIN}",
            if has_room { "refuses packets" } else { "is full" },
            used.map_or(String::new(), |used| format!(", {} of its entries in use", percent(used)))
        ),
        format!(
            "To try: `{command}`, shorter timeouts of closed connections (`nf_conntrack_tcp_timeout_time_wait`), or no \
             tracking for the server's port (nftables `notrack`)."
        ),
        &[command],
    )?
    .proven_if(!has_room)
}
