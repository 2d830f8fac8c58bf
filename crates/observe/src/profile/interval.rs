//! The uncertainty of a sampled number, from its spread between the tenths of the window.

use record::profile::SampledEstimate;

/// Quantiles of Student's t for 95 %, by degrees of freedom from 1.
const T_95: [f64; 15] =
    [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];

/// Sum of `parts` divided by sum of `wholes`, with the interval of a ratio estimator over blocks (Cochran, Sampling
/// Techniques, 1977, section 6.3). `None` if the wholes are 0.
pub fn ratio(parts: &[f64], wholes: &[f64]) -> Option<SampledEstimate> {
    let total: f64 = wholes.iter().sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let value = parts.iter().sum::<f64>() / total;
    let used = wholes.iter().filter(|whole| **whole > 0.0).count();
    let plus_minus = (used >= 3).then(|| {
        let squares: f64 = parts.iter().zip(wholes).map(|(part, whole)| (part - value * whole).powi(2)).sum();
        let count = wholes.len() as f64;
        let mean = total / count;
        let t = T_95[(used - 2).min(T_95.len() - 1)];
        t * (squares / (count * (count - 1.0))).sqrt() / mean
    });
    Some(SampledEstimate { value, plus_minus })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_ratio_has_no_spread() {
        let estimate = ratio(&[2.0, 4.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((estimate.value - 2.0).abs() < 1e-12);
        assert!(estimate.plus_minus.unwrap() < 1e-9);
    }

    #[test]
    fn a_ratio_without_a_denominator_has_no_value() {
        assert_eq!(ratio(&[1.0, 2.0], &[0.0, 0.0]), None);
        assert_eq!(ratio(&[1.0, 0.0], &[5.0, 0.0]).unwrap().plus_minus, None);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_stated() {
        // Binomial blocks of 100 with a share of 0.3, from a fixed generator.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut covered = 0;
        for _ in 0..1000 {
            let parts: Vec<f64> = (0..10).map(|_| (0..100).filter(|_| uniform() < 0.3).count() as f64).collect();
            let estimate = ratio(&parts, &[100.0; 10]).unwrap();
            covered += usize::from((estimate.value - 0.3).abs() <= estimate.plus_minus.unwrap());
        }
        assert!((920..=980).contains(&covered), "{covered} of 1000");
    }
}
