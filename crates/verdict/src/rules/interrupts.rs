use super::super::NEARLY_FULL;
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "interrupts",
    cause: "one CPU takes all receive processing",
    evidence: "`server.softirq_cpu_busy_ratio`, `server.softirq_cpu_softirq_ratio`, \
               `server.softirq_concentration_ratio`, `server.idlest_cpu_busy_ratio`",
    threshold: "a CPU at least 85 % busy, at least 25 % of its time softirq, with at least 70 % of all softirq \
                time, and another CPU of the server less than 70 % busy; at least 20 ticks of softirq",
    refuted_by: "throughput stays the same with receive processing on more CPUs",
    remedy: "`echo MASK > /sys/class/net/DEVICE/queues/rx-0/rps_cpus`, `ethtool -L DEVICE combined N`",
    source: "Linux, Documentation/networking/scaling.rst (RSS, RPS)",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

const SOFTIRQ_RATIO: f64 = 0.25;
const SOFTIRQ_CONCENTRATION: f64 = 0.7;
/// Busy share below which a CPU could take over receive work.
const IDLE_CPU_BUSY: f64 = 0.7;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    let value = |name| typical(&points, name);
    let (busy, softirq) = (value(names::SERVER_SOFTIRQ_CPU_BUSY)?, value(names::SERVER_SOFTIRQ_CPU)?);
    let (share, ticks) = pooled(&points, names::SERVER_SOFTIRQ_CONCENTRATION)?;
    let idlest = value(names::SERVER_IDLEST_CPU_BUSY)?;
    // The server sometimes waits, and a short point has few ticks.
    if ticks < LEAST_TICKS as f64
        || busy < NEARLY_FULL
        || softirq < SOFTIRQ_RATIO
        || share < SOFTIRQ_CONCENTRATION
        || idlest >= IDLE_CPU_BUSY
    {
        return None;
    }
    let record = &evidence.run.record;
    let cpus: Vec<usize> = match record.scenario.server() {
        Some(server) if !server.cpus.is_empty() => server.cpus.clone(),
        _ => (0..typical(&points, names::SERVER_CPUS).map_or(record.machine.cpus, |cpus| cpus as usize)).collect(),
    };
    let mask = cpus.iter().filter(|cpu| **cpu < 64).fold(0u64, |mask, cpu| mask | 1 << cpu);
    let command = format!("echo {mask:x} > /sys/class/net/DEVICE/queues/rx-0/rps_cpus");
    finding(
        format!(
            "One CPU takes the receive processing: {} of all softirq time, which is {} of that CPU's time; it was {} \
             busy while another CPU of the server was {} busy.",
            percent(share),
            percent(softirq),
            percent(busy),
            percent(idlest)
        ),
        format!(
            "To try: `{command}` for each receive queue, or more queues with `ethtool -L DEVICE combined {}`.",
            cpus.len()
        ),
        &[command],
    )?
    .dearer(SlowPlace::Receive, 1.0)
}
