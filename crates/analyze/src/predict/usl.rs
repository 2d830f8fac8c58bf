//! The Universal Scalability Law (Gunther, Guerrilla Capacity Planning, 2007): throughput over load or processors,
//! X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)), with alpha for contention and beta for coherency.

use super::regression::{Parameter, minimise, with_errors};
use serde::Serialize;

/// A fitted law.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Usl {
    /// Contention: the share of the work that only one can do at a time; 0 to 1.
    pub alpha: Parameter,
    /// Coherency: the cost of each pair that must agree; at least 0.
    pub beta: Parameter,
    /// Throughput at load 1, the extrapolated slope at the origin.
    pub gamma: Parameter,
    /// Residual standard error, in the unit of throughput; absent with three points.
    pub residual_error: Option<f64>,
    /// Points it rests on.
    pub n: usize,
}

/// Why a law could not be fitted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UslError {
    /// Three parameters need more than three loads.
    #[error("the Universal Scalability Law needs at least 4 different loads, there are {0}")]
    TooFew(usize),
    /// Not numbers of the right kind.
    #[error("loads and throughputs must be positive numbers; one is {0}")]
    NotPositive(f64),
    /// The iteration failed.
    #[error("the Universal Scalability Law does not fit these points")]
    NoFit,
}

/// The law for given parameters.
pub fn throughput(alpha: f64, beta: f64, gamma: f64, load: f64) -> f64 {
    gamma * load / (1.0 + alpha * (load - 1.0) + beta * load * (load - 1.0))
}

/// Fits by least squares of the throughputs, as the R package `usl` does (its parameters are reproduced in the tests).
/// `points` are (load, throughput).
pub fn fit(points: &[(f64, f64)], confidence: f64) -> Result<Usl, UslError> {
    for value in points.iter().flat_map(|(load, rate)| [*load, *rate]) {
        if !(value.is_finite() && value > 0.0) {
            return Err(UslError::NotPositive(value));
        }
    }
    let mut loads: Vec<f64> = points.iter().map(|(load, _)| *load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    if loads.len() < 4 {
        return Err(UslError::TooFew(loads.len()));
    }
    let slope = points.iter().map(|(load, rate)| rate / load).fold(0.0, f64::max);
    let highest = loads[loads.len() - 1];
    let scales = [1.0, 0.01, 1.0 / (highest * highest)];
    // Scaled by gamma's first guess, so that all residuals are near 1. A parameter at its bound of zero stays there.
    let free = |holds_alpha: bool, holds_beta: bool| {
        move |p: &[f64]| {
            let alpha = if holds_alpha { 0.0 } else { p[1] };
            let beta = if holds_beta { 0.0 } else { p[p.len() - 1] };
            points
                .iter()
                .map(|(load, rate)| (throughput(alpha, beta, p[0] * slope, *load) - rate) / (slope * highest.sqrt()))
                .collect::<Vec<f64>>()
        }
    };
    let mut best: Option<(Vec<f64>, f64, bool, bool)> = None;
    for (holds_alpha, holds_beta) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut start = vec![1.0];
        let mut scale = vec![scales[0]];
        if !holds_alpha {
            start.push(0.01);
            scale.push(scales[1]);
        }
        if !holds_beta {
            start.push(0.1 * scales[2]);
            scale.push(scales[2]);
        }
        let Some((found, sum)) = minimise(&free(holds_alpha, holds_beta), &start, &scale, 2000) else { continue };
        let within = found[1..].iter().all(|value| *value >= 0.0) && (holds_alpha || found[1] <= 1.0) && found[0] > 0.0;
        if within && best.as_ref().is_none_or(|(_, least, ..)| sum < *least) {
            best = Some((found, sum, holds_alpha, holds_beta));
        }
    }
    let (found, _, holds_alpha, holds_beta) = best.ok_or(UslError::NoFit)?;
    let alpha = if holds_alpha { 0.0 } else { found[1] };
    let beta = if holds_beta { 0.0 } else { found[found.len() - 1] };
    let all = [found[0] * slope, alpha, beta];
    let residuals =
        |p: &[f64]| points.iter().map(|(load, rate)| throughput(p[1], p[2], p[0], *load) - rate).collect::<Vec<f64>>();
    let errors = with_errors(&residuals, &all, &[slope, scales[1], scales[2]], confidence);
    let freedom = points.len().saturating_sub(3);
    let sum: f64 = residuals(&all).iter().map(|r| r * r).sum();
    Ok(Usl {
        gamma: errors[0],
        alpha: errors[1],
        beta: errors[2],
        residual_error: (freedom > 0).then(|| (sum / freedom as f64).sqrt()),
        n: points.len(),
    })
}

impl Usl {
    /// Throughput at a load.
    pub fn at(&self, load: f64) -> f64 {
        throughput(self.alpha.value, self.beta.value, self.gamma.value, load)
    }

    /// The load of the highest throughput; absent where throughput never falls (beta = 0).
    pub fn peak_load(&self) -> Option<f64> {
        (self.beta.value > 0.0).then(|| ((1.0 - self.alpha.value) / self.beta.value).sqrt())
    }

    /// The limit from contention alone (Amdahl's asymptote); absent without contention.
    pub fn limit(&self) -> Option<f64> {
        (self.alpha.value > 0.0).then(|| self.gamma.value / self.alpha.value)
    }
}
