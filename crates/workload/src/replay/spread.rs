use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Draws the offsets of a group of requests with the same logged time: sorted uniform times within the resolution.
///
/// The times are drawn one after another: the smallest of `n` uniform times lies at `1 - (1 - u)^(1/n)` of the
/// interval, and the other `n - 1` are uniform over the rest. So a group needs no memory.
#[derive(Debug)]
pub(super) struct GroupSpread {
    rng: ChaCha8Rng,
    remaining: u64,
    /// Start of the remaining interval, as a share of the whole one.
    from_ratio: f64,
}

impl GroupSpread {
    pub(super) fn new(seed: u64, part: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(part);
        GroupSpread { rng, remaining: 0, from_ratio: 0.0 }
    }

    pub(super) fn begin(&mut self, count: usize) {
        self.remaining = count as u64;
        self.from_ratio = 0.0;
    }

    /// Continues with a group that is longer than known before: `count` requests have no offset yet.
    pub(super) fn resume(&mut self, count: usize) {
        self.remaining = count as u64;
    }

    /// Offset of the next request within an interval of `resolution_ns`. Offsets never decrease and are less than
    /// `resolution_ns`.
    pub(super) fn next_ns(&mut self, resolution_ns: u64) -> u64 {
        let draw: f64 = self.rng.random();
        let step = 1.0 - (1.0 - draw).powf(1.0 / self.remaining.max(1) as f64);
        self.from_ratio += (1.0 - self.from_ratio) * step;
        self.remaining = self.remaining.saturating_sub(1);
        ((self.from_ratio * resolution_ns as f64) as u64).min(resolution_ns.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_sorted_and_uniform() {
        let mut spread = GroupSpread::new(3, 0);
        let (n, bins) = (20_000, 20);
        let mut counts = vec![0u32; bins];
        spread.begin(n);
        let mut last = 0;
        for _ in 0..n {
            let offset = spread.next_ns(1_000_000_000);
            assert!(offset >= last && offset < 1_000_000_000);
            last = offset;
            counts[offset as usize / (1_000_000_000 / bins)] += 1;
        }
        let expected = n as f64 / bins as f64;
        let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // 99.9th percentile of chi-square with 19 degrees of freedom.
        assert!(chi_square < 43.8, "{chi_square}");
    }
}
