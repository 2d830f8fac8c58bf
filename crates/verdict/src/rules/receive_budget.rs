use super::*;

pub(super) const RULE: Rule = Rule {
    id: "receive-budget",
    cause: "receive processing ends with packets left",
    evidence: "`net.squeezes_per_sec` (`/proc/net/softnet_stat`, time_squeeze) of the whole machine",
    threshold: "at least 100 per second under strain, and ten times as many as at the lowest load; always a \
                possibility",
    refuted_by: "throughput and response times stay the same with a larger budget",
    remedy: "`sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=16000`, receive processing on more \
             CPUs",
    source: "Linux, Documentation/admin-guide/sysctl/net.rst, netdev_budget",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client", "interrupts", "dropped-packets"],
    judge,
};

const LEAST_PER_SEC: f64 = 100.0;
const LEAST_GROWTH: f64 = 10.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let (rate, before) = (typical(&points, names::NET_SQUEEZES)?, typical(&lowest, names::NET_SQUEEZES)?);
    if rate < LEAST_PER_SEC || rate < LEAST_GROWTH * before {
        return None;
    }
    let command = "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=16000".to_string();
    finding(
        format!(
            "Receive processing ended with packets left {}/s beyond the yield point ({}/s at the lowest load), summed \
             over the machine's CPUs. The packets wait until other work has run.",
            format_si(rate),
            format_si(before)
        ),
        format!(
            "To decide: `{command}`; if throughput and response times stay the same, it is something else. Receive \
             processing on more CPUs (`rps_cpus`, `ethtool -L`) helps as well."
        ),
        &[command],
    )?
    .proven_if(false)
}
