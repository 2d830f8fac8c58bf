//! What happened between two readings, per second.

use super::reading::{ClassTotals, Log2Histogram, Reading};
use serde::Serialize;

/// One size class between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ClassRates {
    /// Requests answered per second.
    pub requests_per_sec: f64,
    /// Bytes of request read per second.
    pub bytes_in_per_sec: f64,
    /// Bytes of response written per second.
    pub bytes_out_per_sec: f64,
    /// CPU microseconds per request.
    pub cpu_us_per_request: Option<f64>,
    /// Elapsed microseconds per request, first read to the departure of the last segment.
    pub elapsed_us_per_request: Option<f64>,
    /// Upper end of the bucket of the median of elapsed times, microseconds.
    pub elapsed_p50_at_most_us: Option<f64>,
    /// The same of the 99th percentile.
    pub elapsed_p99_at_most_us: Option<f64>,
}

/// Between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Length in nanoseconds.
    pub duration_ns: u64,
    /// All requests.
    pub all: ClassRates,
    /// By class.
    pub classes: Vec<ClassRates>,
    /// Connections established per second.
    pub accepted_per_sec: f64,
    /// Connections closed per second.
    pub closed_per_sec: f64,
    /// CPU time of the server's processes, in CPUs.
    pub server_cpus: f64,
    /// CPU time charged to requests, in CPUs.
    pub request_cpus: f64,
    /// CPU time of this process, in CPUs.
    pub own_cpus: f64,
    /// Context switches of the server per second.
    pub switches_per_sec: f64,
}

impl Rates {
    /// From `earlier` to `now`.
    pub fn between(earlier: &Reading, now: &Reading) -> Self {
        let duration_ns = now.at_ns.saturating_sub(earlier.at_ns);
        let per_sec = |now: u64, earlier: u64| ratio(now.saturating_sub(earlier) as f64 * 1e9, duration_ns as f64);
        let cpus = |now: i64, earlier: i64| ratio((now - earlier).max(0) as f64, duration_ns as f64);
        Rates {
            duration_ns,
            all: class(&earlier.all(), &now.all(), duration_ns),
            classes: now
                .classes
                .iter()
                .enumerate()
                .map(|(index, later)| {
                    let none = ClassTotals::default();
                    class(earlier.classes.get(index).unwrap_or(&none), later, duration_ns)
                })
                .collect(),
            accepted_per_sec: per_sec(now.connections.accepted, earlier.connections.accepted),
            closed_per_sec: per_sec(now.connections.closed, earlier.connections.closed),
            server_cpus: cpus(now.cpu.group_ns as i64, earlier.cpu.group_ns as i64),
            request_cpus: cpus(now.cpu.requests_ns, earlier.cpu.requests_ns),
            own_cpus: cpus(now.cost.own_cpu_ns as i64, earlier.cost.own_cpu_ns as i64),
            switches_per_sec: per_sec(now.cpu.switches, earlier.cpu.switches),
        }
    }
}

fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

fn class(earlier: &ClassTotals, now: &ClassTotals, duration_ns: u64) -> ClassRates {
    // A request in progress may move to a larger class while its response grows, so a class may seem to shrink.
    let grown = |now: u64, earlier: u64| now.saturating_sub(earlier);
    let requests = grown(now.requests, earlier.requests);
    let timed = grown(now.timed, earlier.timed);
    let elapsed: Log2Histogram = now.elapsed.since(&earlier.elapsed);
    let per_sec = |count: u64| ratio(count as f64 * 1e9, duration_ns as f64);
    let quantile = |q| elapsed.quantile_at_most_ns(q).map(|ns| ns as f64 / 1e3);
    ClassRates {
        requests_per_sec: per_sec(requests),
        bytes_in_per_sec: per_sec(grown(now.bytes_in, earlier.bytes_in)),
        bytes_out_per_sec: per_sec(grown(now.bytes_out, earlier.bytes_out)),
        cpu_us_per_request: (requests > 0).then(|| (now.cpu_ns - earlier.cpu_ns).max(0) as f64 / 1e3 / requests as f64),
        elapsed_us_per_request: (timed > 0)
            .then(|| grown(now.elapsed_ns, earlier.elapsed_ns) as f64 / 1e3 / timed as f64),
        elapsed_p50_at_most_us: quantile(0.5),
        elapsed_p99_at_most_us: quantile(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_by_time() {
        let earlier = Reading { at_ns: 0, classes: vec![ClassTotals::default()], ..Reading::default() };
        let mut now = Reading { at_ns: 2_000_000_000, ..earlier.clone() };
        now.classes[0].requests = 10;
        now.classes[0].cpu_ns = 50_000;
        now.connections.accepted = 4;
        let rates = Rates::between(&earlier, &now);
        assert_eq!(rates.all.requests_per_sec, 5.0);
        assert_eq!(rates.all.cpu_us_per_request, Some(5.0));
        assert_eq!(rates.accepted_per_sec, 2.0);
        assert_eq!(rates.all.elapsed_us_per_request, None);
    }

    #[test]
    fn two_readings_of_one_moment_have_no_rate() {
        let reading = Reading::default();
        assert_eq!(Rates::between(&reading, &reading).all.requests_per_sec, 0.0);
    }
}
