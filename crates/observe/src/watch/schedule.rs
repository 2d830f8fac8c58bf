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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_their_period_on_average_and_do_not_overlap() {
        let mut schedule = WindowTimes::new(0, 7);
        let mut ends = Vec::new();
        for _ in 0..200 {
            let opens = schedule.next_ns().unwrap();
            assert!(ends.last().is_none_or(|end| opens >= *end), "windows overlap");
            let ends_at = opens + 1_050_000_000;
            ends.push(ends_at);
            schedule.plan_next(ends_at);
        }
        let mean = (ends[199] - ends[0]) as f64 / 199.0 / 1e9;
        assert!((4.5..6.0).contains(&mean), "a window each {mean} s");
    }

    #[test]
    fn expensive_windows_become_rare_and_finally_stop() {
        let mut schedule = WindowTimes::new(0, 7);
        schedule.adapt(0.004, 0.01, 0.01);
        assert_eq!(schedule.period(), Some(SHORTEST_PERIOD));
        schedule.adapt(0.004, 0.04, 0.01);
        assert_eq!(schedule.period(), Some(Duration::from_secs(10)));
        schedule.adapt(0.009, 0.04, 0.01);
        assert_eq!((schedule.period(), schedule.next_ns()), (None, None));
        schedule.adapt(0.001, f64::NAN, 0.01);
        assert_eq!(schedule.period(), None, "nonsense changes nothing");
    }
}
