//! The changes between two profiles.

use record::profile::{Folded, NOT_SAMPLED};
use record::text::plain;
use record::{Doubt, RunDir, names};
use std::collections::BTreeMap;

/// The change of a function's share of the samples, without its callees.
#[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct FunctionChange {
    /// Name of the function, with the kernel's mark.
    pub function: String,
    /// Share of the samples before.
    pub before_ratio: f64,
    /// Share of the samples after.
    pub after_ratio: f64,
    /// Half width of the 95 % interval of the difference, from the numbers of samples.
    pub plus_minus_ratio: f64,
}

impl FunctionChange {
    /// Whether the difference exceeds the scatter of the samples.
    pub fn is_clear(&self) -> bool {
        (self.after_ratio - self.before_ratio).abs() > self.plus_minus_ratio
    }
}

/// Growth and shrinkage by innermost function: clear changes first, the largest ones before the others. Shares are of
/// each file's own samples.
pub fn changes(before: &Folded, after: &Folded) -> Vec<FunctionChange> {
    let leaves = |folded: &Folded| {
        let total = folded.total().max(1) as f64;
        let mut shares: BTreeMap<String, f64> = BTreeMap::new();
        for (frames, count) in &folded.0 {
            if let Some(leaf) = frames.last() {
                *shares.entry(leaf.clone()).or_default() += *count as f64 / total;
            }
        }
        shares
    };
    let totals = [before.total().max(1) as f64, after.total().max(1) as f64];
    // Agresti and Caffo (2000): adds two samples, so that a function without samples on one side is not certain
    // either.
    let variance = |share: f64, total: f64| {
        let share = (share * total + 1.0) / (total + 2.0);
        share * (1.0 - share) / (total + 2.0)
    };
    let (before, after) = (leaves(before), leaves(after));
    let mut changes: Vec<FunctionChange> = before
        .keys()
        .chain(after.keys().filter(|function| !before.contains_key(*function)))
        .map(|function| {
            let before_ratio = before.get(function).copied().unwrap_or(0.0);
            let after_ratio = after.get(function).copied().unwrap_or(0.0);
            let error = (variance(before_ratio, totals[0]) + variance(after_ratio, totals[1])).sqrt();
            FunctionChange { function: function.clone(), before_ratio, after_ratio, plus_minus_ratio: 1.96 * error }
        })
        .collect();
    changes.sort_by(|a, b| {
        let size = |change: &FunctionChange| (change.after_ratio - change.before_ratio).abs();
        b.is_clear()
            .cmp(&a.is_clear())
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.function.cmp(&b.function))
    });
    changes
}

/// The run's reason why no point has samples of the layers, if it has one.
pub fn why_not_sampled(run: &RunDir) -> Option<String> {
    let of_doubt = |doubt: &Doubt| doubt.what.strip_prefix(NOT_SAMPLED)?.strip_prefix(": ").map(str::to_string);
    let figures = [names::LAYER_TCP, names::PACKET_TCP];
    let of_points = || {
        let seen = run.points.iter().flat_map(|point| figures.iter().filter_map(|name| point.figures.get(name)));
        seen.filter_map(|figure| figure.not_measured.clone()).next()
    };
    let why = run.record.doubts.iter().find_map(of_doubt).or_else(of_points)?;
    Some(plain(&why, 300))
}

/// The reason why no point of a run has stacks.
pub fn why_no_stacks(run: &RunDir) -> String {
    let is_measured = |name| run.points.iter().any(|point| point.value(name).is_some());
    if run.points.is_empty() {
        "the run has no points".into()
    } else if is_measured(names::LAYER_TCP) || is_measured(names::PACKET_TCP) {
        "its points have layers but no stacks, because stacks were not kept then; measure it again".into()
    } else {
        why_not_sampled(run).unwrap_or_else(|| {
            "its points were not sampled; use find (without --profile never) or profile --axis".into()
        })
    }
}
