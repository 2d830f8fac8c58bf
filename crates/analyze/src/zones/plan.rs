//! The rate to plan with.

use super::{PointFinding, PointPlace, Spread, SweepFindings};
use record::Estimate;

impl PointFinding {
    /// The estimate with its interval.
    pub fn estimated(&self) -> Option<Estimate> {
        let interval = self.low.zip(self.high);
        Some(Estimate::new(self.estimate?, interval, self.confidence, self.n_repeats as usize))
    }
}

impl SweepFindings {
    /// The highest rate that was sent and answered in time.
    pub fn highest_held(&self) -> Option<f64> {
        let level = self.level(self.failure_point.held?)?;
        let least = |rate: f64, spread: Option<Spread>| spread.map_or(rate, |spread| rate.min(spread.median));
        Some(least(least(level.load, level.sent_per_sec), level.throughput_per_sec))
    }

    /// The rate to plan with, and why: the yield point, or the highest rate that held if that is lower.
    pub fn plan(&self) -> Option<(Estimate, String)> {
        let held_per_sec = self.highest_held()?;
        let failure_point = &self.failure_point;
        match self.yield_point.estimated() {
            Some(found) if found.value < held_per_sec => Some((found, self.yield_point.reason.clone())),
            found => {
                let low =
                    found.and_then(|found| found.low).into_iter().chain(failure_point.low).fold(held_per_sec, f64::min);
                let most = self.capacity.as_ref().and_then(|capacity| capacity.high.or(capacity.estimate));
                let high = failure_point.failed.map(|failed| failed.min(most.unwrap_or(failed)).max(held_per_sec));
                let interval = high.map(|high| (low, high));
                let n = failure_point.n_repeats as usize;
                let why = match (failure_point.failed, failure_point.place) {
                    (Some(_), _) => "the highest rate that was answered in time",
                    (None, PointPlace::Beyond) => "the highest rate that was offered: the server may take more",
                    (None, _) => "the highest rate that certainly was answered in time",
                };
                Some((Estimate::new(held_per_sec, interval, failure_point.confidence, n), why.into()))
            }
        }
    }
}
