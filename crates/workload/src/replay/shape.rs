//! The distribution of a log's requests over time, in outline: its mean rate, and how fast it must be replayed so that
//! a part of given length offers a given rate.

use crate::trace::{TraceError, TraceReader};

/// Times kept at most; a longer log keeps every second, fourth, ... one.
const KEPT: usize = 1 << 16;

/// The outline of a log, in bounded memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Log time of request 0, `every`, `2 * every`, ..., never decreasing.
    times_ns: Vec<i64>,
    every: u64,
    /// Requests read.
    pub requests: u64,
    last_ns: i64,
    resolution_ns: u64,
    /// The first target that was answered with 200 (or of a log without statuses), in origin form: one to request
    /// before a run. Untrusted text.
    pub answered_target: Option<String>,
}

impl Shape {
    /// Reads a log to its end, or to `most` requests.
    ///
    /// # Errors
    ///
    /// A log that cannot be read further.
    pub fn read(reader: &mut TraceReader, most: u64) -> Result<Shape, TraceError> {
        let mut shape = Shape {
            times_ns: Vec::new(),
            every: 1,
            requests: 0,
            last_ns: i64::MIN,
            resolution_ns: 1,
            answered_target: None,
        };
        while shape.requests < most {
            let Some(entry) = reader.next_entry()? else { break };
            if shape.answered_target.is_none() && entry.method == b"GET" && matches!(entry.status, None | Some(200)) {
                shape.answered_target =
                    std::str::from_utf8(entry.target).ok().filter(|target| target.starts_with('/')).map(str::to_string);
            }
            // A time that goes back is moved up, as in a plan without a sorting window.
            shape.last_ns = shape.last_ns.max(entry.time_ns);
            shape.resolution_ns = entry.resolution_ns;
            if shape.requests.is_multiple_of(shape.every) {
                if shape.times_ns.len() == KEPT {
                    let mut position = 0;
                    shape.times_ns.retain(|_| {
                        position += 1;
                        position % 2 == 1
                    });
                    shape.every *= 2;
                }
                if shape.requests.is_multiple_of(shape.every) {
                    shape.times_ns.push(shape.last_ns);
                }
            }
            shape.requests += 1;
        }
        Ok(shape)
    }

    /// Log time of one round: from the first request to the end of the last one's second (or whatever the log's resolution
    /// is).
    pub fn round_ns(&self) -> u64 {
        let first = self.times_ns.first().copied().unwrap_or(0);
        self.last_ns.max(first).abs_diff(first).saturating_add(self.resolution_ns).max(1)
    }

    /// Requests per second of log time.
    pub fn mean_rate_per_sec(&self) -> f64 {
        self.requests as f64 * 1e9 / self.round_ns() as f64
    }

    /// Log time that the first `requests` take, if the log is begun again at its end.
    fn time_of(&self, requests: f64) -> f64 {
        let round = self.round_ns() as f64;
        let rounds = (requests / self.requests.max(1) as f64).floor();
        let within = requests - rounds * self.requests as f64;
        let at = within / self.every as f64;
        let first = self.times_ns.first().copied().unwrap_or(0);
        let offset = |index: usize| self.times_ns.get(index).map_or(round, |time| time.abs_diff(first) as f64);
        let (low, high) = (offset(at as usize), offset(at as usize + 1));
        rounds * round + low + (high - low).max(0.0) * at.fract()
    }

    /// The speed at which the first `length_ns` of the replay have `rate_per_sec` requests on average, if the log is
    /// begun again at its end.
    pub fn speed_for(&self, rate_per_sec: f64, length_ns: u64) -> f64 {
        let length = length_ns.max(1) as f64;
        let requests = (rate_per_sec * length / 1e9).max(1.0);
        (self.time_of(requests) / length).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Format;

    /// Requests at these seconds of one day.
    fn shape(seconds: impl IntoIterator<Item = u32>) -> Shape {
        let mut text = String::new();
        for second in seconds {
            let (hour, minute) = (second / 3600, second / 60 % 60);
            text.push_str(&format!(
                "10.0.0.1 - - [01/May/2015:{hour:02}:{minute:02}:{:02} +0000] \"GET /a HTTP/1.1\" 200 5\n",
                second % 60
            ));
        }
        let source = Box::new(std::io::Cursor::new(text.into_bytes()));
        let mut reader = TraceReader::from_reader("test".into(), source, &Format::Auto).unwrap();
        Shape::read(&mut reader, u64::MAX).unwrap()
    }

    #[test]
    fn an_even_log_has_one_rate() {
        let shape = shape(0..1000);
        assert_eq!(shape.requests, 1000);
        assert_eq!(shape.answered_target.as_deref(), Some("/a"));
        assert!((shape.mean_rate_per_sec() - 1.0).abs() < 1e-9);
        for (rate, length_s) in [(10.0, 5), (250.0, 2), (1.0, 4000)] {
            let speed = shape.speed_for(rate, length_s * 1_000_000_000);
            assert!((speed / rate - 1.0).abs() < 0.03, "{rate}: {speed}");
        }
    }

    #[test]
    fn a_quiet_beginning_is_played_faster() {
        // 100 requests in 1,000 s, then 900 in 100 s.
        let shape = shape((0..100).map(|n| n * 10).chain((0..900).map(|n| 1000 + n / 9)));
        let speed = shape.speed_for(50.0, 1_000_000_000);
        assert!((speed - 500.0).abs() < 10.0, "50 requests lie in the first 500 s: {speed}");
    }

    #[test]
    fn a_long_log_is_outlined_in_bounded_memory() {
        let shape = shape((0..80_000).chain((0..80_000).map(|_| 80_000)));
        assert!(shape.times_ns.len() <= KEPT && shape.every == 4, "{} {}", shape.times_ns.len(), shape.every);
        let speed = shape.speed_for(40_000.0, 1_000_000_000);
        assert!((speed / 40_000.0 - 1.0).abs() < 0.01, "{speed}");
    }
}
