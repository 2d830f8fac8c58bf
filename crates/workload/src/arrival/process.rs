use super::RateSeries;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use record::LoadShare;

/// How a series is turned into arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesPlan {
    /// Mean arrivals per second over the whole duration.
    pub mean_rate_per_sec: f64,
    /// Duration of the whole series: its own span, or less to play a long series faster.
    pub duration_ns: u64,
    /// The same seed gives the same arrivals.
    pub seed: u64,
    /// The share of the arrivals to generate. All shares are independent processes whose union is the whole.
    pub share: LoadShare,
}

/// The intended times of one share's arrivals, in nanoseconds since the start. They never decrease, and each is less
/// than the duration.
#[derive(Debug, Clone)]
pub struct ArrivalTimes<'a> {
    counts: &'a [u32],
    per_count: f64,
    interval_ns: f64,
    duration_ns: u64,
    rng: Box<ChaCha8Rng>,
    position: usize,
    /// Expected arrivals of the current interval that have already been used.
    used: f64,
}

impl RateSeries {
    /// The arrivals that follow this series' shape.
    pub fn arrivals(&self, plan: SeriesPlan) -> ArrivalTimes<'_> {
        let expected = plan.mean_rate_per_sec * plan.duration_ns as f64 / 1e9 * plan.share.fraction();
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
        rng.set_stream(u64::from(plan.share.index));
        ArrivalTimes {
            counts: &self.counts,
            per_count: expected / self.total() as f64,
            interval_ns: plan.duration_ns as f64 / self.counts.len() as f64,
            duration_ns: plan.duration_ns,
            rng: Box::new(rng),
            position: 0,
            used: 0.0,
        }
    }
}

impl Iterator for ArrivalTimes<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // The cumulative rate is measured in expected arrivals, so the distance to the next arrival is exponential
        // with mean 1.
        let mut distance: f64 = Exp1.sample(&mut self.rng);
        loop {
            let expected = f64::from(*self.counts.get(self.position)?) * self.per_count;
            let left = expected - self.used;
            if distance < left {
                self.used += distance;
                // The time is computed from the interval's index, so that rounding errors do not add up over millions
                // of intervals.
                let at_ns = (self.position as f64 + self.used / expected) * self.interval_ns;
                return Some((at_ns as u64).min(self.duration_ns - 1));
            }
            distance -= left.max(0.0);
            self.position += 1;
            self.used = 0.0;
        }
    }
}
