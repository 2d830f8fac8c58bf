//! Compares two loads, two runs or two servers within repeats, so that the machine's drift between repeats cancels. A
//! repeat that lacks one of the two gives no pair.
//!
//! If a repeat measured a load more than once, its points count by [`counted`]. A pair with a disturbed member has
//! less weight, which follows from the weights in [`crate::disturbance`]. Leaving it out would lose three of four
//! pairs if half of the points are disturbed.

use crate::disturbance::{DISTURBED_WEIGHT, counted, is_disturbed};
use record::{Estimate, Point};
use statistics::{estimate, median, weighted_mean, weighted_median};
use std::collections::BTreeMap;

/// Fixed, so that the same run always gives the same result.
const SEED: u64 = 0x4158;

/// Values of a figure at one load in one repeat.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    /// Start of its first point.
    pub at_ms: f64,
    /// Median of the points that count.
    pub value: f64,
    /// Weight: 1, or less if all of its points were disturbed.
    pub weight: f64,
    /// Points that did not count.
    pub left_out: u64,
}

/// A figure at two loads, or in two runs, in one repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepeatPair {
    /// Number of the repeat.
    pub repeat: u32,
    /// Value at the first load.
    pub before: f64,
    /// Value at the second load.
    pub after: f64,
    /// Weight: 1, or less if a member was disturbed.
    pub weight: f64,
}

/// The pairs of all repeats.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Pairs in order of repeat.
    pub pairs: Vec<RepeatPair>,
    /// Points of these repeats that did not count.
    pub left_out: u64,
}

/// The values at one load by repeat.
pub fn visits(points: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> BTreeMap<u32, Visit> {
    let mut by_repeat: BTreeMap<u32, Vec<&Point>> = BTreeMap::new();
    for point in points {
        by_repeat.entry(point.repeat).or_default().push(point);
    }
    let visit = |(repeat, same): (u32, Vec<&Point>)| {
        let known: Vec<&Point> =
            same.iter().copied().filter(|point| value(point).is_some_and(f64::is_finite)).collect();
        let counted = counted(&known);
        let values = counted.iter().filter_map(|point| value(point));
        let visit = Visit {
            at_ms: counted.first()?.started_unix_ms as f64,
            value: median(values)?,
            weight: if is_disturbed(counted.first()?) { DISTURBED_WEIGHT } else { 1.0 },
            left_out: (known.len() - counted.len()) as u64,
        };
        Some((repeat, visit))
    };
    by_repeat.into_iter().filter_map(visit).collect()
}

/// Pairs the visits of the same repeats.
pub fn paired(before: &BTreeMap<u32, Visit>, after: &BTreeMap<u32, Visit>) -> Pairs {
    let mut found = Pairs::default();
    for (repeat, before) in before {
        let Some(after) = after.get(repeat) else { continue };
        found.left_out += before.left_out + after.left_out;
        found.pairs.push(RepeatPair {
            repeat: *repeat,
            before: before.value,
            after: after.value,
            weight: 2.0 / (1.0 / before.weight + 1.0 / after.weight),
        });
    }
    found
}

/// The pairs of the values at two loads.
pub fn pairs(before: &[&Point], after: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> Pairs {
    paired(&visits(before, &value), &visits(after, &value))
}

impl Pairs {
    /// Weighted medians before and after, and the weighted median of the ratios with a bootstrap interval over the
    /// repeats.
    pub fn change(&self, confidence: f64) -> Option<(f64, f64, Estimate)> {
        let of = |value: fn(&RepeatPair) -> f64| {
            move |pairs: &[RepeatPair]| weighted_median(pairs, value, |pair| pair.weight)
        };
        let ratio = of(|pair| pair.after / pair.before);
        let known: Vec<RepeatPair> = self.pairs.iter().copied().filter(|pair| pair.before > 0.0).collect();
        let ratio = Estimate { left_out: self.left_out, ..estimate(&known, confidence, SEED, ratio)? };
        Some((of(|pair| pair.before)(&known)?, of(|pair| pair.after)(&known)?, ratio))
    }

    /// Weighted means before and after, and the weighted mean of the differences with its interval.
    pub fn difference(&self, confidence: f64) -> Option<(f64, f64, Estimate)> {
        let of =
            |value: fn(&RepeatPair) -> f64| move |pairs: &[RepeatPair]| weighted_mean(pairs, value, |pair| pair.weight);
        let pairs = self.pairs.as_slice();
        let found = estimate(pairs, confidence, SEED, of(|pair| pair.after - pair.before))?;
        let found = Estimate { left_out: self.left_out, ..found };
        Some((of(|pair| pair.before)(pairs)?, of(|pair| pair.after)(pairs)?, found))
    }
}
