//! Spreads requests of equal logged time.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Draws the offsets of a group of requests with the same logged time: sorted uniform times within the resolution.
///
/// The times are drawn one after another: the smallest of `n` uniform times lies at `1 - (1 - u)^(1/n)` of the
/// interval, and the other `n - 1` are uniform over the rest. So a group needs no memory.
#[derive(Debug)]
pub struct GroupSpread {
    rng: ChaCha8Rng,
    remaining: u64,
    /// Start of the remaining interval, as a share of the whole one.
    from_ratio: f64,
}

impl GroupSpread {
    /// Draws from stream `part` of `seed`.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(part);
        GroupSpread { rng, remaining: 0, from_ratio: 0.0 }
    }

    /// Begins a group of `count` requests.
    pub fn begin(&mut self, count: usize) {
        self.remaining = count as u64;
        self.from_ratio = 0.0;
    }

    /// Continues with a group that is longer than known before: `count` requests have no offset yet.
    pub(super) fn resume(&mut self, count: usize) {
        self.remaining = count as u64;
    }

    /// Offset of the next request within an interval of `resolution_ns`. Offsets never decrease and are less than
    /// `resolution_ns`.
    pub fn next_ns(&mut self, resolution_ns: u64) -> u64 {
        let draw: f64 = self.rng.random();
        let step = 1.0 - (1.0 - draw).powf(1.0 / self.remaining.max(1) as f64);
        self.from_ratio += (1.0 - self.from_ratio) * step;
        self.remaining = self.remaining.saturating_sub(1);
        ((self.from_ratio * resolution_ns as f64) as u64).min(resolution_ns.saturating_sub(1))
    }
}
