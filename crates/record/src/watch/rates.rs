use super::counters::Counter;
use super::reading::{ClassTotals, Reading};
use serde::{Deserialize, Serialize};

/// One size class between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ClassRates {
    /// Requests answered per second.
    pub requests_per_sec: f64,
    /// Request bytes read per second.
    pub bytes_in_per_sec: f64,
    /// Response bytes written per second.
    pub bytes_out_per_sec: f64,
    /// CPU microseconds per request.
    pub cpu_us_per_request: Option<f64>,
    /// Elapsed microseconds per request, from the first read until the last segment was sent.
    pub elapsed_us_per_request: Option<f64>,
    /// Upper bound of the histogram bucket that holds the median elapsed time, microseconds.
    pub elapsed_p50_at_most_us: Option<f64>,
    /// Upper bound of the histogram bucket that holds the 99th percentile of the elapsed times, microseconds.
    pub elapsed_p99_at_most_us: Option<f64>,
}

/// Rates between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Rates {
    /// Time between the two readings, nanoseconds.
    pub duration_ns: u64,
    /// Rates of all requests, per second of the time in which they were counted; absent if none was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<ClassRates>,
    /// Rates of each size class.
    pub classes: Vec<ClassRates>,
    /// Connections established per second; absent if not measured, like the following figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_per_sec: Option<f64>,
    /// Connections closed per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_per_sec: Option<f64>,
    /// CPU time of the server's processes, in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpus: Option<f64>,
    /// CPU time charged to requests, in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cpus: Option<f64>,
    /// CPU time of this process, in CPUs.
    pub own_cpus: f64,
}

impl Rates {
    /// The rates from `earlier` to `now`.
    pub fn between(earlier: &Reading, now: &Reading) -> Self {
        let duration_ns = now.at_ns.saturating_sub(earlier.at_ns);
        // Older recordings do not have the age of the watch.
        let counted_ns = match (earlier.counted_ns, now.counted_ns) {
            (None, None) => duration_ns,
            _ => now.counted_time_ns().saturating_sub(earlier.counted_time_ns()),
        };
        let is_counted = !now.classes.is_empty() && (counted_ns > 0 || duration_ns == 0);
        let per_sec = |now: u64, earlier: u64| ratio(now.saturating_sub(earlier) as f64 * 1e9, duration_ns as f64);
        let cpus = |now: i64, earlier: i64| ratio((now - earlier).max(0) as f64, duration_ns as f64);
        let rate = |counter| Some(per_sec(now.count(counter)?, earlier.count(counter)?));
        let server = earlier.cpu.zip(now.cpu);
        let charged = earlier.charged().zip(now.charged());
        Rates {
            duration_ns,
            all: is_counted.then(|| class(&now.all().since(&earlier.all()), counted_ns)),
            classes: if is_counted {
                now.classes_since(earlier).iter().map(|gained| class(gained, counted_ns)).collect()
            } else {
                Vec::new()
            },
            accepted_per_sec: rate(Counter::Accepted),
            closed_per_sec: rate(Counter::Closed),
            server_cpus: server.map(|(before, after)| cpus(after.group_ns as i64, before.group_ns as i64)),
            request_cpus: charged.map(|(before, after)| cpus(after.requests_ns, before.requests_ns)),
            own_cpus: cpus(now.cost.own_cpu_ns as i64, earlier.cost.own_cpu_ns as i64),
        }
    }
}

fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

fn class(gained: &ClassTotals, duration_ns: u64) -> ClassRates {
    let (requests, timed) = (gained.requests, gained.timed);
    let per_sec = |count: u64| ratio(count as f64 * 1e9, duration_ns as f64);
    let quantile = |q| gained.elapsed.quantile_at_most_ns(q).map(|ns| ns as f64 / 1e3);
    ClassRates {
        requests_per_sec: per_sec(requests),
        bytes_in_per_sec: per_sec(gained.bytes_in),
        bytes_out_per_sec: per_sec(gained.bytes_out),
        cpu_us_per_request: (requests > 0).then(|| gained.cpu_ns as f64 / 1e3 / requests as f64),
        elapsed_us_per_request: (timed > 0).then(|| gained.elapsed_ns as f64 / 1e3 / timed as f64),
        elapsed_p50_at_most_us: quantile(0.5),
        elapsed_p99_at_most_us: quantile(0.99),
    }
}
