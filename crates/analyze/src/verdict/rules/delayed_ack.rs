//! Nagle's algorithm with delayed acknowledgements: a small write waits 40 ms for the acknowledgement of the one
//! before it.

use super::*;
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    id: "delayed-ack",
    cause: "the end of an answer waits for a delayed acknowledgement",
    evidence: "`client.response_p50_us` less `client.first_byte_p50_us`, `client.connect_p50_us`, \
               `client.body_bytes`",
    threshold: "last byte 38 to 48 ms and a round trip (the time to connect) after the first, at every load below the \
                yield point (medians of the points with at least 10 requests; at least two loads and 30 requests in \
                all; answers of at most 64 KiB, or 13,140 bytes if connecting takes more than 5 ms): Linux delays an \
                acknowledgement by 40 ms",
    refuted_by: "the server sends each answer with one write, or the wait is in the server",
    remedy: "TCP_NODELAY on the server's connections, or head and body in one write",
    source: "Nagle, RFC 896 (1984); RFC 1122, section 4.2.3.2: a small segment waits for the acknowledgement of \
             the one before, which may be delayed",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client"],
    judge,
};

/// Time from the first byte of an answer to its last, less a round trip, that indicates a delayed acknowledgement: 40
/// ms plus clock ticks.
const DELAYED_ACK_US: std::ops::RangeInclusive<f64> = 38e3..=48e3;
/// Largest answer. Longer ones may take this long to arrive.
pub(super) const MOST_ANSWER_BYTES: f64 = 65536.0;
/// Connect time above which the path is long: an answer larger than one window then takes more round trips.
pub(super) const FAR_CONNECT_US: f64 = 5e3;
/// Largest answer over a long path: 9 segments of 1,460 bytes. The first window has 10 (RFC 6928), one of them for the
/// head.
const MOST_ANSWER_FAR_BYTES: f64 = 13_140.0;
const LEAST_ANSWERS: u64 = 10;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
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
    let mut by_load: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for point in &points {
        by_load.entry(point.connections).or_default().push((gap_us(point)?, round_trip_us(point)));
    }
    // Of a load's points, one may be disturbed: a collector of garbage, a program that has just started.
    let (gaps, round_trips): (Vec<f64>, Vec<f64>) = by_load
        .values()
        .filter_map(|of| Some((median(of.iter().map(|(gap, _)| *gap))?, median(of.iter().map(|(_, trip)| *trip))?)))
        .unzip();
    let (least, most) = range(gaps.iter().copied())?;
    let (shortest, longest) = range(gaps.iter().zip(&round_trips).map(|(gap, trip)| gap - trip))?;
    let requests = answers(&points);
    let is_long = |point: &&Point| {
        let answer = point.value(names::BODY_BYTES).map(|bytes| bytes / point.outcomes.completed() as f64);
        if round_trip_us(point) > FAR_CONNECT_US {
            answer.is_none_or(|bytes| bytes > MOST_ANSWER_FAR_BYTES)
        } else {
            answer.is_some_and(|bytes| bytes > MOST_ANSWER_BYTES)
        }
    };
    if by_load.len() < 2
        || points.iter().any(is_long)
        || (requests as f64) < LEAST_REQUESTS
        || !(DELAYED_ACK_US.contains(&shortest) && DELAYED_ACK_US.contains(&longest))
    {
        return None;
    }
    let round_trip_us = median(round_trips)?;
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
        "To try: TCP_NODELAY on its connections, or head and body in one write (a buffered writer).".into(),
        &[],
    )
}
