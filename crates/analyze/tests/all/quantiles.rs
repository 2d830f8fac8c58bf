//! The statistics that findings rest on.

use proptest::prelude::*;
use rand::RngExt;
use statistics::{bootstrap, coefficient_of_variation, mean, median, quantile, random, range, weighted_median};

#[test]
fn order_statistics_equal_the_textbook() {
    assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
    assert_eq!(median([f64::NAN, 1.0]), Some(1.0));
    assert_eq!(median([0.0; 0]), None);
    let cv = coefficient_of_variation([90.0, 100.0, 110.0]).unwrap();
    assert!((cv - 0.1).abs() < 1e-12, "{cv}");
    let weighted = |all: &[(f64, f64)]| weighted_median(all, |one| one.0, |one| one.1);
    assert_eq!(weighted(&[(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
    assert_eq!(weighted(&[(4.0, 1.0), (1.0, 1.0)]), Some(2.5));
    assert_eq!(weighted(&[(9.0, 0.25), (1.0, 1.0), (8.0, 0.4)]), Some(1.0));
    assert_eq!(weighted(&[]), None);
}

#[test]
fn the_bootstrap_interval_covers_the_true_median_about_as_often_as_stated() {
    let mut random = random(7);
    let covered = (0..200)
        .filter(|seed| {
            let repeats: Vec<f64> = (0..15).map(|_| 100.0 + random.random_range(-20.0..20.0)).collect();
            let (low, high) = bootstrap(&repeats, 0.95, *seed, |values| median(values)).unwrap();
            low <= 100.0 && 100.0 <= high
        })
        .count();
    assert!((175..=200).contains(&covered), "covered {covered} of 200");
}

proptest! {
    #[test]
    fn statistics_lie_within_the_values(
        values in prop::collection::vec(-1e300f64..1e300, 1..40),
        at in 0.0f64..1.0,
    ) {
        let (low, high) = range(&values).unwrap();
        for found in [quantile(&values, at), median(&values), mean(&values)] {
            let found = found.unwrap();
            let slack = 1e-9 * low.abs().max(high.abs());
            prop_assert!(low - slack <= found && found <= high + slack, "{found} outside {low}..{high}");
        }
    }

    #[test]
    fn statistics_accept_any_floats(values in prop::collection::vec(any::<f64>(), 0..20), at in any::<f64>()) {
        let _ = (quantile(&values, at), median(&values), mean(&values), range(&values));
        let _ = (coefficient_of_variation(&values), bootstrap(&values, at, 1, |values| median(values)));
    }
}
