use super::*;

pub(super) const RULE: Rule = Rule {
    id: "cpu-quota",
    cause: "the server's CPU time limit",
    evidence: "`server.cpu_throttled_ratio` and `server.cpu_quota_used_ratio`, from the control group's `cpu.stat`",
    threshold: "beyond the yield point the group was stopped in at least 20 % of its periods (lower end of the \
                interval, 5 periods or more) and used at least 80 % of the limit",
    refuted_by: "`nr_throttled` in the group's `cpu.stat` does not grow under this load",
    remedy: "a higher limit: `docker update --cpus`, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd; less \
             CPU time per request",
    source: "Turner, Rao and Rao, \"CPU bandwidth control for CFS\" (Linux Symposium 2010); the kernel's \
             documentation of cgroup v2, `cpu.max`",
    is_limit: true,
    is_counted: true,
    hidden_by: &[],
    judge,
};

const LEAST_PERIODS: f64 = 5.0;
const THROTTLED_RATIO: f64 = 0.2;
const QUOTA_USED_RATIO: f64 = 0.8;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let (share, periods) = pooled(&points, names::SERVER_THROTTLED)?;
    let used = typical(&points, names::SERVER_QUOTA_USED)?;
    let limit = typical(&points, names::SERVER_QUOTA)?;
    if periods < LEAST_PERIODS || at_least(share, periods, 2.0) < THROTTLED_RATIO || used < QUOTA_USED_RATIO {
        return None;
    }
    let before =
        pooled(&lowest, names::SERVER_THROTTLED).map(|(share, _)| format!(", {} at the lowest load", percent(share)));
    let command = format!("cat /proc/{}/cgroup", server_pid(evidence.run));
    finding(
        format!(
            "The server has used up its CPU time limit: its control group may use {limit:.2} CPUs, used {} of that \
             beyond the yield point, and was stopped in {} of its periods (n = {}{}).",
            percent(used),
            percent(share),
            grouped(periods),
            before.unwrap_or_default()
        ),
        format!(
            "To try: a higher limit (`docker update --cpus`, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd), or \
             less CPU time per request; `{command}` names the group, and `cpu.max` in its folder (`cpu.cfs_quota_us` \
             in version 1) has the limit."
        ),
        &[command],
    )?
    .dearer(SlowPlace::Request, limit)
}
