//! The server stopped answering for good: a deadlock, or an event that never comes.

use super::*;
use record::machine::HUNG_IN_WARM_UP;

pub(super) const RULE: Rule = Rule {
    id: "hangs",
    cause: "the server stopped answering for good",
    evidence: "answers at each point, in the order of time; `server.cpus_used`; the account: waits that did \
               not end",
    threshold: "it answered before, but not at any of the last two or more points (after its warm-up: one), and used \
                less than 5 % of a CPU there",
    refuted_by: "the server answers again under a lower load or after a while",
    remedy: "`gdb -p PID -batch -ex 'thread apply all bt'` while it hangs",
    source: "threads that wait for each other's locks never go on: Coffman and others, \"System Deadlocks\" (1971)",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client-ports", "descriptors"],
    judge,
};

const LEAST_POINTS: usize = 2;
/// CPUs.
const IDLE: f64 = 0.05;
/// Waits with fewer threads are not listed.
const LEAST_THREADS: f64 = 0.5;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let run = evidence.run;
    let asked = |point: &&Point| point.sweep != Sweep::Yardstick && point.outcomes.requests() > 0;
    let mut points: Vec<&Point> = run.points.iter().filter(asked).collect();
    points.sort_by_key(|point| point.index);
    let answered = points.iter().rposition(|point| point.outcomes.completed() > 0);
    let (before, silent) = points.split_at(answered.map_or(0, |last| last + 1));
    let came_back = before.iter().any(|point| point.outcomes.completed() == 0);
    let lowest = silent.iter().min_by(|a, b| a.load().total_cmp(&b.load()))?;
    let is_idle = |point: &&Point| point.value(names::SERVER_CPUS_USED).is_some_and(|used| used < IDLE);
    let hung_first = run.record.server_facts.get(HUNG_IN_WARM_UP);
    let least = if hung_first.is_some() { 1 } else { LEAST_POINTS };
    if came_back || silent.len() < least || !silent.iter().all(is_idle) {
        return None;
    }
    let since = match (answered, hung_first) {
        (Some(_), _) => load_words(silent[0].load(), silent[0].sweep),
        (None, Some(_)) => "its warm-up".into(),
        (None, None) => return None,
    };
    let answers: u64 = before.iter().map(|point| point.outcomes.completed()).sum();
    let served = if answers > 0 { format!("{} requests", grouped(answers as f64)) } else { "at first".into() };
    let level = silent.iter().rev().find_map(|point| crate::account::level(point.load(), &[point]));
    let waits = level.map_or(String::new(), |level| {
        let mut waits: Vec<_> = level.waits().filter(|(_, wait)| wait.threads >= LEAST_THREADS).collect();
        waits.sort_by(|a, b| b.1.threads.total_cmp(&a.1.threads));
        let words = waits.iter().take(4).map(|(_, wait)| format!("{:.1} in {}", wait.threads, wait.place));
        format!(" Its threads waited: {}.", words.collect::<Vec<_>>().join(", "))
    });
    let command = format!("gdb -p {} -batch -ex 'thread apply all bt'", server_pid(run));
    finding(
        format!(
            "The server answered {served}, and nothing since {since}: no request at {} later, down to {}, while it \
             used no CPU time.{waits}",
            count(silent.len(), "point"),
            load_words(lowest.load(), lowest.sweep),
        ),
        format!(
            "To try: start it, repeat that load, and look while it hangs: `{command}` shows where its threads are. \
             Threads that hold a lock and wait for another's are a deadlock."
        ),
        &[command],
    )
}
