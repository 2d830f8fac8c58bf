use super::Interval;

/// Probabilities of `count` documents by rank under Zipf's law: the probability of rank r is proportional to `1 /
/// r^exponent`. An exponent of 0 makes all equal.
pub fn zipf(count: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Zipf's exponent fitted to counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ZipfFit {
    /// The exponent with its 95 % interval. The ranks come from the same counts, which biases the exponent upwards
    /// when many documents were requested only once or twice.
    pub exponent: Interval,
    /// Number of requests for them.
    pub requests: u64,
}

impl ZipfFit {
    /// The maximum-likelihood exponent for these counts of requests by document; `None` with fewer than two
    /// documents.
    pub fn fit(mut counts: Vec<u64>) -> Option<ZipfFit> {
        counts.retain(|count| *count > 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        if counts.len() < 2 {
            return None;
        }
        let requests: u64 = counts.iter().sum();
        let logs: Vec<f64> = (1..=counts.len()).map(|rank| (rank as f64).ln()).collect();
        let observed = counts.iter().zip(&logs).map(|(count, log)| *count as f64 * log).sum::<f64>() / requests as f64;
        // The likelihood is concave. Its maximum is where the mean logarithm of the rank equals the observed one.
        let moments = |exponent: f64| {
            let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
            for log in &logs {
                let weight = (-exponent * log).exp();
                sum += weight;
                first += weight * log;
                second += weight * log * log;
            }
            (first / sum, second / sum - (first / sum).powi(2))
        };
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..50 {
            let middle = (low + high) / 2.0;
            if moments(middle).0 > observed { low = middle } else { high = middle }
        }
        let exponent = (low + high) / 2.0;
        let (_, variance) = moments(exponent);
        let error = 1.0 / (requests as f64 * variance).sqrt();
        Some(ZipfFit { exponent: Interval::around(exponent, error), requests })
    }
}
