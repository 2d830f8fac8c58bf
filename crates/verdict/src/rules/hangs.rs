//! The server stopped answering for good: a deadlock, or an event that never comes.

use super::*;
use record::machine::HUNG_IN_WARM_UP;

pub(super) const RULE: Rule = Rule {
    id: "hangs",
    cause: "the server stopped answering for good",
    evidence: "answers at each point, in the order of time; `server.cpus_used`; the account: waits that did \
               not end",
    threshold: "it answered before, but not at any of the last points, and used less than 5 % of a CPU there; a \
                possibility at one point, unless nothing was answered since its warm-up",
    refuted_by: "the server answers again under a lower load or after a while",
    remedy: "while it hangs, `gdb -p PID -batch -ex 'thread apply all bt'`, `kill -QUIT PID` for a Go server, or \
             `jcmd PID Thread.print` for a Java server",
    source: "threads that wait for each other's locks never go on: Coffman and others, \"System Deadlocks\" (1971)",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client-ports", "descriptors"],
    judge,
};

const LEAST_POINTS_FOR_PROOF: usize = 2;
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
    let is_proven = hung_first.is_some() || silent.len() >= LEAST_POINTS_FOR_PROOF;
    if came_back || !silent.iter().all(is_idle) {
        return None;
    }
    let since = match (answered, hung_first) {
        (Some(_), _) => load_words(silent[0].load(), silent[0].sweep),
        (None, Some(_)) => "its warm-up".into(),
        (None, None) => return None,
    };
    let answers: u64 = before.iter().map(|point| point.outcomes.completed()).sum();
    let served = if answers > 0 { format!("{} requests", grouped(answers as f64)) } else { "at first".into() };
    let level = silent.iter().rev().find_map(|point| analyze::account::level(point.load(), &[point]));
    let is_parked = level.as_ref().is_some_and(|level| !level.parked.is_empty());
    let waits = level.map_or(String::new(), |level| {
        let parked = level.parked.iter().map(|one| (one.count, one.name()));
        let threads = level.waits().map(|(_, wait)| (wait.threads, wait.place.clone()));
        let mut waits: Vec<(f64, String)> = if is_parked { parked.collect() } else { threads.collect() };
        waits.retain(|(count, _)| *count >= LEAST_THREADS);
        waits.sort_by(|a, b| b.0.total_cmp(&a.0));
        let words = waits.iter().take(4).map(|(count, place)| format!("{count:.1} in {place}"));
        let who = if is_parked { "Inside it waited" } else { "Its threads waited" };
        format!(" {who}: {}.", words.collect::<Vec<_>>().join(", "))
    });
    let pid = server_pid(run);
    let (command, shows) = match analyze::programs::executable(&run.record) {
        "java" => (format!("jcmd {pid} Thread.print"), "shows where its threads are"),
        _ if is_parked => (format!("kill -QUIT {pid}"), "prints where its goroutines are, and ends it"),
        _ => (format!("gdb -p {pid} -batch -ex 'thread apply all bt'"), "shows where its threads are"),
    };
    finding(
        format!(
            "The server answered {served}, and nothing since {since}: no request at {} later, down to {}, while it \
             used no CPU time.{waits}",
            count(silent.len(), "point"),
            load_words(lowest.load(), lowest.sweep),
        ),
        format!(
            "To try: start it, repeat that load, and look while it hangs: `{command}` {shows}. Those that hold a lock \
             and wait for another's are a deadlock."
        ),
        &[command],
    )?
    .proven_if(is_proven)
}
