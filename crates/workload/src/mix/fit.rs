//! Fits a lognormal body and a Pareto tail to sizes by maximum likelihood.
//!
//! For every candidate start of the tail, the tail's exponent is Hill's estimate, and the body is a lognormal
//! truncated at that start (Cohen's truncated normal, applied to the logarithms). The chosen start gives the smallest
//! Kolmogorov-Smirnov distance over the whole distribution. Clauset, Shalizi & Newman (Power-Law Distributions in
//! Empirical Data, 2009) use this criterion for the tail alone.

use super::HybridSizes;
use crate::{WorkloadError, wrong};
use statrs::function::erf::erfc;
use std::fmt;

const FEWEST: usize = 100;
const FEWEST_IN_TAIL: usize = 25;
const TAIL_RATIOS: (f64, f64) = (0.01, 0.5);
const CANDIDATES: usize = 80;
/// Maximum number of sizes that the choice of the start uses.
const THINNED: usize = 20_000;
/// Quantile of the normal distribution for a 95 % interval.
const Z_95: f64 = 1.959_964;

/// An estimate with its 95 % interval (asymptotic, from the observed information).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    pub(super) fn around(value: f64, standard_error: f64) -> Self {
        let half = if standard_error.is_finite() { Z_95 * standard_error } else { f64::INFINITY };
        Interval { value, low: value - half, high: value + half }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.value, self.low, self.high)
    }
}

/// A fitted size distribution and its goodness of fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeFit {
    /// Sizes fitted (above 0).
    pub n: usize,
    /// Number of left out sizes of 0.
    pub zeros: usize,
    /// Mean of the natural logarithm of the body's sizes in bytes.
    pub body_mu: Interval,
    /// Standard deviation of the natural logarithm of the body's sizes.
    pub body_sigma: Interval,
    /// Smallest size of the tail.
    pub tail_from_bytes: f64,
    /// Exponent of the tail.
    pub tail_alpha: Interval,
    /// Sizes in the tail.
    pub tail_n: usize,
    /// Largest size.
    pub largest_bytes: u64,
    /// Kolmogorov-Smirnov distance of the body from its fit.
    pub body_distance: f64,
    /// Kolmogorov-Smirnov distance of the tail from its fit.
    pub tail_distance: f64,
    /// Kolmogorov-Smirnov distance of the whole distribution from its fit.
    pub distance: f64,
}

impl SizeFit {
    /// Fits a distribution to sizes in bytes.
    pub fn fit(mut sizes: Vec<u64>) -> Result<SizeFit, WorkloadError> {
        let all = sizes.len();
        sizes.retain(|bytes| *bytes > 0);
        if sizes.len() < FEWEST {
            let found = sizes.len();
            return Err(wrong(format!("{found} documents with a size are too few to fit a mix (at least {FEWEST})")));
        }
        sizes.sort_unstable();
        let n = sizes.len();
        let logs: Vec<f64> = sizes.iter().map(|bytes| (*bytes as f64).ln()).collect();
        let starts = candidates(&logs);
        if starts.is_empty() {
            return Err(wrong(format!(
                "the sizes of the {n} documents are too similar for a body and a tail: use one size"
            )));
        }
        // Evenly chosen sizes of a large sample suffice for the choice of the start. All sizes count for the results.
        let every = n.div_ceil(THINNED);
        let thinned: Vec<f64> = logs.iter().skip(every / 2).step_by(every).copied().collect();
        let fit_at = |first: usize| {
            let in_tail = &logs[first..];
            let sum: f64 = in_tail.iter().map(|log| log - logs[first]).sum();
            let alpha = in_tail.len() as f64 / sum;
            let (body_mu, body_sigma) = body(&logs[..first], logs[first]);
            SizeFit {
                n,
                zeros: all - n,
                body_mu,
                body_sigma,
                tail_from_bytes: sizes[first] as f64,
                tail_alpha: Interval::around(alpha, alpha / (in_tail.len() as f64).sqrt()),
                tail_n: in_tail.len(),
                largest_bytes: sizes[n - 1],
                body_distance: 0.0,
                tail_distance: 0.0,
                distance: 0.0,
            }
        };
        let misfit = |first: usize| {
            let whole = fit_at(first).sizes();
            distance(&thinned, |log| whole.cdf(log.exp()))
        };
        let scored = starts.into_iter().map(|first| (misfit(first), first));
        let first = scored.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, first)| first);
        let mut fit = fit_at(first);
        let whole = fit.sizes();
        let body_ratio = 1.0 - whole.tail_ratio;
        fit.body_distance = distance(&logs[..first], |log| whole.cdf(log.exp()) / body_ratio);
        fit.tail_distance = distance(&logs[first..], |log| 1.0 - (-fit.tail_alpha.value * (log - logs[first])).exp());
        fit.distance = distance(&logs, |log| whole.cdf(log.exp()));
        Ok(fit)
    }

    /// The fitted distribution.
    pub fn sizes(&self) -> HybridSizes {
        HybridSizes {
            body_mu: self.body_mu.value,
            body_sigma: self.body_sigma.value,
            tail_from_bytes: self.tail_from_bytes,
            tail_alpha: self.tail_alpha.value,
            tail_ratio: self.tail_n as f64 / self.n as f64,
        }
    }

    /// The distance that a sample of the true distribution exceeds in 5 % of cases (Kolmogorov's limit). The limit is
    /// generous for parameters that were fitted to the same sample: a smaller distance only means "not contradicted".
    pub fn critical_distance(&self) -> f64 {
        1.358 / (self.n as f64).sqrt()
    }
}

impl fmt::Display for SizeFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sizes of {} documents ({} of 0 bytes left out), 95 % intervals in brackets", self.n, self.zeros)?;
        writeln!(f, "  body  lognormal: mu {}, sigma {} (of ln bytes)", self.body_mu, self.body_sigma)?;
        writeln!(
            f,
            "  tail  Pareto from {:.0} bytes: alpha {}, {} documents ({:.1} %)",
            self.tail_from_bytes,
            self.tail_alpha,
            self.tail_n,
            100.0 * self.tail_n as f64 / self.n as f64
        )?;
        write!(
            f,
            "  Kolmogorov-Smirnov distance: body {:.4}, tail {:.4}, whole {:.4} (5 % limit {:.4}{})",
            self.body_distance,
            self.tail_distance,
            self.distance,
            self.critical_distance(),
            if self.distance > self.critical_distance() {
                "; the fit is rejected: do not extrapolate from it"
            } else {
                ""
            }
        )
    }
}

/// Indices in ascending logarithms at which a tail may begin, with enough documents of different sizes on both sides.
fn candidates(logs: &[f64]) -> Vec<usize> {
    let n = logs.len();
    let (low, high) = TAIL_RATIOS;
    let mut starts: Vec<usize> = (0..=CANDIDATES)
        .map(|step| low * (high / low).powf(step as f64 / CANDIDATES as f64))
        .map(|ratio| logs[n - ((ratio * n as f64) as usize).clamp(FEWEST_IN_TAIL, n)])
        // A tail begins at a size, so it includes all documents of that size.
        .map(|value| logs.partition_point(|log| *log < value))
        .filter(|first| *first >= n / 4 && logs[*first] < logs[n - 1])
        .collect();
    starts.dedup();
    starts
}

/// Mean and standard deviation of a normal distribution that is truncated at `cut`, estimated from values below the
/// cut.
fn body(values: &[f64], cut: f64) -> (Interval, Interval) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    let deviation = variance.sqrt().max(1e-3);
    // Mean log-likelihood of a value. It depends on the data only through their mean and variance.
    let likelihood = |mu: f64, log_sigma: f64| {
        let sigma = log_sigma.exp();
        let kept = 0.5 * erfc(-(cut - mu) / sigma / std::f64::consts::SQRT_2);
        -log_sigma - (variance + (mean - mu).powi(2)) / (2.0 * sigma * sigma) - kept.max(f64::MIN_POSITIVE).ln()
    };
    // A truncated normal that is nearly exponential has no maximum at finite parameters, so the search stays near the
    // data.
    let (mu_range, sigma_range) = ((mean - deviation, cut + 3.0 * deviation), (0.2 * deviation, 6.0 * deviation));
    let inside = |mu: f64, log_sigma: f64| {
        mu >= mu_range.0 && mu <= mu_range.1 && log_sigma >= sigma_range.0.ln() && log_sigma <= sigma_range.1.ln()
    };
    let value = |mu, log_sigma| if inside(mu, log_sigma) { likelihood(mu, log_sigma) } else { f64::NEG_INFINITY };
    // A pattern search suffices for two smooth parameters and cheap evaluations.
    let (mut mu, mut log_sigma) = (mean, deviation.ln());
    let (mut best, mut step) = (value(mu, log_sigma), 0.5);
    while step > 1e-9 {
        let moves =
            [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)];
        let next = moves
            .iter()
            .map(|(a, b)| (mu + a * step * deviation, log_sigma + b * step))
            .map(|(a, b)| (value(a, b), a, b))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((best, mu, log_sigma));
        if next.0 > best {
            (best, mu, log_sigma) = next;
        } else {
            step /= 2.0;
        }
    }
    let sigma = log_sigma.exp();
    // The observed information is computed from finite differences.
    let h = 1e-4;
    let at = |a: f64, b: f64| likelihood(mu + a * h * sigma, log_sigma + b * h);
    let second = |a: f64, b: f64| (at(a, b) - 2.0 * at(0.0, 0.0) + at(-a, -b)) / (h * h);
    let (i_mu, i_sigma) = (-n * second(1.0, 0.0), -n * second(0.0, 1.0));
    let i_cross = -n * (at(1.0, 1.0) - at(1.0, -1.0) - at(-1.0, 1.0) + at(-1.0, -1.0)) / (4.0 * h * h);
    let determinant = i_mu * i_sigma - i_cross * i_cross;
    let error = |information: f64| if determinant > 0.0 { (information / determinant).sqrt() } else { f64::INFINITY };
    (Interval::around(mu, error(i_sigma) * sigma), Interval::around(sigma, error(i_mu) * sigma))
}

/// Kolmogorov-Smirnov distance of ascending values from a distribution. Ties count once.
fn distance(ascending: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let n = ascending.len() as f64;
    let mut largest: f64 = 0.0;
    let mut at = 0;
    while at < ascending.len() {
        let value = ascending[at];
        let after = at + ascending[at..].partition_point(|other| *other <= value);
        let expected = cdf(value);
        // Sizes are whole bytes, so a tie is no real step of the continuous distribution. A single value is compared
        // on both sides of its step, a tie only on the upper side.
        let below = if after - at == 1 { (expected - at as f64 / n).abs() } else { 0.0 };
        largest = largest.max(below).max((after as f64 / n - expected).abs());
        at = after;
    }
    largest
}
