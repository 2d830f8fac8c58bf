//! Packets that the kernel dropped before the server could see them.

use super::evidence::{Evidence, typical};
use super::judge::{Finding, finding};
use super::rules::{LOST_PER_SEC, Rule};
use record::names;
use record::units::format_si;

pub(super) const RULE: Rule = Rule {
    id: "dropped-packets",
    cause: "the kernel drops packets before the server sees them",
    evidence: "`net.backlog_drops_per_sec` (a CPU's queue of received packets was full), \
               `net.conntrack_drops_per_sec` (the table of tracked connections was full)",
    threshold: "1 a second or more in most points of a load and of the loads above it",
    refuted_by: "`/proc/net/softnet_stat` and `/proc/net/stat/nf_conntrack` count none under this load",
    remedy: "`sysctl -w net.core.netdev_max_backlog=16384`, receive processing on more CPUs; `sysctl -w \
             net.netfilter.nf_conntrack_max=1048576`, no tracking of the server's port",
    source: "Linux, Documentation/admin-guide/sysctl/net.rst and Documentation/networking/nf_conntrack-sysctl.rst",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "interrupts"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let of = |name: &str| {
        let (at, points) = evidence.first_level(|point| point.value(name).is_some_and(|rate| rate >= LOST_PER_SEC))?;
        Some((at, typical(&points, name)?))
    };
    let later = "What was lost is sent again after 200 ms, a lost SYN after a second.";
    if let Some((at, rate)) = of(names::NET_CONNTRACK_DROPS) {
        let command = "sysctl -w net.netfilter.nf_conntrack_max=1048576".to_string();
        return finding(
            format!(
                "The table of tracked connections is full from {at} on: {}/s packets dropped. {later}",
                format_si(rate)
            ),
            format!("To try: `{command}`, or no tracking of the server's port (`notrack` of nftables)."),
            &[command],
        );
    }
    let (at, rate) = of(names::NET_BACKLOG_DROPS)?;
    let command = "sysctl -w net.core.netdev_max_backlog=16384".to_string();
    finding(
        format!(
            "A CPU's queue of received packets is full from {at} on: the machine dropped {}/s packets. {later}",
            format_si(rate)
        ),
        format!("To try: `{command}`, and receive processing on more CPUs (`rps_cpus`, `ethtool -L`)."),
        &[command],
    )
}
