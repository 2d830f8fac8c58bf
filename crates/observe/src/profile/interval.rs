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
