use statrs::distribution::{ContinuousCDF, Normal};

/// A lognormal that is truncated at `tail_from_bytes`, and a Pareto distribution from there on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HybridSizes {
    /// Mean of the natural logarithm of the body's sizes in bytes, before truncation.
    pub body_mu: f64,
    /// Standard deviation of that logarithm.
    pub body_sigma: f64,
    /// Start of the tail (Pareto's k).
    pub tail_from_bytes: f64,
    /// Exponent of the tail (Pareto's alpha). The variance is infinite up to 2, and the mean up to 1.
    pub tail_alpha: f64,
    /// Share of the documents in the tail.
    pub tail_ratio: f64,
}

impl HybridSizes {
    fn standard() -> Normal {
        Normal::standard()
    }

    fn kept_ratio(&self) -> f64 {
        Self::standard().cdf((self.tail_from_bytes.ln() - self.body_mu) / self.body_sigma).max(f64::MIN_POSITIVE)
    }

    /// Share of the documents that are not larger than `bytes`.
    pub fn cdf(&self, bytes: f64) -> f64 {
        if bytes <= 0.0 {
            0.0
        } else if bytes < self.tail_from_bytes {
            let below = Self::standard().cdf((bytes.ln() - self.body_mu) / self.body_sigma);
            (1.0 - self.tail_ratio) * (below / self.kept_ratio()).min(1.0)
        } else {
            1.0 - self.tail_ratio * (self.tail_from_bytes / bytes).powf(self.tail_alpha)
        }
    }

    /// The size that a share `ratio` (from 0 to below 1) of the documents does not exceed. At least 1 byte.
    pub fn quantile(&self, ratio: f64) -> f64 {
        let body = 1.0 - self.tail_ratio;
        let bytes = if ratio < body {
            let within = (ratio / body * self.kept_ratio()).clamp(1e-300, 1.0 - 1e-16);
            (self.body_mu + self.body_sigma * Self::standard().inverse_cdf(within)).exp().min(self.tail_from_bytes)
        } else {
            let within = ((ratio - body) / self.tail_ratio).min(1.0 - 1e-16);
            self.tail_from_bytes * (1.0 - within).powf(-1.0 / self.tail_alpha)
        };
        bytes.max(1.0)
    }

    /// Sizes of `count` documents at evenly spaced quantiles, ascending and at most `largest_bytes`. They follow the
    /// distribution without the random error of a sample.
    pub fn sizes(&self, count: usize, largest_bytes: u64) -> Vec<u64> {
        let quantile = |index: usize| self.quantile((index as f64 + 0.5) / count as f64).round();
        (0..count).map(|index| (quantile(index).min(9e15) as u64).clamp(1, largest_bytes.max(1))).collect()
    }
}

/// The order in which ascending sizes are assigned to popularity ranks, the most popular first. The quantiles of
/// successive ranks step by the golden ratio from the median, so that the first ranks always cover the distribution
/// evenly, and neither the most popular document nor the hundred most popular have unusual sizes.
pub fn dealt(count: usize) -> Vec<usize> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let mut keyed: Vec<(f64, usize)> = (0..count).map(|rank| ((0.5 + rank as f64 * GOLDEN).fract(), rank)).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut size_of_rank = vec![0; count];
    for (size, (_, rank)) in keyed.into_iter().enumerate() {
        size_of_rank[rank] = size;
    }
    size_of_rank
}
