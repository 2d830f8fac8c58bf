use super::{ConnectionGrouping, Plan, PlanStep, ReplayOptions, ReplayPace};
use crate::WorkloadError;
use crate::trace::TraceReader;

/// Maximum number of kept times. For a longer log every second, fourth, ... time is kept.
const KEPT: usize = 1 << 16;
/// Maximum ratio between a window's speed and the speed that the mean rates suggest.
const REACH: f64 = 1e6;

/// The outline of a log, in bounded memory.
#[derive(Debug, Clone, PartialEq)]
pub struct LogShape {
    /// Times of requests 0, `every`, `2 * every`, ... since the replay's start, at speed 1.
    times_ns: Vec<u64>,
    every: u64,
    /// Requests read.
    pub requests: u64,
    round_ns: u64,
    /// The first target that was answered with 200 (or the first of a log without statuses), in origin form, for a
    /// check before a run. Untrusted text.
    pub answered_target: Option<String>,
}

impl LogShape {
    /// Reads a log to its end, or up to `most` requests.
    pub fn read(reader: TraceReader, most: u64) -> Result<LogShape, WorkloadError> {
        let defaults = ReplayOptions::default();
        let mut plan = Plan::new(
            reader,
            ReplayOptions {
                pace: ReplayPace::Original { speed: 1.0 },
                grouping: ConnectionGrouping::Never,
                held_limit: defaults.held_limit.min(usize::try_from(most).unwrap_or(usize::MAX)),
                ..defaults
            },
        );
        let mut shape = LogShape { times_ns: Vec::new(), every: 1, requests: 0, round_ns: 1, answered_target: None };
        while shape.requests < most {
            let Some(step) = plan.next() else {
                // A round lasts until the end of the last second (or of the log's resolution).
                shape.round_ns = plan.round_ns().max(1);
                break;
            };
            let PlanStep::Request(request) = step? else { continue };
            if shape.answered_target.is_none()
                && request.method() == b"GET"
                && matches!(request.status, None | Some(200))
            {
                shape.answered_target = std::str::from_utf8(request.target())
                    .ok()
                    .filter(|target| target.starts_with('/'))
                    .map(str::to_string);
            }
            if shape.times_ns.len() == KEPT && shape.requests.is_multiple_of(shape.every) {
                let mut position = 0;
                shape.times_ns.retain(|_| {
                    position += 1;
                    position % 2 == 1
                });
                shape.every *= 2;
            }
            if shape.requests.is_multiple_of(shape.every) {
                shape.times_ns.push(request.intended_ns);
            }
            shape.round_ns = request.intended_ns.max(1);
            shape.requests += 1;
        }
        Ok(shape)
    }

    /// Number of times that outline the log, at most 65,536.
    pub fn kept_times(&self) -> usize {
        self.times_ns.len()
    }

    /// Log time of one round, from the replay's start to the end of the last request's second (or of the log's
    /// resolution).
    pub fn round_ns(&self) -> u64 {
        self.round_ns
    }

    /// Requests per second of log time.
    pub fn mean_rate_per_sec(&self) -> f64 {
        self.requests as f64 * 1e9 / self.round_ns as f64
    }

    /// Requests in the first `log_ns`, if the log is restarted at its end.
    fn requests_until(&self, log_ns: f64) -> f64 {
        let round = self.round_ns as f64;
        let rounds = (log_ns / round).floor();
        let within = log_ns - rounds * round;
        let after = self.times_ns.partition_point(|time| (*time as f64) < within);
        let Some(before) = after.checked_sub(1) else { return rounds * self.requests as f64 };
        let at = |index: usize| match self.times_ns.get(index) {
            Some(time) => (*time as f64, (index as u64 * self.every) as f64),
            None => (round, self.requests as f64),
        };
        let ((low, few), (high, many)) = (at(before), at(after));
        rounds * self.requests as f64 + few + (many - few) * ((within - low) / (high - low).max(1.0)).min(1.0)
    }

    /// The speed at which a window of `length_ns` after a warm-up of `warmup_ns` has `rate_per_sec` requests on
    /// average, if the log is restarted at its end.
    pub fn speed_for(&self, rate_per_sec: f64, warmup_ns: u64, length_ns: u64) -> f64 {
        let (from, to) = (warmup_ns as f64, warmup_ns as f64 + length_ns.max(1) as f64);
        let wanted = (rate_per_sec * (to - from) / 1e9).max(1.0);
        let mean = wanted * 1e9 / (to - from) / self.mean_rate_per_sec().max(1e-9);
        let (mut low, mut high) = (mean / REACH, mean * REACH);
        // Bisects to the last digit of the speed.
        for _ in 0..80 {
            let speed = (low * high).sqrt();
            let found = self.requests_until(to * speed) - self.requests_until(from * speed);
            *if found < wanted { &mut low } else { &mut high } = speed;
        }
        high
    }
}
