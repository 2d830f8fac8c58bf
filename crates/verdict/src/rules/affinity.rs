use super::*;

pub(super) const RULE: Rule = Rule {
    id: "affinity",
    cause: "the server may run on only some of the machine's CPUs",
    evidence: "`server.cpus`, the machine's CPUs, `server.cpus_busy_ratio`, `machine.cpu_idle_ratio`",
    threshold: "fewer CPUs than the machine has, not chosen by straingauge and full of the server's own work, \
                while at least a quarter of a CPU is idle elsewhere",
    refuted_by: "`taskset -pc PID` names all CPUs",
    remedy: "`taskset -apc 0-N PID`; `worker_cpu_affinity`, `cpuset.cpus`, `CPUAffinity=` or `--cpuset-cpus`",
    source: "sched_setaffinity(2), cpuset(7)",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "cpu-quota"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    const IDLE_CPUS: f64 = 0.25;
    const MOST_USED: f64 = 0.85;
    let record = &evidence.run.record;
    let machine = record.machine.cpus as f64;
    let given = record.scenario.server().map_or(&[][..], |server| &server.cpus);
    // The CPUs not given to the server are the client's.
    let (had, list) = match given {
        [] => (machine, format!("0-{}", machine - 1.0)),
        given => (given.len() as f64, record::machine::cpu_list(given)),
    };
    let points = evidence.strained();
    let allowed = record.server_facts.get("allowed_cpus").map(|list| record::machine::cpus_of_list(list));
    let kept = allowed.map(|cpus| cpus.iter().filter(|cpu| given.contains(cpu)).count() as f64);
    let (cpus, is_full) = match kept.filter(|kept| *kept > 0.0 && !given.is_empty()) {
        // The CPUs given to the server are measured together.
        Some(kept) => (kept, typical(&points, names::SERVER_CPUS_USED)? >= MOST_USED * kept),
        None => (typical(&points, names::SERVER_CPUS)?, evidence.are_cpus_full(&points) == Some(true)),
    };
    let idle = typical(&points, names::MACHINE_IDLE)? * machine - (machine - had);
    if cpus >= had || idle < IDLE_CPUS || !is_full {
        return None;
    }
    let command = format!("taskset -apc {list} {}", server_pid(evidence.run));
    finding(
        format!(
            "The server may run on only {} of {} CPUs{}, and fills {}, while {idle:.2} CPUs are idle.",
            grouped(cpus),
            grouped(had),
            if given.is_empty() { " of the machine" } else { " that it was given" },
            if cpus == 1.0 { "it" } else { "them" }
        ),
        format!(
            "To try: `{command}` gives it all CPUs; its configuration (`worker_cpu_affinity`, `cpuset.cpus`, \
             `CPUAffinity=`, `--cpuset-cpus`) makes the change permanent."
        ),
        std::slice::from_ref(&command),
    )
}
