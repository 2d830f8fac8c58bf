//! Times of windows: rare enough for the budget, and random, so that they coincide with no period of the server.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

pub const WINDOW: Duration = Duration::from_secs(1);
/// A window of one second takes at most one second in five.
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(5);
/// With a longer period, windows do not represent the present.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(120);
/// The first window waits until the cost of counting is known.
const FIRST: Duration = Duration::from_millis(400);
/// Requests that began in the window are timed for this long after its gate is shut.
pub const DRAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct WindowTimes {
    period: Duration,
    next_ns: u64,
    period_ends_ns: u64,
    random: ChaCha8Rng,
    is_suspended: bool,
}

impl WindowTimes {
    /// A schedule whose first window opens soon after `now_ns`.
    pub fn new(now_ns: u64, seed: u64) -> Self {
        WindowTimes {
            period: SHORTEST_PERIOD,
            next_ns: now_ns + FIRST.as_nanos() as u64,
            period_ends_ns: now_ns + SHORTEST_PERIOD.as_nanos() as u64,
            random: ChaCha8Rng::seed_from_u64(seed),
            is_suspended: false,
        }
    }

    pub fn next_ns(&self) -> Option<u64> {
        (!self.is_suspended).then_some(self.next_ns)
    }

    /// Chooses a random time in the next period for the next window.
    pub fn plan_next(&mut self, now_ns: u64) {
        let period_ns = self.period.as_nanos() as u64;
        let free_ns = period_ns.saturating_sub((WINDOW + DRAIN).as_nanos() as u64);
        let begins_ns = self.period_ends_ns.max(now_ns);
        self.next_ns = begins_ns + self.random.random_range(0..free_ns.max(1));
        self.period_ends_ns = begins_ns + period_ns;
    }

    /// Adapts the period. `always`: the cost of counting; `window`: the additional cost within a window, each as a
    /// share of the server's CPU time. `budget`: the limit of their average sum.
    pub fn adapt(&mut self, always: f64, window: f64, budget: f64) {
        // Aims at 80 % of the budget, because the calibration is not more accurate than that.
        let left = 0.8 * budget - always;
        if !(window > 0.0 && window.is_finite()) {
            return;
        }
        let share = left / window;
        let wanted = WINDOW.as_secs_f64() / share.max(1e-9);
        self.is_suspended = left <= 0.0 || wanted > LONGEST_PERIOD.as_secs_f64();
        if !self.is_suspended {
            self.period = Duration::from_secs_f64(wanted.max(SHORTEST_PERIOD.as_secs_f64()));
        }
    }

    /// The current period; `None` while suspended.
    pub fn period(&self) -> Option<Duration> {
        (!self.is_suspended).then_some(self.period)
    }
}
