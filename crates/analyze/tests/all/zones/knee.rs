//! The knee of throughput.

use analyze::zones::curve::{BlockCurve, Crossing};
use analyze::zones::knee_of;

/// The knee of a curve without noise, with this many measured loads per doubling.
fn knee(per_doubling: u32, throughput: impl Fn(f64) -> f64) -> f64 {
    let loads = (0..=11 * per_doubling).map(|step| (f64::from(step) / f64::from(per_doubling)).exp2());
    let curve = BlockCurve::exact(loads.map(|load| (load, throughput(load).ln())));
    let Some(Crossing::At(at)) = curve.knee(0.2) else { panic!("no knee") };
    at
}

#[test]
fn the_knee_of_a_pool_is_its_number_of_workers() {
    for workers in [1.0, 2.0, 3.0, 5.0, 7.0, 8.0, 9.0, 11.0, 15.0, 32.0, 100.0] {
        let sharp = |n: f64| n.min(workers) * 200.0;
        let (at, continuous) = (knee(1, sharp), knee_of(sharp, 0.2).unwrap());
        assert!((at / workers - 1.0).abs() < 0.02, "{at} for {workers}");
        assert!((continuous / workers - 1.0).abs() < 0.02, "{continuous} for {workers}");
        let dearer = knee(2, |n| sharp(n) / (1.0 + n / (16.0 * workers)));
        assert!((dearer / workers - 1.0).abs() < 0.05, "{dearer} for {workers} whose time grows with connections");
    }
}

#[test]
fn slowly_rising_throughput_does_not_move_the_knee() {
    let knee = knee(1, |n| if n <= 8.0 { n } else { 8.0 * (n / 8.0).powf(0.15) });
    assert!((knee / 8.0 - 1.0).abs() < 0.02, "{knee}");
}

#[test]
fn a_curve_that_keeps_rising_has_no_knee() {
    assert_eq!(knee_of(|n| n.powf(0.9), 0.2), None);
}
