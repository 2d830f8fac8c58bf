//! The number of requests that an idle server serves at a time, and the rule `delayed-ack`.

use super::command::server_pid;
use super::evidence::{Evidence, typical};
use super::judge::{Finding, finding};
use super::rules::*;
use crate::statistics::{median, range};
use record::units::{format_nanos, format_si, grouped};
use record::{Point, names};

/// How many requests an idle server works on at a time, whatever the number of connections.
pub struct AtATime {
    /// Throughput times the time of one request alone.
    pub count: f64,
    throughput: f64,
    alone_s: f64,
}

impl AtATime {
    /// `about 4 requests at a time (768/s x 5.21 ms, the time of one alone, = 4.0)`.
    pub fn words(&self) -> String {
        let rounded = self.count.round().max(1.0);
        format!(
            "about {} at a time ({}/s x {}, the time of one alone, = {:.1})",
            if rounded == 1.0 { "one request".into() } else { format!("{} requests", grouped(rounded)) },
            format_si(self.throughput),
            format_nanos(self.alone_s * 1e9),
            self.count
        )
    }

    /// Time of one thing that each request needs by itself, if that is the limit: `1.3 ms`.
    pub fn each(&self) -> String {
        format_nanos(1e9 / self.throughput)
    }
}

/// Number of requests that an idle server serves at a time, whatever the number of connections.
pub fn at_a_time(evidence: &Evidence<'_>) -> Option<AtATime> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let responses: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.completed()));
    if evidence.is_saturated(&points) != Some(false) || (responses as f64) < LEAST_REQUESTS {
        return None;
    }
    // Little's law needs means; the median is the fallback. A disturbance makes a single request longer.
    let mean_us = |point: &&Point| point.value(names::RESPONSE_MEAN).or(point.value(names::RESPONSE_P50));
    let alone = lowest.iter().filter_map(mean_us).filter(|us| us.is_finite());
    let alone_s = alone.reduce(f64::min).filter(|us| *us > 0.0)? * 1e-6;
    let throughput = typical(&points, names::THROUGHPUT)?;
    let at_once = throughput * alone_s;
    // Requests of one connection that wait for each other at the lowest load, too, do not show the time of a single
    // one.
    let is_pipelined = |point: &&Point| {
        let rate = point.value(names::THROUGHPUT);
        rate.is_some_and(|rate| rate * alone_s > PIPELINED_REQUESTS * point.connections as f64)
    };
    let loads = points.iter().map(|point| point.connections as f64);
    if at_once < 0.5 || loads.reduce(f64::max)? < 2.0 * at_once || lowest.iter().any(is_pipelined) {
        return None;
    }
    Some(AtATime { count: at_once, throughput, alone_s })
}

/// A small write waits until the client acknowledges the write before it, 40 ms later at every load.
pub fn delayed_ack(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let from = evidence.strained_from().unwrap_or(f64::INFINITY);
    let loads = sweep.levels.iter().map(|level| level.load).filter(|load| *load < from);
    let points: Vec<&Point> = loads
        .flat_map(|load| evidence.quiet_at(sweep.sweep, load))
        .filter(|point| point.outcomes.completed() >= LEAST_ANSWERS)
        .collect();
    let gap_us = |point: &&Point| Some(point.value(names::RESPONSE_P50)? - point.value(names::FIRST_BYTE_P50)?);
    // The acknowledgement and the rest of the answer take one round trip, as connecting does.
    let round_trip_us = |point: &Point| point.value(names::CONNECT_P50).unwrap_or(0.0);
    let gaps: Vec<f64> = points.iter().map(gap_us).collect::<Option<_>>()?;
    let round_trips: Vec<f64> = points.iter().map(|point| round_trip_us(point)).collect();
    let (least, most) = range(&gaps)?;
    let (shortest, longest) = range(&gaps.iter().zip(&round_trips).map(|(gap, trip)| gap - trip).collect::<Vec<_>>())?;
    let requests: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.completed()));
    let is_long = |point: &&Point| {
        let answer = point.value(names::BODY_BYTES).map(|bytes| bytes / point.outcomes.completed() as f64);
        if round_trip_us(point) > FAR_CONNECT_US {
            answer.is_none_or(|bytes| bytes > MOST_ANSWER_FAR_BYTES)
        } else {
            answer.is_some_and(|bytes| bytes > MOST_ANSWER_BYTES)
        }
    };
    let is_one_load = points.iter().all(|point| point.connections == points[0].connections);
    if is_one_load
        || points.iter().any(is_long)
        || (requests as f64) < LEAST_REQUESTS
        || !(DELAYED_ACK_US.contains(&shortest) && DELAYED_ACK_US.contains(&longest))
    {
        return None;
    }
    let command = format!("strace -f -e trace=write,writev,sendto,sendmsg -p {}", server_pid(evidence.run));
    let round_trip_us = median(&round_trips)?;
    let far = if round_trip_us > FAR_CONNECT_US {
        format!(" and a round trip ({} to connect)", format_nanos(round_trip_us * 1e3))
    } else {
        String::new()
    };
    finding(
        format!(
            "The end of each answer waits for a delayed acknowledgement: the last byte came {} to {} after the first \
             at every load below the yield point (medians, n = {}). The server sends an answer in two small pieces, \
             and Nagle's algorithm holds the second back until the client's kernel has acknowledged the first, which \
             it does after 40 ms{far}.",
            format_nanos(least * 1e3),
            format_nanos(most * 1e3),
            grouped(requests as f64)
        ),
        format!(
            "To try: TCP_NODELAY on its connections, or head and body in one write (a buffered writer); `{command}` \
             shows the writes of an answer."
        ),
        &[command],
    )
}
