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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::PlanStep;
    use crate::trace::LogFormat;

    fn text(seconds: impl IntoIterator<Item = u32>) -> String {
        let line = |second: u32| {
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            let time = format!("01/May/2015:{hour:02}:{minute:02}:{second:02} +0000");
            format!("10.0.0.1 - - [{time}] \"GET /a HTTP/1.1\" 200 5\n")
        };
        seconds.into_iter().map(line).collect()
    }

    fn reader(text: &str) -> TraceReader {
        let source = Box::new(std::io::Cursor::new(text.to_string()));
        TraceReader::from_reader("test".into(), source, &LogFormat::Auto).unwrap()
    }

    fn shape(seconds: impl IntoIterator<Item = u32>) -> LogShape {
        LogShape::read(reader(&text(seconds)), u64::MAX).unwrap()
    }

    /// Requests that a replay sends between two times, if it restarts the log at its end as a sweep does.
    fn sent(shape: &LogShape, text: &str, speed: f64, from_ns: u64, to_ns: u64) -> f64 {
        let (mut begin_ns, mut sent) = (0, 0);
        while begin_ns < to_ns {
            let pace = ReplayPace::Original { speed };
            let options = ReplayOptions { pace, seed: begin_ns, ..ReplayOptions::default() };
            let mut last_ns = begin_ns;
            for step in Plan::new(reader(text), options) {
                if let PlanStep::Request(request) = step.unwrap() {
                    last_ns = begin_ns + request.intended_ns;
                    sent += u64::from((from_ns..to_ns).contains(&last_ns));
                }
            }
            begin_ns += (shape.round_ns() as f64 / speed) as u64;
            assert!(begin_ns >= last_ns, "a round begins before the one before it ends");
        }
        sent as f64
    }

    #[test]
    fn the_window_has_the_requested_rate_in_a_log_of_whole_seconds() {
        let second_long = |requests: u32| text((0..requests).map(|n| n / 1000));
        let busy_end = text((0..100).map(|n| n * 10).chain((0..9000).map(|n| 1000 + n / 90)));
        // Lines in the order in which Apache writes them: the first requests began later than some of the next.
        let late = text((0..2000).map(|n| if n % 10 == 9 { n / 20 } else { 50 + n / 20 }));
        for (text, rate, warmup_s, length_s) in [
            (second_long(10_000), 500.0, 0.0, 1.0),
            (second_long(10_000), 5000.0, 1.0, 1.0),
            (text((0..25_000).map(|n| n / 5000)), 2000.0, 0.0, 2.5),
            (second_long(1000), 100.0, 0.5, 20.0),
            (busy_end.clone(), 400.0, 0.5, 1.0),
            (busy_end, 4000.0, 2.0, 1.0),
            (late, 1000.0, 0.2, 1.0),
        ] {
            let shape = LogShape::read(reader(&text), u64::MAX).unwrap();
            let (warmup_ns, length_ns) = ((warmup_s * 1e9) as u64, (length_s * 1e9) as u64);
            let speed = shape.speed_for(rate, warmup_ns, length_ns);
            let (sent, asked) = (sent(&shape, &text, speed, warmup_ns, warmup_ns + length_ns), rate * length_s);
            assert!((sent - asked).abs() < 5.0 * asked.sqrt(), "{sent} of {asked} at {rate}/s, {speed} times as fast");
        }
    }

    #[test]
    fn a_log_of_one_instant_has_a_rate() {
        let shape = shape([5; 10]);
        assert!((shape.speed_for(20.0, 0, 1_000_000_000) - 2.0).abs() < 0.5);
        assert!(shape.speed_for(1e-3, 0, 1).is_finite());
    }

    #[test]
    fn an_even_log_has_one_rate() {
        let shape = shape(0..1000);
        assert_eq!(shape.requests, 1000);
        assert_eq!(shape.answered_target.as_deref(), Some("/a"));
        assert!((shape.mean_rate_per_sec() - 1.0).abs() < 1e-9);
        for (rate, length_s) in [(10.0, 5), (250.0, 2), (1.0, 4000)] {
            let speed = shape.speed_for(rate, 0, length_s * 1_000_000_000);
            assert!((speed / rate - 1.0).abs() < 0.03, "{rate}: {speed}");
        }
    }

    #[test]
    fn a_long_log_is_outlined_in_bounded_memory() {
        let shape = shape((0..80_000).chain((0..80_000).map(|_| 80_000)));
        assert!(shape.times_ns.len() <= KEPT && shape.every == 4, "{} {}", shape.times_ns.len(), shape.every);
        let speed = shape.speed_for(40_000.0, 0, 1_000_000_000);
        assert!((speed / 40_000.0 - 1.0).abs() < 0.01, "{speed}");
    }
}
