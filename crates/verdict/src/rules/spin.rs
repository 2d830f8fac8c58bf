//! User time grows with the number of runnable threads: they poll a lock instead of sleeping.

use super::*;
use crate::hot_function;
use crate::user_time::user_growth;

pub(super) const RULE: Rule = Rule {
    id: "spin",
    cause: "threads spin for a lock",
    evidence: "user part of CPU per request by load, `server.run_queue_wait_us_per_request`, `server.threads`, \
               `server.processes`; sampled CPU time in the system call sched_yield and in functions named spin lock",
    threshold: "as `memory-bound`, with twice the user time, and a wait for a CPU as long as the CPU time: always a \
                possibility; or 30 % of the CPU time in sched_yield or such a function, twice the share at the lowest \
                load",
    refuted_by: "`perf top` shows the time in functions that do work",
    remedy: "`perf top -p PID` names the function; a lock that sleeps",
    source: "Gunther (2007): coherency and contention",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client", "scalable-select", "slows-with-time", "leak"],
    judge,
};

const SPIN_RATIO: f64 = 2.0;
const SPIN_WAITED: f64 = 1.0;

/// Least share of CPU time in waiting for the lock. It must be twice that at the lowest load, because some servers poll
/// for work as well.
const SPINNING: f64 = 0.3;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    yields(evidence).or_else(|| in_spin_lock(evidence)).or_else(|| polls(evidence))
}

fn yields(evidence: &Evidence<'_>) -> Option<Finding> {
    let command = format!("perf trace -e sched_yield --call-graph fp -p {}", server_pid(evidence.run));
    let share = |points: &[&Point]| hot_function::in_call(points, "sched_yield");
    let before = "the system call sched_yield";
    spins(evidence, before, share, "call it again and again, and take the CPU", command)
}

/// By the name of the function: `pthread_spin_lock`, `ngx_spinlock`, `absl::base_internal::SpinLock::SlowLock`.
fn in_spin_lock(evidence: &Evidence<'_>) -> Option<Finding> {
    let own = hot_function::own(evidence).map(|own| own.function)?;
    let name: String = own.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    if !name.contains("spinlock") {
        return None;
    }
    let command = format!("perf record -g -p {}", server_pid(evidence.run));
    spins(evidence, &plain(&own, 60), |points| hot_function::in_own(points, &own), "take the CPU", command)
}

fn spins(
    evidence: &Evidence<'_>,
    place: &str,
    share: impl Fn(&[&Point]) -> f64,
    how: &str,
    command: String,
) -> Option<Finding> {
    let (high, low) = (share(&evidence.strained()), share(&evidence.lowest()));
    if high < SPINNING || high < 2.0 * low {
        return None;
    }
    let (high, low) = (percent(high.min(1.0)), percent(low.min(1.0)));
    finding(
        format!(
            "{high} of the server's CPU time was in {place} ({low} at the lowest load): threads that wait for a lock \
             {how} from the thread that holds it."
        ),
        format!(
            "To try: a lock that sleeps (pthread_mutex, a futex) in place of the spin lock; `{command}` shows who \
             calls it."
        ),
        &[command],
    )
}

fn polls(evidence: &Evidence<'_>) -> Option<Finding> {
    let grown = user_growth(evidence)?;
    let waited = typical(&grown.high, names::SERVER_RUN_QUEUE)?;
    let cpu = typical(&grown.high, names::SERVER_CPU)?;
    let threads = typical(&grown.high, names::SERVER_THREADS)?;
    if threads < 2.0 || grown.high_us < SPIN_RATIO * grown.low_us || waited < SPIN_WAITED * cpu {
        return None;
    }
    let pid = server_pid(evidence.run);
    let command = format!("perf top -p {pid}");
    finding(
        format!(
            "{}, while its {threads:.0} threads waited {} us for a CPU per request: they use the CPU without making \
             progress.{}",
            grown.sentence(),
            format_si(waited),
            hot_function::sentence(evidence),
        ),
        format!(
            "To decide: `{command}` (or `--profile always`) names the function that they spin in; a sleeping lock \
             (pthread_mutex) leaves the CPU to its holder."
        ),
        &[command],
    )?
    .proven_if(false)
}
