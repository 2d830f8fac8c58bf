//! How many requests an idle server works on at a time, whatever the number of connections.

use super::NEARLY_FULL;
use super::evidence::{Evidence, typical};
use super::rules::{LEAST_REQUESTS, delayed_ack};
use analyze::point::answers;
use record::units::{format_nanos, format_si, grouped};
use record::{Point, names};

/// Least number of requests in progress per request that the server works on.
pub const LEAST_PER_SLOT: f64 = 2.0;
/// Requests in flight per connection (Little's law) from which requests are pipelined.
const PIPELINED_REQUESTS: f64 = 1.5;

/// Concurrency of an idle server, whatever the number of connections.
pub struct Concurrency {
    /// Throughput times the time of one request alone.
    pub count: f64,
    throughput: f64,
    alone_s: f64,
    /// Whether the delayed acknowledgement of each answer is not part of that time.
    without_ack: bool,
}

impl Concurrency {
    /// The concurrency in words: `about 4 requests at a time (768/s x 5.21 ms, the time of one alone, = 4.0)`.
    pub fn phrase(&self) -> String {
        let rounded = self.count.round().max(1.0);
        format!(
            "about {} at a time ({}/s x {}, the time of one alone{}, = {:.1})",
            if rounded == 1.0 { "one request".into() } else { format!("{} requests", grouped(rounded)) },
            format_si(self.throughput),
            format_nanos(self.alone_s * 1e9),
            if self.without_ack { " without the delayed acknowledgement" } else { "" },
            self.count
        )
    }

    /// Time per request of the step that would be the limit if it served one request at a time: `1.3 ms`.
    pub fn each(&self) -> String {
        format_nanos(1e9 / self.throughput)
    }
}

/// Concurrency of an idle server, by Little's law.
pub fn at_a_time(evidence: &Evidence<'_>) -> Option<Concurrency> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let is_nearly_full = [names::CLIENT_UTILISATION, names::SERVER_CPU_BUSY, names::SERVER_BUSIEST_THREAD]
        .iter()
        .any(|name| typical(&points, name).is_some_and(|used| used >= NEARLY_FULL));
    if evidence.is_saturated(&points) != Some(false) || is_nearly_full || (answers(&points) as f64) < LEAST_REQUESTS {
        return None;
    }
    // Little's law needs the mean; the median is the fallback. The minimum over points excludes disturbances.
    let mean_us = |point: &&Point| point.value(names::RESPONSE_MEAN).or(point.value(names::RESPONSE_P50));
    // While an answer waits for an acknowledgement, the server works on others.
    let acknowledged_us = delayed_ack::gap(evidence).map(|gap| gap.least_us);
    let alone = lowest.iter().filter_map(mean_us).filter(|us| us.is_finite());
    let alone_us = alone.reduce(f64::min)? - acknowledged_us.unwrap_or(0.0);
    let alone_s = Some(alone_us * 1e-6).filter(|alone| *alone > 0.0)?;
    let throughput = typical(&points, names::THROUGHPUT)?;
    let at_once = throughput * alone_s;
    // Pipelined requests wait for each other even at the lowest load, so their response time is not that of a single
    // request.
    let is_pipelined = |point: &&Point| {
        let rate = point.value(names::THROUGHPUT);
        rate.is_some_and(|rate| rate * alone_s > PIPELINED_REQUESTS * point.connections as f64)
    };
    let loads = points.iter().map(|point| point.connections as f64);
    if at_once < 0.5 || loads.reduce(f64::max)? < LEAST_PER_SLOT * at_once || lowest.iter().any(is_pipelined) {
        return None;
    }
    Some(Concurrency { count: at_once, throughput, alone_s, without_ack: acknowledged_us.is_some() })
}
