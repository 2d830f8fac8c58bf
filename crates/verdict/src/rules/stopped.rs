use super::*;
use record::account::STOPPED;

pub(super) const RULE: Rule = Rule {
    id: "stopped",
    cause: "a signal or a debugger stops the server's threads",
    evidence: "the account: time in which threads were stopped",
    threshold: "the threads of one name are stopped for 10 % of their time under strain, at least 5 times in all",
    refuted_by: "`grep State /proc/PID/task/*/status` never shows T or t under load",
    remedy: "end what stops it: cpulimit, strace, a debugger",
    source: "signal(7), SIGSTOP; ptrace(2)",
    is_limit: true,
    is_counted: true,
    hidden_by: &[],
    judge,
};

const LEAST_SHARE: f64 = 0.1;
const LEAST_TIMES: f64 = 5.0;
/// Stops per request from which something stops each system call.
const AT_EACH_CALL: f64 = 2.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let from = evidence.strained_from().unwrap_or(0.0);
    let levels: Vec<&AccountLevel> = evidence.accounts().iter().filter(|level| level.load >= from).collect();
    let stops = || levels.iter().flat_map(|level| level.waits()).filter(|(_, wait)| wait.place == STOPPED);
    let (group, _) = stops().max_by(|a, b| a.1.threads.total_cmp(&b.1.threads))?;
    let of_group = |of: &dyn Fn(&GroupLevel) -> f64| -> f64 {
        let of_level = |level: &&AccountLevel| {
            let found = level.groups.iter().find(|one| one.name == group.name);
            found.map_or(0.0, |one| of(one) * level.seconds)
        };
        levels.iter().map(of_level).sum()
    };
    let of_stops = |of: &dyn Fn(&WaitLevel) -> f64| {
        of_group(&|one| one.waits.iter().filter(|wait| wait.place == STOPPED).map(of).sum())
    };
    let share = of_stops(&|wait| wait.threads) / of_group(&|one| one.threads);
    let times = of_stops(&|wait| wait.times_per_sec);
    if times < LEAST_TIMES || share < LEAST_SHARE {
        return None;
    }
    let longest_ms = stops().map(|(_, wait)| wait.longest_ms).fold(0.0, f64::max);
    let requests: f64 = levels.iter().map(|level| level.per_sec() * level.seconds).sum();
    let who = if times >= AT_EACH_CALL * requests {
        "It is stopped several times in each request, as by strace"
    } else {
        "A program sends SIGSTOP (cpulimit, a job's control), or a debugger is attached"
    };
    let command = format!("grep TracerPid /proc/{}/task/*/status", server_pid(evidence.run));
    finding(
        format!(
            "The threads of {} were stopped for {} of the time at {} and more (n = {} stops, the longest {}), and did \
             nothing then. {who}.",
            group.name,
            percent(share.min(1.0)),
            load_words(levels.first()?.load, evidence.sweep()?.sweep),
            grouped(times.round()),
            format_nanos(longest_ms * 1e6),
        ),
        format!(
            "To try: end what stops it, and measure again; `{command}` shows the process that traces it, if it is a \
             debugger. To limit its CPU time, use a control group (`systemd-run -p CPUQuota=`)."
        ),
        &[command],
    )
}
