//! The function that fills the server's CPU, if points were profiled.

use super::evidence::{Evidence, at_least, cpu_share};
use crate::zones::percent;
use record::layers::Layer;
use record::text::plain;
use record::units::grouped;
use record::{Point, names};
use std::collections::BTreeMap;

/// Least share of the server's CPU time for a function to be named; three standard errors below the estimate must reach
/// it, too.
const LEAST_SHARE: f64 = 0.2;

/// A function's share of the server's CPU time, and the samples of all functions.
pub(super) struct FunctionShare<'a> {
    pub(super) function: &'a str,
    pub(super) share: f64,
    pub(super) samples: f64,
}

/// The functions' shares over points: CPU time in the function over that of the server's processes.
pub(super) fn shares<'a>(points: &[&'a Point]) -> Vec<FunctionShare<'a>> {
    let (mut us, mut all_us, mut samples): (BTreeMap<&str, f64>, _, _) = (BTreeMap::new(), 0.0, 0.0);
    for point in points.iter().filter(|point| !point.functions.is_empty()) {
        let completed = point.outcomes.completed() as f64;
        let Some(cpu_us) = point.value(names::SERVER_CPU).filter(|us| *us > 0.0) else { continue };
        all_us += cpu_us * completed;
        for cost in &point.functions {
            *us.entry(&cost.function).or_default() += cost.us_per_request * completed;
            samples += cost.samples as f64;
        }
    }
    us.into_iter().map(|(function, us)| FunctionShare { function, share: us / all_us, samples }).collect()
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
    let program = crate::programs::executable(&evidence.run.record);
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

/// A sentence on the function with most CPU time under strain, compared with the lowest load. Empty if no function
/// reaches the least share, or without a profile.
pub(super) fn sentence(evidence: &Evidence<'_>) -> String {
    let before = shares(&evidence.lowest());
    let at_lowest = |function: &str| before.iter().find(|one| one.function == function).map(|one| one.share);
    hottest(&evidence.strained()).map_or_else(
        || of_layer(&evidence.strained()),
        |most| {
            let low = at_lowest(most.function).map(|share| format!(", {} at the lowest load", percent(share)));
            format!(
                " Of its CPU time {} was in {}, without its callees (n = {} samples{}).",
                percent(most.share.min(1.0)),
                plain(most.function, 60),
                grouped(most.samples),
                low.unwrap_or_default()
            )
        },
    )
}

/// A sentence on the part of the kernel that takes most of the CPU time, in no single function; empty if there is none.
pub(super) fn of_layer(points: &[&Point]) -> String {
    /// Least share; three standard errors below the estimate must reach half of the time.
    const MOST: f64 = 0.6;
    for (words, name) in
        [("in system calls, before any protocol", names::LAYER_SYSTEM_CALL), ("in TCP", names::LAYER_TCP)]
    {
        let is_most = |(share, samples): &(f64, f64)| *share >= MOST && at_least(*share, *samples, 3.0) >= 0.5;
        if let Some((share, samples)) = cpu_share(points, name).filter(is_most) {
            return format!(
                " Of its CPU time {} was {words}, mostly in no single function (n = {} samples).",
                percent(share),
                grouped(samples)
            );
        }
    }
    String::new()
}
