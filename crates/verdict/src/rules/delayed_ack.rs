//! Nagle's algorithm with delayed acknowledgements: a small write waits 40 ms for the acknowledgement of the one
//! before it.

use super::*;
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    id: "delayed-ack",
    cause: "the end of an answer waits for a delayed acknowledgement",
    evidence: "`client.response_p50_us` less `client.first_byte_p50_us`, `client.connect_p50_us`, \
               `client.body_bytes`; the account: times of calls to a backend",
    threshold: "last byte 38 to 48 ms and a round trip (the time to connect) after the first, at every load below the \
                yield point (medians of the points with at least 10 requests; at least two loads and 30 requests in \
                all; answers of at most 64 KiB, or 13,140 bytes if connecting takes more than 5 ms): Linux delays an \
                acknowledgement by 40 ms. A possibility: calls to a backend take 40 to 44.5 ms (longer by the share of \
                such a call in a window; median of these loads, which differ by up to 1.25 times)",
    refuted_by: "the server sends each answer with one write, or the wait is in the server",
    remedy: "TCP_NODELAY on the server's connections, or head and body in one write",
    source: "Nagle, RFC 896 (1984); RFC 1122, section 4.2.3.2: a small segment waits for the acknowledgement of \
             the one before, which may be delayed",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client"],
    judge: |evidence| of_answers(evidence).or_else(|| of_calls(evidence)),
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

/// Time from the first byte of an answer to its last that a delayed acknowledgement takes.
pub struct Gap {
    /// Shortest and longest of the loads' medians, microseconds.
    pub least_us: f64,
    most_us: f64,
    round_trip_us: f64,
    requests: u64,
}

/// The gap in the answers below the yield point, if it is that of a delayed acknowledgement.
pub fn gap(evidence: &Evidence<'_>) -> Option<Gap> {
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
    let (least_us, most_us) = range(&gaps)?;
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
    let is_delayed = by_load.len() >= 2
        && !points.iter().any(is_long)
        && requests as f64 >= LEAST_REQUESTS
        && DELAYED_ACK_US.contains(&shortest)
        && DELAYED_ACK_US.contains(&longest);
    is_delayed.then_some(Gap { least_us, most_us, round_trip_us: median(round_trips)?, requests })
}

fn of_answers(evidence: &Evidence<'_>) -> Option<Finding> {
    let Gap { least_us, most_us, round_trip_us, requests } = gap(evidence)?;
    let far = if round_trip_us > FAR_CONNECT_US {
        format!(" and a round trip ({} to connect)", format_nanos(round_trip_us * 1e3))
    } else {
        String::new()
    };
    finding(
        format!(
            "The end of each answer waits for a delayed acknowledgement: the last byte came {} after the first \
             at every load below the yield point (medians, n = {}). The server sends an answer in two small pieces, \
             and Nagle's algorithm holds the second back until the client's kernel has acknowledged the first, which \
             it does after 40 ms{far}.",
            from_to(least_us, most_us),
            grouped(requests as f64)
        ),
        "To try: TCP_NODELAY on its connections, or head and body in one write (a buffered writer).".into(),
        &[],
    )
}

/// The same between the server and its backend: a call in two writes.
fn of_calls(evidence: &Evidence<'_>) -> Option<Finding> {
    const CALL_US: std::ops::RangeInclusive<f64> = 40e3..=44.5e3;
    const SAME: f64 = 1.25;
    let from = evidence.strained_from().unwrap_or(f64::INFINITY);
    let levels: Vec<&AccountLevel> = evidence.accounts().iter().filter(|level| level.load < from).collect();
    let first = levels.first()?;
    let address = &first.asked().chain(first.asked_of_own()).next()?.address;
    let is_asked = |one: &&BackendLevel| one.address == *address;
    let of_level = |level: &&AccountLevel| {
        let call = level.backends.iter().chain(&level.own_backends).find(is_asked)?;
        Some((call.call_us, call.calls_per_sec * level.seconds))
    };
    let (times_us, counts): (Vec<f64>, Vec<f64>) = levels.iter().filter_map(of_level).unzip();
    let n: f64 = counts.iter().sum();
    // A call in progress at the end of a window adds its time, and is not counted.
    let window_us = median(levels.iter().map(|level| level.seconds / level.points as f64 * 1e6))?;
    let beyond = 1.0 + CALL_US.end() / window_us;
    let typical_us = median(&times_us)?;
    let (least_us, most_us) = range(&times_us)?;
    let is_delay = (*CALL_US.start()..=CALL_US.end() * beyond).contains(&typical_us) && most_us <= SAME * least_us;
    if times_us.len() < 2 || n < LEAST_REQUESTS || !is_delay {
        return None;
    }
    finding(
        format!(
            "A call to {address} took {} on average at every load below the yield point (n = {}), about the 40 \
             ms of a delayed acknowledgement: so long waits the second part of a request or an answer that is sent in \
             two small pieces.",
            from_to(least_us, most_us),
            grouped(n.round()),
        ),
        "To try: TCP_NODELAY on the connections between them, at both ends, or one write for each message.".into(),
        &[],
    )?
    .proven_if(false)
}
