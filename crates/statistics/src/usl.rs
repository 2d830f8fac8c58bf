//! The Universal Scalability Law (Gunther, Guerrilla Capacity Planning, 2007): throughput as a function of load or
//! processors.

use crate::regression::minimise;

/// The law X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Usl {
    /// Contention: share of the work that only one can do at a time; 0 to 1.
    pub alpha: f64,
    /// Coherency: cost of agreement between each pair; at least 0.
    pub beta: f64,
    /// Throughput at load 1, the extrapolated slope at the origin.
    pub gamma: f64,
}

impl Usl {
    /// Throughput at a load.
    pub fn throughput(&self, load: f64) -> f64 {
        self.gamma * load / (1.0 + self.alpha * (load - 1.0) + self.beta * load * (load - 1.0))
    }

    /// The load with the highest throughput; infinite without coherency.
    pub fn peak(&self) -> f64 {
        ((1.0 - self.alpha) / self.beta).sqrt()
    }
}

/// Fits (load, throughput) by least squares, like the R package `usl`. Two different loads are fitted without
/// coherency. `None` with fewer, or without a fit.
pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
    let mut loads: Vec<f64> = points.iter().map(|(load, _)| *load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let highest = *loads.get(1).and(loads.last())?;
    let slope = points.iter().map(|(load, rate)| rate / load).fold(0.0, f64::max);
    let scales = [1.0, 0.01, 1.0 / (highest * highest)];
    let mut best: Option<(Usl, f64)> = None;
    // A parameter that reaches a bound stays there.
    let held = [None, Some(0.0), Some(1.0)].into_iter().flat_map(|alpha| [(alpha, false), (alpha, true)]);
    for (held_alpha, holds_beta) in held.filter(|(_, holds_beta)| *holds_beta || loads.len() > 2) {
        let law = |p: &[f64]| Usl {
            alpha: held_alpha.unwrap_or_else(|| p[1]),
            beta: if holds_beta { 0.0 } else { p[p.len() - 1] },
            gamma: p[0] * slope,
        };
        // Scaled so that all residuals are near 1.
        let residuals = |p: &[f64]| {
            let off = |(load, rate): &(f64, f64)| (law(p).throughput(*load) - rate) / (slope * highest.sqrt());
            points.iter().map(off).collect::<Vec<f64>>()
        };
        let (mut start, mut scale) = (vec![1.0], vec![scales[0]]);
        if held_alpha.is_none() {
            start.push(0.01);
            scale.push(scales[1]);
        }
        if !holds_beta {
            start.push(0.1 * scales[2]);
            scale.push(scales[2]);
        }
        let Some((found, sum)) = minimise(&residuals, &start, &scale, 2000) else { continue };
        let found = law(&found);
        let is_possible = (0.0..=1.0).contains(&found.alpha) && found.beta >= 0.0 && found.gamma > 0.0;
        if is_possible && best.is_none_or(|(_, least)| sum < least) {
            best = Some((found, sum));
        }
    }
    best.map(|(law, _)| law)
}
