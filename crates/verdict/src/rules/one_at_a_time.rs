//! A process whose threads run one at a time: an interpreter's lock, or a lock that is held during all work. The
//! process uses one CPU at every load, no thread is full, and other CPUs are idle.

use super::*;
use analyze::point::allowed_cpus;
use analyze::programs::{executable, runs_one_thread_at_a_time};
use analyze::zones::polling;
use std::ops::RangeInclusive;

pub(super) const RULE: Rule = Rule {
    id: "one-at-a-time",
    cause: "only one thread of the process runs at a time (an interpreter's lock)",
    evidence: "`server.busiest_process_cpus`, `server.busiest_thread_cpus`, idle CPUs, the program's name; the \
               account, if kept",
    threshold: "0.9 to 1.05 CPUs in 80 % of the points under strain, whose highest load is at least 1.5 times the \
                lowest; no thread used more than 80 % of that; at least 1.5 CPUs available and not filled by the run's \
                own work; by the account, the process's threads waited for another thread (a lock, a condition) for at \
                least a quarter of their time. A possibility unless the program is Python or Ruby, or they waited for \
                at least half of it, a quarter more than at low loads",
    refuted_by: "throughput stays the same with twice as many processes",
    remedy: "more processes instead of more threads (gunicorn `--workers`, Puma `--workers`)",
    source: "Beazley, \"Understanding the Python GIL\" (PyCon 2010); Amdahl's law: work that only one thread may do at \
             a time is the limit",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "cpu-quota"],
    judge,
};

/// Least share of the threads' time spent waiting for another thread that proves the cause.
const LOCK_RATIO: f64 = 0.5;
/// Least such share that makes the cause possible, and its least growth with load that proves it.
const LOCK_GROWTH: f64 = 0.25;
/// CPUs of a process whose threads run one at a time: slightly less because the lock changes hands, slightly more
/// because the kernel works for a second one.
const ONE_CPU: std::ops::RangeInclusive<f64> = 0.9..=1.05;
const ONE_CPU_POINTS: f64 = 0.8;
const ONE_CPU_LOADS: f64 = 1.5;
const ONE_CPU_THREAD: f64 = 0.8;
const ONE_CPU_OF: f64 = 1.5;

/// Measurements that show a process held to one CPU.
pub struct HeldToOneCpu {
    /// CPUs that the busiest process used at the loads under strain.
    process_cpus: RangeInclusive<f64>,
    loads: RangeInclusive<f64>,
    sweep: Sweep,
    /// The busiest thread, in CPUs.
    thread_cpus: f64,
    /// Share of the threads' time in which they waited for another thread, the number of these waits, and the share at
    /// low loads.
    waited: Option<(f64, u64, Option<f64>)>,
    /// The server's own share of its CPUs.
    own_share: f64,
    /// Whether no other limit holds the process to one CPU.
    pub is_proven: bool,
}

impl HeldToOneCpu {
    pub fn clause(&self) -> String {
        let [least, most] = [self.process_cpus.start(), self.process_cpus.end()].map(|cpus| format!("{cpus:.2}"));
        let [low, high] = [self.loads.start(), self.loads.end()].map(|load| load_words(*load, self.sweep));
        format!(
            "used {} CPUs at every load from {low} to {high}, its busiest thread {:.2}, while all of the server's work \
             took {} of its CPUs",
            if least == most { least } else { format!("{least} to {most}") },
            self.thread_cpus,
            percent(self.own_share)
        )
    }
}

/// Share of the threads' time in which they waited for another thread, and the number of these waits. Interpreters hand
/// over their lock with a condition variable.
fn waited(points: &[&Point]) -> Option<(f64, u64)> {
    let accounts = || points.iter().filter_map(|point| point.account.as_ref());
    let of_each = || accounts().map(|account| account.blocked(&[WaitKind::Lock, WaitKind::Work]));
    let shares = of_each().filter_map(|(share, _)| share);
    Some((median(shares)?, of_each().map(|(_, times)| times).sum()))
}

/// Evidence of a process limited to one CPU; `None` without one.
pub fn held(evidence: &Evidence<'_>) -> Option<HeldToOneCpu> {
    let (points, sweep) = (evidence.strained(), evidence.sweep()?.sweep);
    let is_held = |point: &&&Point| {
        point.value(names::SERVER_BUSIEST_PROCESS).is_some_and(|cpus| ONE_CPU.contains(&cpus)) && !polling::polls(point)
    };
    let held: Vec<&Point> = points.iter().filter(is_held).copied().collect();
    let (low, high) = range(held.iter().map(|point| point.load()))?;
    let process = typical(&held, names::SERVER_BUSIEST_PROCESS)?;
    let thread_cpus = typical(&held, names::SERVER_BUSIEST_THREAD)?;
    let own_share = evidence.own_typical(&held)?;
    let has_cpus = |point: &&Point| {
        let quota = point.value(names::SERVER_QUOTA).unwrap_or(f64::INFINITY);
        allowed_cpus(evidence.run, point).min(quota)
    };
    let cpus = median(held.iter().map(has_cpus))?;
    let waited = waited(&held);
    let before = self::waited(&evidence.relaxed()).map(|(share, _)| share);
    if (held.len() as f64) < ONE_CPU_POINTS * points.len() as f64
        || high < ONE_CPU_LOADS * low
        || thread_cpus > ONE_CPU_THREAD * process
        || cpus < ONE_CPU_OF
        || evidence.are_cpus_full(&held) != Some(false)
        // Threads that run one at a time wait for each other.
        || waited.is_some_and(|(share, _)| share < LOCK_GROWTH)
    {
        return None;
    }
    let grows =
        waited.zip(before).is_some_and(|((share, _), before)| share >= LOCK_RATIO && share - before >= LOCK_GROWTH);
    let (least, most) = range(held.iter().filter_map(|point| point.value(names::SERVER_BUSIEST_PROCESS)))?;
    Some(HeldToOneCpu {
        process_cpus: least..=most,
        loads: low..=high,
        sweep,
        thread_cpus,
        waited: waited.map(|(share, times)| (share, times, before)),
        own_share,
        is_proven: grows || runs_one_thread_at_a_time(&evidence.run.record),
    })
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let held = held(evidence)?;
    let waited = held.waited.map(|(share, times, before)| {
        let before = before.map(|before| format!(", {} at low loads", percent(before))).unwrap_or_default();
        let times = grouped(times as f64);
        format!("; its threads waited for another one for {} of their time (n = {times}){before}", percent(share))
    });
    let found = finding(
        format!(
            "The server runs one thread at a time: its busiest process {}{}. The reason is an interpreter's lock \
             (CPython's GIL, Ruby's GVL), or a lock that each thread holds while it works.",
            held.clause(),
            waited.unwrap_or_default()
        ),
        "To try: more processes instead of more threads (gunicorn `--workers 2`, Puma `--workers 2`, uWSGI \
         `--processes 2`), or less work under that lock; if twice as many processes bring no more throughput, it is \
         something else. The page has the stacks of its threads (`take_gil` is CPython's lock)."
            .into(),
        &[],
    )?;
    // At its entry the thread still has the lock, which it gives up before a system call.
    let gives_up = executable(&evidence.run.record).starts_with("py").then(|| "PyEval_SaveThread".into());
    let dearer = gives_up.map(|function| Dearer { place: SlowPlace::Function, function: Some(function), at_once: 1.0 });
    Finding { dearer, ..found }.proven_if(held.is_proven)
}
