//! The resource that saturated first: a thread of the server, its CPUs, the client, or none that was watched.

use super::command::{again, quoted, server_pid};
use super::concurrency::{Concurrency, at_a_time};
use super::evidence::{CpuShares, Evidence, typical};
use super::rules::one_at_a_time;
use super::{Cause, Certainty, hot_function, stage};
use crate::answer::breaks_while_idle;
use analyze::zones::{Level, PointPlace, SweepFindings, load_words, percent};
use record::text::plain;
use record::{Sweep, names};

fn explains_waiting(causes: &[Cause]) -> bool {
    causes.iter().any(|cause| cause.certainty == Certainty::Cause && cause.is_limit)
}

/// One or two sentences on the cause of the closed loop's yield point; `None` if there is none.
pub(super) fn saturated_first(evidence: &Evidence<'_>, closed: &SweepFindings, causes: &[Cause]) -> Option<String> {
    let found = &closed.yield_point;
    if let (None, Some(level)) = (found.estimate, closed.levels.iter().find(|level| level.client_limited)) {
        return Some(format!(
            "From {} on the client had no CPU left while the server still had, so the server's yield point is not \
             known.",
            load_words(level.load, Sweep::Connections)
        ));
    }
    let beyond = match found.estimate {
        Some(_) => closed.beyond_yield(),
        // Doubling the lowest load gained little: the resource that limits was full at the next load.
        None if found.place == PointPlace::Below => closed.levels.get(1).or(closed.levels.first()),
        None => None,
    };
    if let Some(level) = beyond
        && causes.iter().any(|cause| cause.certainty == Certainty::Cause && cause.rule == "server-errors")
        && let Some(said) = errors_came_first(evidence, closed, level)
    {
        return Some(said);
    }
    beyond.map(|level| saturated_at(evidence, level, evidence.is_unquiet(closed), causes))
}

pub(super) struct Saturated {
    /// The share of the CPU time in the function, or in a part of the kernel.
    pub because: String,
    /// Command that slows the function down to show its effect; absent if the function is not in the server's program.
    pub experiment: Option<String>,
}

/// The function or the part of the kernel that fills a CPU of the server, if there is no other cause.
pub(super) fn saturated(evidence: &Evidence<'_>, causes: &[Cause], is_clear: bool) -> Option<Saturated> {
    let is_explained = is_clear && causes.is_empty() && !breaks_while_idle(evidence.findings);
    let closed = evidence.findings.connections.as_ref().filter(|_| is_explained)?;
    let level = closed.beyond_yield().filter(|level| level.full(evidence.criteria().saturation_ratio).is_some())?;
    let Some(hot_function::OwnFunction { function, can_be_slowed }) = hot_function::own(evidence) else {
        let because = hot_function::of_callees(evidence).trim_start().to_string();
        return (!because.is_empty()).then_some(Saturated { because, experiment: None });
    };
    let experiment = can_be_slowed.then(|| {
        let words = format!(
            "--axis slow-down --places {} --connections {:.0}",
            quoted(&format!("function={function}")),
            level.load
        );
        format!("To see what a cheaper {function} would give: `{}`.", again(evidence.run, "find", &words))
    });
    Some(Saturated { because: hot_function::sentence(evidence).trim_start().to_string(), experiment })
}

/// Says that the waits of an idle server's threads were not traced, and why.
pub(super) fn unseen(evidence: &Evidence<'_>, causes: &[Cause]) -> Option<String> {
    let points = evidence.strained();
    let is_idle = evidence.is_saturated(&points) == Some(false);
    if !is_idle || stage::is_kept(evidence) || explains_waiting(causes) {
        return None;
    }
    let why = points.iter().find_map(|point| point.figures.get(names::SERVER_LOCK_WAITS)?.not_measured.as_deref());
    Some(format!(
        "What its threads waited for was not seen, so a lock, a file, a pool of workers or a backend that is full is \
         not named: {}. `straingauge doctor` shows what this machine permits.",
        plain(why.unwrap_or("the run has no account of them"), 200)
    ))
}

/// Used share from which on a stage is the limit, or close to it.
pub const NEARLY_FULL: f64 = 0.85;

/// The largest used share: of the server's CPUs together, of its busiest thread's CPU, or of its CPU time limit;
/// `None` if its CPUs were not measured.
pub(super) fn busiest(level: &Level) -> Option<f64> {
    let others = [level.busiest_thread_cpus, level.cpu_quota_used_ratio].into_iter().flatten();
    let most = others.map(|spread| spread.median).fold(0.0, f64::max);
    level.cpus_busy_ratio.map(|spread| spread.median.max(most))
}

/// A server that answers mostly errors has a limit of its own; a full resource there does not explain it.
fn errors_came_first(evidence: &Evidence<'_>, closed: &SweepFindings, beyond: &Level) -> Option<String> {
    let held = closed.failure_point.held.filter(|held| beyond.load > *held)?;
    let last = closed.levels.iter().rfind(|level| level.load <= held)?;
    let busiest = busiest(last)?;
    (busiest < evidence.criteria().saturation_ratio).then(|| {
        format!(
            "Errors came before any CPU of the server was saturated: at {}, the last load without them, {} busy.",
            load_words(last.load, Sweep::Connections),
            percent(busiest)
        )
    })
}

fn saturated_at(evidence: &Evidence<'_>, level: &Level, is_unquiet: bool, causes: &[Cause]) -> String {
    let at = load_words(level.load, Sweep::Connections);
    let cpus = level.cpus_busy_ratio.map(|spread| spread.median);
    let thread = level.busiest_thread_cpus.map(|spread| spread.median);
    let is_saturated = |share: &f64| *share >= evidence.criteria().saturation_ratio;
    if let Some(thread) = thread.filter(is_saturated) {
        let rest = match cpus {
            Some(cpus) if !is_saturated(&cpus) => {
                format!(", while its CPUs together were {} busy: one thread is the limit", percent(cpus))
            }
            _ => String::new(),
        };
        return format!(
            "The server's busiest thread saturated first: it used {} of a CPU at {at}{rest}.{}",
            percent(thread),
            hot_function::sentence(evidence)
        );
    }
    let points = evidence.quiet_at(Sweep::Connections, level.load);
    if let Some(used) = level.cpu_quota_used_ratio.map(|spread| spread.median).filter(is_saturated)
        && let Some(limit) = typical(&points, names::SERVER_QUOTA)
    {
        let used = percent(used.min(1.0));
        return format!(
            "The server's CPU time limit saturated first: it used {used} of its {limit:.2} CPUs at {at}{}.",
            share_words(level)
        );
    }
    if let Some(cpus) = cpus.filter(is_saturated)
        && let Some(own) = evidence.crowded_out(Sweep::Connections, level.load)
    {
        return format!(
            "The server's CPUs were {} busy at {at}, but its own work took only {} of them: other work filled the \
             rest. Repeat it when that has stopped, or give the server dedicated CPUs (`--server-cpus`).{}",
            percent(cpus),
            percent(own),
            hot_function::sentence(evidence)
        );
    }
    if let Some(cpus) = cpus.filter(is_saturated) {
        let words = evidence.shares(&points).map_or_else(|| share_words(level), whose_words);
        let function = hot_function::sentence(evidence);
        return format!("The server's CPUs saturated first: {} busy at {at}{words}.{function}", percent(cpus));
    }
    if let Some(held) = one_at_a_time::held(evidence).filter(|held| held.is_proven) {
        return format!("The server's busiest process saturated first: it {}.", held.clause());
    }
    if causes.iter().any(|cause| cause.rule == "interrupts")
        && let Some(busy) = typical(&points, names::SERVER_SOFTIRQ_CPU_BUSY)
    {
        return format!(
            "The CPU that takes the receive processing saturated first: it was {} busy at {at}.",
            percent(busy)
        );
    }
    if points.iter().any(|point| analyze::zones::polling::polls(point)) {
        return format!(
            "What saturated at {at} is not known: the server polls, so its CPUs are as busy at the lowest load, and \
             CPU time for a request is mostly waiting."
        );
    }
    match cpus.into_iter().chain(thread).reduce(f64::max) {
        None => format!("What saturated at {at} is not known: the server's CPU was not measured."),
        Some(busiest) if busiest >= NEARLY_FULL => {
            let what = if thread == Some(busiest) { "busiest thread" } else { "CPUs" };
            format!(
                "Throughput stopped following load at {at} with the server's {what} {} busy: nearly full, and few \
                 connections leave gaps.",
                percent(busiest)
            )
        }
        Some(busiest) => {
            if let Some(client) = typical(&points, names::CLIENT_UTILISATION).filter(|used| *used >= NEARLY_FULL) {
                return format!(
                    "Throughput stopped following load at {at} with the client's CPUs {} busy and the server's {}: the \
                     client may be the limit. More clients (`--client`) or more CPUs for this one (`--cpus`, \
                     `--threads`) would show it.",
                    percent(client),
                    percent(busiest)
                );
            }
            let seen = format!(
                "Throughput stopped following load at {at} although no CPU of the server was saturated ({} busy)",
                percent(busiest)
            );
            // A server that slows with each request differs between the first and the last point of the sweep.
            if is_unquiet || causes.iter().any(|cause| cause.rule == "slows-with-time") {
                return format!("{seen}.");
            }
            if explains_waiting(causes) {
                return format!("{seen}: it waits for something else, named below.");
            }
            if causes.iter().any(|cause| cause.rule == "own-limit") {
                return format!(
                    "{seen}: it waits for something else, possibly the limit named below. The page and `--full` show \
                     what its threads were blocked in."
                );
            }
            let pid = server_pid(evidence.run);
            let words = |found: Concurrency| {
                format!(
                    "It serves {}: a limit of this number would do that (connections to a database, a semaphore), or \
                     one step of {} that each request takes alone. ",
                    found.phrase(),
                    found.each()
                )
            };
            let at_a_time = at_a_time(evidence).map_or(String::new(), words);
            let next = if stage::is_kept(evidence) {
                "The page and `--full` show what its threads were blocked in.".to_string()
            } else {
                format!(
                    "To find out, run under this load: `grep -H . /proc/{pid}/task/*/wchan` shows where its threads \
                     sleep, and `strace -f -c -p {pid}` in which calls (a backend, a disk, a lock, a limit in its \
                     configuration)."
                )
            };
            format!("{seen}: it waits for something else, and the measurements do not show for what. {at_a_time}{next}")
        }
    }
}

/// Names the other work that filled the server's CPUs; empty if the server filled most of them.
fn whose_words(CpuShares { own, backend }: CpuShares) -> String {
    let backend = if backend >= 0.01 { format!(", {} its backend's", percent(backend)) } else { String::new() };
    format!(" ({} was its own work{backend}, the rest the client's and interrupts)", percent(own))
}

/// User, system and softirq parts of a request's CPU time, if measured.
fn share_words(level: &Level) -> String {
    let parts = [
        ("user", level.cpu_user_us_per_request),
        ("system", level.cpu_system_us_per_request),
        ("softirq", level.softirq_us_per_request),
    ];
    let words: Vec<String> =
        parts.iter().filter_map(|(name, spread)| Some(format!("{:.1} us {name}", (*spread)?.median))).collect();
    if words.len() < 2 { String::new() } else { format!(" (a request took {})", words.join(", ")) }
}
