//! One change over all loads of two runs.

use analyze::compare::pooled::{CommonLoad, StandardError, departing, pooled};
use analyze::within::Visit;

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
