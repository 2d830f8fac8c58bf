//! Compares two loads, two runs or two servers within repeats, so that the machine's drift between repeats cancels. A
//! repeat that lacks one of the two gives no pair.
//!
//! If a repeat measured a load more than once, its points count by [`counted`]. A pair with a disturbed member has
//! less weight, which follows from the weights in [`crate::disturbance`]. Leaving it out would lose three of four
//! pairs if half of the points are disturbed.

use crate::disturbance::{DISTURBED_WEIGHT, counted, is_disturbed};
use crate::statistics::{estimate, median, weighted_mean, weighted_median};
use record::{Estimate, Point};
use std::collections::BTreeMap;

/// Fixed, so that the same run always gives the same result.
const SEED: u64 = 0x4158;

/// Values of a figure at one load in one repeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    /// Start of its first point.
    pub at_ms: f64,
    /// Median of the points that count.
    pub value: f64,
    /// Weight: 1, or less if all of its points were disturbed.
    pub weight: f64,
    /// Points that did not count.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RepeatPair {
    pub repeat: u32,
    pub before: f64,
    pub after: f64,
    pub weight: f64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Pairs {
    /// Pairs in order of repeat.
    pub pairs: Vec<RepeatPair>,
    /// Points of these repeats that did not count.
    pub left_out: u64,
}

pub(crate) fn visits(points: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> BTreeMap<u32, Visit> {
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

pub(crate) fn paired(before: &BTreeMap<u32, Visit>, after: &BTreeMap<u32, Visit>) -> Pairs {
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

pub(crate) fn pairs(before: &[&Point], after: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> Pairs {
    paired(&visits(before, &value), &visits(after, &value))
}

impl Pairs {
    /// Weighted medians before and after, and the weighted median of the ratios with a bootstrap interval over the
    /// repeats.
    pub(crate) fn change(&self, confidence: f64) -> Option<(f64, f64, Estimate)> {
        let of = |value: fn(&RepeatPair) -> f64| {
            move |pairs: &[RepeatPair]| weighted_median(pairs, value, |pair| pair.weight)
        };
        let ratio = of(|pair| pair.after / pair.before);
        let known: Vec<RepeatPair> = self.pairs.iter().copied().filter(|pair| pair.before > 0.0).collect();
        let ratio = Estimate { left_out: self.left_out, ..estimate(&known, confidence, SEED, ratio)? };
        Some((of(|pair| pair.before)(&known)?, of(|pair| pair.after)(&known)?, ratio))
    }

    /// Weighted means before and after, and the weighted mean of the differences with its interval.
    pub(crate) fn difference(&self, confidence: f64) -> Option<(f64, f64, Estimate)> {
        let of =
            |value: fn(&RepeatPair) -> f64| move |pairs: &[RepeatPair]| weighted_mean(pairs, value, |pair| pair.weight);
        let pairs = self.pairs.as_slice();
        let found = estimate(pairs, confidence, SEED, of(|pair| pair.after - pair.before))?;
        let found = Estimate { left_out: self.left_out, ..found };
        Some((of(|pair| pair.before)(pairs)?, of(|pair| pair.after)(pairs)?, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{DoubtKind, Sweep, names};

    fn point(repeat: u32, rate: f64, is_disturbed: bool) -> Point {
        let mut point = crate::point::tests::point(Sweep::Connections, repeat, 1, &[(names::THROUGHPUT, rate)]);
        if is_disturbed {
            point.doubts.push(DoubtKind::Steal.warning("stolen", "wait"));
        }
        point
    }

    fn found(before: &[Point], after: &[Point]) -> Pairs {
        let (before, after): (Vec<&Point>, Vec<&Point>) = (before.iter().collect(), after.iter().collect());
        pairs(&before, &after, |point| point.value(names::THROUGHPUT))
    }

    #[test]
    fn points_are_paired_only_within_a_repeat() {
        let found = found(&[point(0, 1.0, false), point(1, 2.0, false)], &[point(1, 4.0, false), point(2, 9.0, false)]);
        let pair = RepeatPair { repeat: 1, before: 2.0, after: 4.0, weight: 1.0 };
        assert_eq!(found.pairs, [pair]);
        assert_eq!(
            found.change(0.95).map(|(from, to, ratio)| (from, to, ratio.value, ratio.n)),
            Some((2.0, 4.0, 2.0, 1))
        );
    }

    #[test]
    fn remeasured_points_are_left_out_and_disturbed_pairs_weigh_less() {
        let before = [point(0, 10.0, true), point(0, 20.0, false), point(1, 20.0, false), point(2, 10.0, true)];
        let after = [point(0, 40.0, false), point(1, 5.0, true), point(2, 40.0, true)];
        let found = found(&before, &after);
        assert_eq!(found.left_out, 1);
        let weights: Vec<f64> = found.pairs.iter().map(|pair| pair.weight).collect();
        assert_eq!(weights, [1.0, 0.4, 0.25]);
        let (_, _, ratio) = found.change(0.95).unwrap();
        assert_eq!((ratio.value, ratio.n, ratio.left_out), (2.0, 3, 1), "the undisturbed pair outweighs both others");
    }
}
