//! Loads that are compared within repeats.

use crate::fixture;
use analyze::within::{Pairs, RepeatPair, pairs};
use record::{DoubtKind, Point, Sweep, names};

fn point(repeat: u32, rate: f64, is_disturbed: bool) -> Point {
    let mut point = fixture::point(Sweep::Connections, repeat, 1, &[(names::THROUGHPUT, rate)]);
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
    assert_eq!(found.change(0.95).map(|(from, to, ratio)| (from, to, ratio.value, ratio.n)), Some((2.0, 4.0, 2.0, 1)));
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
