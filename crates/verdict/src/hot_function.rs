//! The function that fills the server's CPU, if points were profiled.

use super::evidence::{Evidence, at_least, cpu_share};
use analyze::programs::names_by;
use analyze::zones::percent;
use record::layers::Layer;
use record::point::FunctionCost;
use record::profile::{COMPILED, SYSTEM_CALLS};
use record::text::plain;
use record::units::grouped;
use record::{Point, names};
use statistics::mean;
use std::collections::BTreeMap;

/// Least share of the server's CPU time for a function to be named; three standard errors below the estimate must reach
/// it, too.
const LEAST_SHARE: f64 = 0.2;

/// A function's share of the server's CPU time, and the samples of all functions.
#[derive(Clone, Copy)]
pub(super) struct FunctionShare<'a> {
    pub(super) function: &'a str,
    pub(super) share: f64,
    pub(super) samples: f64,
}

/// The functions' shares over points: CPU time in the function over that of the server's processes.
pub(super) fn shares<'a>(points: &[&'a Point]) -> Vec<FunctionShare<'a>> {
    shares_of(points, |point| &point.functions)
}

fn shares_of<'a>(points: &[&'a Point], listed: fn(&Point) -> &[FunctionCost]) -> Vec<FunctionShare<'a>> {
    let (mut us, mut all_us, mut samples): (BTreeMap<&str, f64>, _, _) = (BTreeMap::new(), 0.0, 0.0);
    for point in points.iter().filter(|point| !point.functions.is_empty()) {
        let completed = point.outcomes.completed() as f64;
        let Some(cpu_us) = point.value(names::SERVER_CPU).filter(|us| *us > 0.0) else { continue };
        all_us += cpu_us * completed;
        samples += point.functions.iter().map(|cost| cost.samples as f64).sum::<f64>();
        for cost in listed(point) {
            *us.entry(&cost.function).or_default() += cost.us_per_request * completed;
        }
    }
    us.into_iter().map(|(function, us)| FunctionShare { function, share: us / all_us, samples }).collect()
}

/// The function that takes most of the CPU time with its callees, near the innermost: one of the server's files, or a
/// system call.
fn dividing<'a>(points: &[&'a Point]) -> Option<FunctionShare<'a>> {
    let is_most = |one: &FunctionShare<'_>| {
        one.share >= 0.5 && one.samples > 0.0 && at_least(one.share.min(1.0), one.samples, 3.0) >= 0.4
    };
    // Long stacks are cut, so that an outer function may have a smaller share.
    let rank = |name: &str| {
        let ranks = points.iter().filter_map(|point| point.with_callees.iter().position(|one| one.function == name));
        mean(ranks.map(|rank| rank as f64)).unwrap_or(f64::INFINITY)
    };
    let all = shares_of(points, |point| &point.with_callees);
    let mut most: Vec<(f64, FunctionShare<'_>)> =
        all.into_iter().filter(is_most).map(|one| (rank(one.function), one)).collect();
    most.sort_by(|a, b| a.0.total_cmp(&b.0));
    let outermost_like_innermost = |is_call: bool| {
        let shares = most.iter().map(|(_, one)| *one);
        let mut of_kind = shares.filter(|one| system_call(one.function).is_some() == is_call);
        let innermost = of_kind.next()?;
        // Functions that do little but call it are its wrappers, and the outermost has the name that says most.
        let wrappers = of_kind.take_while(|one| (0.95..=1.1).contains(&(one.share / innermost.share)));
        Some(wrappers.last().unwrap_or(innermost))
    };
    outermost_like_innermost(false).or_else(|| outermost_like_innermost(true))
}

/// The share of the server's CPU time in this system call.
pub(super) fn in_call(points: &[&Point], call: &str) -> f64 {
    let calls = shares_of(points, |point| &point.with_callees);
    let of_call = calls.iter().filter(|one| system_call(one.function) == Some(call));
    of_call.map(|one| one.share).fold(0.0, f64::max)
}

/// The share of the server's CPU time in this function, without its callees.
pub(super) fn in_own(points: &[&Point], function: &str) -> f64 {
    shares(points).iter().filter(|one| one.function == function).map(|one| one.share).fold(0.0, f64::max)
}

/// A C++ name without the types of its arguments.
fn without_arguments(function: &str) -> &str {
    let mut depth = 0;
    let opens = |(_, c): &(usize, char)| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    };
    let begin = function.ends_with(')').then(|| function.char_indices().rev().find(opens)).flatten();
    begin.map_or(function, |(at, _)| function.get(..at).filter(|name| !name.is_empty()).unwrap_or(function))
}

fn system_call(function: &str) -> Option<&str> {
    SYSTEM_CALLS.iter().find_map(|start| function.strip_prefix(start))
}

/// The function of [`sentence`], if it belongs to the server's program or libraries. Kernel functions are excluded:
/// interrupts that run in them do no work for the request.
pub(super) struct OwnFunction {
    pub(super) function: String,
    /// Whether `--axis slow-down` can delay it: it is a symbol of the server's program.
    pub(super) can_be_slowed: bool,
}

pub(super) fn own(evidence: &Evidence<'_>) -> Option<OwnFunction> {
    let points = evidence.strained();
    let function = hottest(&points)?.function;
    let costs = || points.iter().flat_map(|point| &point.functions).filter(|cost| cost.function == function);
    if !costs().any(|cost| matches!(cost.layer, Some(Layer::User) | None)) {
        return None;
    }
    let program = analyze::programs::executable(&evidence.run.record);
    let is_symbol = function.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let can_be_slowed = is_symbol && costs().any(|cost| cost.module.as_deref() == Some(program));
    Some(OwnFunction { function: function.to_string(), can_be_slowed })
}

fn hottest<'a>(points: &[&'a Point]) -> Option<FunctionShare<'a>> {
    let is_clear = |one: &FunctionShare<'_>| {
        one.share <= 1.1 && one.samples > 0.0 && at_least(one.share.min(1.0), one.samples, 3.0) >= LEAST_SHARE
    };
    shares(points).into_iter().filter(is_clear).max_by(|a, b| a.share.total_cmp(&b.share))
}

/// A sentence on the function with most CPU time under strain, compared with the lowest load, and on the one that takes
/// most with its callees. Empty if no function reaches the least share, or without a profile.
pub(super) fn sentence(evidence: &Evidence<'_>) -> String {
    let points = evidence.strained();
    let Some(most) = hottest(&points) else { return of_callees(evidence) };
    let before = shares(&evidence.lowest());
    let at_lowest = before.iter().find(|one| one.function == most.function).map(|one| one.share);
    let with_callees = dividing(&points).filter(|one| one.function != most.function);
    format!(
        " Of its CPU time {} was in {}, without its callees (n = {} samples{}){}.{}",
        percent(most.share.min(1.0)),
        plain(most.function, 60),
        grouped(most.samples),
        at_lowest.map(|share| format!(", {} at the lowest load", percent(share))).unwrap_or_default(),
        with_callees.map(|one| format!("; {}, with its callees", one.words())).unwrap_or_default(),
        if most.function == COMPILED { names_by(&evidence.run.record) } else { "" }
    )
}

/// A sentence on the function or system call that takes most of the CPU time with its callees, or on the part of the
/// kernel.
pub(super) fn of_callees(evidence: &Evidence<'_>) -> String {
    let points = evidence.strained();
    match dividing(&points) {
        Some(one) => {
            let samples = grouped(one.samples);
            format!(" Of its CPU time {}, with its callees (n = {samples} samples).", one.words())
        }
        None => of_layer(&points),
    }
}

impl FunctionShare<'_> {
    /// The share in words: `62 % was in the system call sched_yield`.
    fn words(&self) -> String {
        let name = match system_call(self.function) {
            Some(call) => format!("the system call {}", plain(call, 60)),
            None => plain(without_arguments(self.function), 100),
        };
        format!("{} was in {name}", percent(self.share.min(1.0)))
    }
}

/// The system calls that take most of the CPU time, with their callees: `(rename 27 %, openat 25 %)`. Empty if none
/// takes a tenth.
fn calls(points: &[&Point]) -> String {
    const NAMED: usize = 3;
    const LEAST: f64 = 0.1;
    let shares = shares_of(points, |point| &point.with_callees);
    let mut calls: Vec<(&str, f64)> =
        shares.iter().filter_map(|one| Some((system_call(one.function)?, one.share))).collect();
    calls.retain(|(_, share)| *share >= LEAST);
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = calls.iter().take(NAMED).map(|(call, share)| format!("{} {}", plain(call, 60), percent(*share)));
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { words } else { format!(" ({words})") }
}

/// A sentence on the part of the kernel that takes most of the CPU time, in no single function; empty if there is none.
fn of_layer(points: &[&Point]) -> String {
    /// Least share; three standard errors below the estimate must reach half of the time.
    const MOST: f64 = 0.6;
    for (words, name) in
        [("in system calls, before any protocol", names::LAYER_SYSTEM_CALL), ("in TCP", names::LAYER_TCP)]
    {
        let is_most = |(share, samples): &(f64, f64)| *share >= MOST && at_least(*share, *samples, 3.0) >= 0.5;
        if let Some((share, samples)) = cpu_share(points, name).filter(is_most) {
            return format!(
                " Of its CPU time {} was {words}{}, mostly in no single function (n = {} samples).",
                percent(share),
                calls(points),
                grouped(samples)
            );
        }
    }
    String::new()
}
