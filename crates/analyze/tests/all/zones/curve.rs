//! Curves over load, compared within repeats.

use analyze::zones::curve::{BlockCurve, Crossing, CurvePoint, isotonic};

fn readings(repeats: &[(f64, &[f64])], loads: &[f64]) -> Vec<CurvePoint> {
    let mut all = Vec::new();
    for (repeat, (drift, values)) in repeats.iter().enumerate() {
        for (load, value) in loads.iter().zip(*values) {
            all.push(CurvePoint {
                load: *load,
                repeat: repeat as u32,
                value: value * drift,
                weight: 1.0,
                precision: 1.0,
            });
        }
    }
    all
}

#[test]
fn drift_between_repeats_does_not_change_the_curve() {
    let values: &[f64] = &[10.0, 20.0, 40.0, 42.0, 41.0];
    let loads = [1.0, 2.0, 4.0, 8.0, 16.0];
    let steady = BlockCurve::fit(&readings(&[(1.0, values), (1.0, values), (1.0, values)], &loads)).unwrap();
    let mut drifting = readings(&[(1.0, values), (0.7, values), (1.3, values)], &loads);
    // The fast repeat lacks the low loads and the slow one the high loads, which would distort plain medians.
    drifting.retain(|r| match r.repeat {
        1 => r.load < 16.0,
        2 => r.load > 2.0,
        _ => true,
    });
    let drifting = BlockCurve::fit(&drifting).unwrap();
    let first = steady.at[0].level - drifting.at[0].level;
    assert!(steady.at.iter().zip(&drifting.at).all(|(a, b)| (a.level - b.level - first).abs() < 1e-6));
}

#[test]
fn the_gain_of_a_sharp_knee_ends_at_the_knee() {
    let loads: Vec<f64> = (0..40).map(|step| 2f64.powf(step as f64 / 4.0)).collect();
    let values: Vec<f64> = loads.iter().map(|load| load.min(32.0)).collect();
    let curve = BlockCurve::fit(&readings(&[(1.0, &values)], &loads)).unwrap();
    let Some(Crossing::At(at)) = curve.gain_falls_below(0.2) else { panic!("no crossing") };
    // By definition, 32 / (x / sqrt 2) = 1.2.
    assert!((at / (32.0 * std::f64::consts::SQRT_2 / 1.2) - 1.0).abs() < 0.03, "{at}");
}

#[test]
fn isotonic_regression_pools_falling_values() {
    assert_eq!(isotonic(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0), (4.0, 1.0)]), vec![1.0, 2.5, 2.5, 4.0]);
    assert_eq!(isotonic(&[(3.0, 1.0), (2.0, 1.0), (1.0, 2.0)]), vec![1.75; 3]);
}
