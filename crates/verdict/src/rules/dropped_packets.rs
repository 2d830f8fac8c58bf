use super::*;

pub(super) const RULE: Rule = Rule {
    id: "dropped-packets",
    cause: "the kernel drops packets before the server sees them",
    evidence: "`net.backlog_drops_per_sec` (a CPU's queue of received packets was full), `tcp.listen_drops_per_sec` \
               less `tcp.listen_overflows_per_sec` (SYNs dropped while the accept queue had room)",
    threshold: "at least 1 per second in most points of a load and of the loads above it",
    refuted_by: "`/proc/net/softnet_stat` and `nstat -z TcpExtListenDrops` count none under this load",
    remedy: "`sysctl -w net.core.netdev_max_backlog=16384`, receive processing on more CPUs; `sysctl -w \
             net.ipv4.tcp_max_syn_backlog=16384`",
    source: "Linux, Documentation/admin-guide/sysctl/net.rst",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "interrupts"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let from = |of: &dyn Fn(&Point) -> Option<f64>| {
        let (at, points) = evidence.first_level(|point| of(point).is_some_and(|rate| rate >= LOST_PER_SEC))?;
        Some((at, median(points.iter().filter_map(|point| of(point)))?))
    };
    let beside = |point: &Point| {
        Some(point.value(names::TCP_LISTEN_DROPS)? - point.value(names::TCP_LISTEN_OVERFLOWS).unwrap_or(0.0))
    };
    if let Some((at, rate)) = from(&beside) {
        let command = "sysctl -w net.ipv4.tcp_max_syn_backlog=16384".to_string();
        return finding(
            format!(
                "The listener drops SYNs from {at} on ({}/s), though its accept queue has room: its table of half-open \
                 connections is full, or memory is short. {SENT_AGAIN}",
                format_si(rate)
            ),
            format!("To try: `{command}` with a larger backlog, `net.ipv4.tcp_syncookies=1`; `nstat -z` counts why."),
            &[command],
        );
    }
    let (at, rate) = from(&|point| point.value(names::NET_BACKLOG_DROPS))?;
    let command = "sysctl -w net.core.netdev_max_backlog=16384".to_string();
    finding(
        format!(
            "A CPU's queue of received packets is full from {at} on: the machine dropped {}/s packets. {SENT_AGAIN}",
            format_si(rate)
        ),
        format!("To try: `{command}`, and receive processing on more CPUs (`rps_cpus`, `ethtool -L`)."),
        &[command],
    )
}
