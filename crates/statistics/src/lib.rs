//! What findings are computed with: statistics (median, quantiles, coefficient of variation, seeded bootstrap
//! intervals), fitted curves and queueing models, by pure functions of numbers. The crate `analyze` applies them to
//! runs.
//!
//! The functions here skip values that are not finite and return `None` if none is left, so that no NaN spreads.

pub mod curve;
pub mod knee;
pub mod queue;
pub mod regression;
pub mod server;
pub mod usl;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::Estimate;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::borrow::Borrow;

/// The source of all random choices of findings: the same seed gives the same choices on every machine.
pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn sorted(values: impl IntoIterator<Item: Borrow<f64>>) -> Vec<f64> {
    in_order(values.into_iter().map(|value| *value.borrow()).collect())
}

// The functions that are not generic are compiled once, here.
fn in_order(mut values: Vec<f64>) -> Vec<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values
}

/// The quantile between 0 and 1, interpolated linearly between order statistics (Hyndman and Fan's type 7).
pub fn quantile(values: impl IntoIterator<Item: Borrow<f64>>, quantile: f64) -> Option<f64> {
    quantile_of(&sorted(values), quantile)
}

fn quantile_of(sorted: &[f64], quantile: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = quantile.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let share = position - below as f64;
    // A weighted sum instead of a difference, because two huge values of opposite sign must not overflow.
    Some(sorted[below] * (1.0 - share) + sorted[above] * share)
}

/// The median.
pub fn median(values: impl IntoIterator<Item: Borrow<f64>>) -> Option<f64> {
    quantile(values, 0.5)
}

/// The smallest and the largest value.
pub fn range(values: impl IntoIterator<Item: Borrow<f64>>) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    Some((*sorted.first()?, *sorted.last()?))
}

/// The arithmetic mean.
pub fn mean(values: impl IntoIterator<Item: Borrow<f64>>) -> Option<f64> {
    let finite = sorted(values);
    let count = finite.len() as f64;
    (count > 0.0).then(|| finite.iter().map(|value| value / count).sum())
}

/// The weighted mean.
pub fn weighted_mean<T>(all: &[T], value: impl Fn(&T) -> f64, weight: impl Fn(&T) -> f64) -> Option<f64> {
    let whole: f64 = all.iter().map(&weight).sum();
    (whole > 0.0).then(|| all.iter().map(|one| value(one) * weight(one)).sum::<f64>() / whole)
}

/// The weighted median: half of the weight lies on each side. If two values qualify, their mean.
pub fn weighted_median<T>(all: &[T], value: impl Fn(&T) -> f64, weight: impl Fn(&T) -> f64) -> Option<f64> {
    middle(all.iter().map(|one| (value(one), weight(one))).collect())
}

/// Of values with weights.
fn middle(mut known: Vec<(f64, f64)>) -> Option<f64> {
    known.retain(|(value, weight)| value.is_finite() && *weight > 0.0);
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = known.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    for (at, (value, weight)) in known.iter().enumerate() {
        below += weight;
        if (below - half).abs() <= 1e-9 * half {
            let next = known.get(at + 1).map_or(*value, |(next, _)| *next);
            return Some(value / 2.0 + next / 2.0);
        }
        if below > half {
            return Some(*value);
        }
    }
    None
}

/// Standard deviation (n - 1) over the mean; needs two values and a positive mean.
pub fn coefficient_of_variation(values: impl IntoIterator<Item: Borrow<f64>>) -> Option<f64> {
    let finite = sorted(values);
    let mean = mean(&finite)?;
    if finite.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = finite.iter().map(|value| (value / mean - 1.0).powi(2)).sum();
    Some((squares / (finite.len() - 1) as f64).sqrt()).filter(|cv| cv.is_finite())
}

/// The quantile of Student's t for a two-sided interval.
pub fn student(confidence: f64, freedom: f64) -> Option<f64> {
    let law = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let quantile = law.inverse_cdf(0.5 + confidence.clamp(0.0, 0.9999) / 2.0);
    quantile.is_finite().then_some(quantile)
}

/// The mean with Student's interval; needs two values.
pub fn mean_estimate(values: &[f64], confidence: f64) -> Option<Estimate> {
    let (center, error) = mean_and_error(values)?;
    Some(with_error(center, error, values.len() as f64 - 1.0, confidence, values.len()))
}

/// The mean and its standard error, which is not a number for a single value.
pub fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let center = mean(values)?;
    let n = values.len() as f64;
    let variance = values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (n - 1.0);
    Some((center, (variance / n).sqrt()))
}

/// A value with Student's interval from its standard error; without an interval if it has no degrees of freedom.
pub fn with_error(value: f64, error: f64, freedom: f64, confidence: f64, n: usize) -> Estimate {
    let reach = student(confidence, freedom).map(|quantile| quantile * error).filter(|reach| reach.is_finite());
    Estimate::new(value, reach.map(|reach| (value - reach, value + reach)), confidence, n)
}

/// The central interval of a value over random draws. With 400, ten draws determine each end of a 95 % interval,
/// enough for two significant digits.
pub fn interval_of_draws(
    confidence: f64,
    seed: u64,
    mut draw: impl FnMut(&mut ChaCha8Rng) -> Option<f64>,
) -> Option<(f64, f64)> {
    let mut random = random(seed);
    let values: Vec<f64> = (0..400).filter_map(|_| draw(&mut random)).collect();
    interval_of(&values, confidence)
}

/// Percentile-bootstrap interval of `statistic` over independent repeats (or blocks): draws as many with replacement,
/// and returns the quantiles of the results. `None` with fewer than two repeats.
pub fn bootstrap<T: Clone>(
    repeats: &[T],
    confidence: f64,
    seed: u64,
    mut statistic: impl FnMut(&[T]) -> Option<f64>,
) -> Option<(f64, f64)> {
    let mut draw = |random: &mut ChaCha8Rng| {
        let drawn: Vec<T> = repeats.iter().map(|_| repeats[random.random_range(0..repeats.len())].clone()).collect();
        statistic(&drawn)
    };
    if repeats.len() < 2 { None } else { interval_of_draws(confidence, seed, &mut draw) }
}

/// The `statistic` of independent repeats, with its [`bootstrap`] interval.
pub fn estimate<T: Clone>(
    repeats: &[T],
    confidence: f64,
    seed: u64,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<Estimate> {
    let interval = bootstrap(repeats, confidence, seed, &statistic);
    Some(Estimate::new(statistic(repeats)?, interval, confidence, repeats.len()))
}

/// The central interval of bootstrap draws.
pub fn interval_of(draws: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    Some((quantile(draws, tail)?, quantile(draws, 1.0 - tail)?))
}
