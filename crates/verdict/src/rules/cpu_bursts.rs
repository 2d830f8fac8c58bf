//! A CPU time limit that stops the server although its average use is far below the limit.

use super::*;

pub(super) const RULE: Rule = Rule {
    id: "cpu-bursts",
    cause: "bursts of work reach the server's CPU time limit",
    evidence: "`server.cpu_throttled_ratio` and `server.cpu_quota_used_ratio` at loads that used little of the limit",
    threshold: "at a load that used at most 70 % of the limit, the group was stopped in at least 20 % of its periods \
                (lower end of the interval, 10 periods or more)",
    refuted_by: "`nr_throttled` in the group's `cpu.stat` does not grow under this load",
    remedy: "`cpu.max.burst`, a longer period in `cpu.max`, fewer threads at once",
    source: "the kernel's documentation of cgroup v2, `cpu.max.burst`; Chang and others, burstable CFS (Linux 5.14)",
    is_limit: false,
    is_counted: true,
    hidden_by: &["cpu-quota"],
    judge,
};

/// Average use of the limit up to which only bursts can have reached it.
const MOST_USED: f64 = 0.7;
const STOPPED: f64 = 0.2;
const LEAST_PERIODS: f64 = 10.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    // Fields: share of periods, its lower end, number of periods, load, points at that load.
    let stopped = |sweep: Sweep, load: f64| {
        let mut points = evidence.quiet_at(sweep, load);
        points.retain(|point| point.value(names::SERVER_QUOTA_USED).is_some_and(|used| used <= MOST_USED));
        let (share, periods) = pooled(&points, names::SERVER_THROTTLED)?;
        // The rule picks one of many loads, so it needs three standard errors.
        let least = at_least(share, periods, 3.0);
        (periods >= LEAST_PERIODS && least >= STOPPED).then(|| (share, least, periods, load_words(load, sweep), points))
    };
    let loads = evidence.findings.sweeps().flat_map(|of| of.levels.iter().map(|level| (of.sweep, level.load)));
    let found = loads.filter_map(|(sweep, load)| stopped(sweep, load));
    let (share, _, periods, at, points) = found.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (used, limit) = (typical(&points, names::SERVER_QUOTA_USED)?, typical(&points, names::SERVER_QUOTA)?);
    let command = format!("cat /proc/{}/cgroup", server_pid(evidence.run));
    finding(
        format!(
            "Bursts of work reach the server's CPU time limit: at {at} its control group used {} of its {limit:.2} \
             CPUs, and was still stopped in {} of its periods (n = {}). A burst uses up the period's share early, and \
             every request waits for the next period.",
            percent(used),
            percent(share),
            grouped(periods)
        ),
        format!(
            "To try: `cpu.max.burst` (lets a burst use time left over from earlier periods), a longer period (the \
             second number of `cpu.max`), or fewer threads at once; `{command}` names the group with these files."
        ),
        &[command],
    )
}
