//! Changes between two runs or two loads: pooled, within repeats, and by layer and function.

use crate::fixture;
use analyze::compare::costs::under_one_root;
use analyze::compare::pooled::{CommonLoad, StandardError, departing, pooled};
use analyze::growth::{functions, layers};
use analyze::profile;
use analyze::within::{Pairs, RepeatPair, Visit, pairs};
use record::point::FunctionCost;
use record::profile::Folded;
use record::{DoubtKind, Point, Sweep, names};

/// A load with the values of each repeat on both sides.
fn load(at: u32, a: &[(u32, f64)], b: &[(u32, f64)]) -> CommonLoad<u32> {
    let visit = |value| Visit { at_ms: 0.0, value, weight: 1.0, left_out: 0 };
    let [a, b] = [a, b].map(|side| side.iter().map(|(repeat, value)| (*repeat, visit(*value))).collect());
    CommonLoad { at, a, b }
}

#[test]
fn the_mean_over_loads_is_tested_like_the_mean_over_repeats() {
    // The repeats differ by 0.1, 0.2 and 0.3, each the mean of two loads.
    let loads = [
        load(1, &[(0, 1.0), (1, 2.0), (2, 1.5)], &[(0, 1.0), (1, 2.1), (2, 1.7)]),
        load(2, &[(0, 5.0), (1, 6.0), (2, 5.5)], &[(0, 5.2), (1, 6.3), (2, 5.9)]),
    ];
    let found = pooled(&loads, true).unwrap();
    let StandardError { value: error, freedom } = found.change.error.unwrap();
    assert!((found.change.value - 0.2).abs() < 1e-12 && found.change.repeats == 3, "{found:?}");
    assert!((error - (0.01f64 / 3.0).sqrt()).abs() < 1e-12 && (freedom - 2.0).abs() < 1e-9, "{found:?}");
    assert!((found.b - found.a - 0.2).abs() < 1e-9, "{found:?}");
    let unpaired = pooled(&loads, false).unwrap();
    assert!((unpaired.change.value - 0.2).abs() < 1e-12, "{unpaired:?}");
    assert!((unpaired.b - unpaired.a - 0.2).abs() < 1e-9, "{unpaired:?}");
    assert!(unpaired.change.error.unwrap().value > 2.0 * error, "their drift does not cancel: {unpaired:?}");
}

#[test]
fn one_repeat_has_no_error() {
    let loads = [load(1, &[(0, 1.0)], &[(0, 1.5)])];
    for is_paired in [true, false] {
        assert_eq!(pooled(&loads, is_paired).unwrap().change.error, None);
        assert_eq!(departing(&loads, is_paired, 0.95), [false]);
    }
    assert_eq!(pooled(&[] as &[CommonLoad<u32>; 0], true), None);
}

#[test]
fn a_differing_load_is_found_in_spite_of_drift_between_repeats() {
    let drift = [0.0, 0.3, -0.2, 0.1, 0.25, -0.1];
    let differing = |at: u32, by: f64| {
        let side = |by: f64, salt: u32| -> Vec<(u32, f64)> {
            let noise = |repeat: usize| 0.02 * f64::from((at * 7 + repeat as u32 * 5 + salt * 3) % 11) / 11.0;
            let value = |(repeat, drift): (usize, &f64)| (repeat as u32, drift + by + noise(repeat));
            drift.iter().enumerate().map(value).collect()
        };
        load(at, &side(0.0, 1), &side(by, at * at + 2))
    };
    let loads: Vec<CommonLoad<u32>> = (0..8).map(|at| differing(at, if at == 5 { -0.3 } else { -0.05 })).collect();
    for is_paired in [true, false] {
        let found = departing(&loads, is_paired, 0.99);
        assert!(found[5] && found.iter().filter(|departs| **departs).count() == 1, "{is_paired}: {found:?}");
    }
}

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

#[test]
fn two_servers_are_compared_under_one_name_and_one_server_under_its_own() {
    let folded = |text: &str| Folded::parse(text.as_bytes()).unwrap();
    let both = |a: &str, b: &str| {
        let (a, b) = under_one_root(folded(a), folded(b));
        [a.to_text(), b.to_text()]
    };
    assert_eq!(
        both("nginx;read 3\n[packets on idle CPUs];rx 1\n", "lighttpd;read 5\n"),
        ["[packets on idle CPUs];rx 1\nserver;read 3\n", "server;read 5\n"]
    );
    assert_eq!(both("nginx;read 3\n", "nginx;read 5\nlogger;write 1\n")[0], "nginx;read 3\n");
}

fn point_with_layers(repeat: u32, tcp_us: f64, lookup_us: f64) -> Point {
    let figures = [(names::LAYER_TCP, tcp_us), (names::LAYER_USER, 2.0)];
    let cost = |function: &str, us_per_request| FunctionCost {
        function: function.into(),
        module: None,
        layer: None,
        us_per_request,
        samples: 50,
    };
    Point {
        functions: vec![cost("tcp_ack", 1.0), cost("__inet_lookup_established", lookup_us)],
        ..fixture::point(Sweep::Connections, repeat, 1, &figures)
    }
}

#[test]
fn only_growing_figures_are_named() {
    let low: Vec<Point> = (0..4).map(|repeat| point_with_layers(repeat, 3.0 + f64::from(repeat) * 0.1, 0.2)).collect();
    let high: Vec<Point> = (0..4).map(|repeat| point_with_layers(repeat, 4.0 + f64::from(repeat) * 0.1, 0.9)).collect();
    let (low, high): (Vec<&Point>, Vec<&Point>) = (low.iter().collect(), high.iter().collect());
    let layers = layers(&low, &high, 0.95);
    assert_eq!(layers.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["TCP"]);
    assert!((layers[0].difference_us.value - 1.0).abs() < 1e-9 && layers[0].difference_us.n == 4, "{:?}", layers[0]);
    let functions = functions(&low, &high, 0.95);
    assert_eq!(functions.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["__inet_lookup_established"]);
}

#[test]
fn two_repeats_prove_nothing() {
    let (low, high) = (
        [point_with_layers(0, 1.0, 0.0), point_with_layers(1, 1.0, 0.0)],
        [point_with_layers(0, 9.0, 5.0), point_with_layers(1, 9.0, 5.0)],
    );
    assert!(layers(&low.each_ref(), &high.each_ref(), 0.95).is_empty());
}

fn folded(text: &str) -> Folded {
    Folded::parse(text.as_bytes()).unwrap()
}

#[test]
fn functions_that_grew_come_first() {
    let before = folded("s;a 90\ns;b 10\n");
    let after = folded("s;a 100\ns;b 60\ns;c 40\n");
    let changes = profile::changes(&before, &after);
    assert_eq!(changes[0].function, "a");
    assert!((changes[0].after_ratio - 0.5).abs() < 1e-12);
    assert_eq!(changes[2].function, "b");
    assert_eq!(changes[1].before_ratio, 0.0);
}

#[test]
fn a_few_samples_show_no_clear_change() {
    let is_clear = |before: &str, after: &str| profile::changes(&folded(before), &folded(after))[0].is_clear();
    assert!(!is_clear("s;a 5\ns;b 5\n", "s;a 7\ns;b 3\n"));
    assert!(is_clear("s;a 5000\ns;b 5000\n", "s;a 7000\ns;b 3000\n"));
}
