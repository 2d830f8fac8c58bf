use super::*;

pub(super) const RULE: Rule = Rule {
    id: "neighbour",
    cause: "other work takes the server's CPUs",
    evidence: "the account: time in which threads of the server were runnable while other work ran on their CPU",
    threshold: "threads without idle time that waited like this for at least 40 % of the time, and longer than they \
                ran or were blocked",
    refuted_by: "throughput stays the same with the server alone on the machine",
    remedy: "stop the other work; dedicated CPUs for the server; `cpu.weight` of its control group",
    source: "the kernel's documentation of cgroup v2, `cpu.weight`",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "cpu-quota", "hangs"],
    judge: |evidence| evidence.limit_by("neighbour"),
};

pub fn full(reading: &AccountRange<'_>, group: &GroupLevel, work: f64) -> Option<FoundLimit> {
    let because = format!(
        "Other work takes the server's CPUs: at {} {} had no idle time; for {} of it they were ready to run while \
         something else had the CPU, and for {} they ran.",
        reading.at_high(),
        group.label(),
        percent(group.ready_others / work),
        percent(group.running / work),
    );
    let command = format!("cat /proc/{}/cgroup", reading.pid);
    let remedy = format!(
        "To try: stop that work (the doubts name the busiest), dedicated CPUs for the server, or more weight for its \
         control group (`{command}` names it; `cpu.weight`, `CPUWeight=` of systemd)."
    );
    FoundLimit::new(RULE.id, because, remedy, &[command])
}
