//! The headroom of a watched server in words.

use crate::metrics::{Family, MetricKind, Metrics};
use record::units::{format_si, grouped};
use record::watch::{Headroom, Limit, LimitKind, Range};

/// A limit up to this multiple of the load is near.
const NEAR: f64 = 2.0;

/// Describes the nearest limit with its distance, or why there is none.
pub fn line(found: &Headroom) -> String {
    let not_measured = || match found.unknown.first() {
        Some(limit) => format!("not measured: {}: {}", limit.kind.word(), limit.why),
        None => "not measured: no limit is visible".into(),
    };
    // A distant limit shows little while the distance to the CPUs' limits is unknown.
    let says_something = |limit: &&Limit| found.capacity_per_sec.is_some() || limit.times.low < NEAR;
    let Some(nearest) = found.limits.first().filter(says_something) else { return not_measured() };
    let full = match nearest.full_at_per_sec {
        Some(full) => format!("{} full at {}/s", nearest.kind.word(), ends(&full, format_si)),
        None => format!("{} full ({} of {})", nearest.kind.word(), grouped(nearest.used), grouped(nearest.most)),
    };
    match (&found.unseen, nearest.times.high) {
        (None, _) => format!("{} x the load: {full}", times(&nearest.times)),
        (Some(_), Some(high)) => {
            format!("at most {} x the load: {full}", times(&Range { low: high, high: Some(high) }))
        }
        (Some(why), None) => format!("not measured: {why}"),
    }
}

/// All findings, one sentence each.
pub fn sentences(found: &Headroom) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(capacity) = found.capacity_per_sec {
        said.push(format!(
            "Capacity by the visible limits: {}/s; now {}/s, highest {}/s, in {} readings over {:.0} s.",
            ends(&capacity, format_si),
            format_si(found.now_per_sec),
            format_si(found.highest_per_sec),
            found.readings,
            found.window_s
        ));
    }
    // The upper ends are valid nevertheless.
    said.extend(found.unseen.iter().map(|why| format!("It may be full earlier: {why}.")));
    said.extend(found.limits.iter().map(of_limit));
    said.extend(found.unknown.iter().map(|limit| format!("{}: not measured: {}.", capital(limit.kind), limit.why)));
    said
}

/// Adds the metrics that have a value.
pub fn add(metrics: &mut Metrics, found: &Headroom) {
    let ends = |range: &Range| [("low", Some(range.low)), ("high", range.high)];
    // If a limit is not visible, only the upper end is valid.
    let holds = |end: &str| found.unseen.is_none() || end == "high";
    let help = "Requests per second that the server can serve, estimated from its traffic.";
    let mut capacity = Family::new(MetricKind::Gauge, "straingauge.capacity", "{request}/s", help);
    for (end, value) in found.capacity_per_sec.iter().flat_map(ends) {
        if let Some(value) = value.filter(|_| holds(end)) {
            capacity = capacity.with(&[("end", end)], value);
        }
    }
    metrics.add(capacity);
    let help = "The load at which a limit is reached, as a multiple of the current load.";
    let mut by_limit = Family::new(MetricKind::Gauge, "straingauge.headroom", "1", help);
    for limit in &found.limits {
        for (end, value) in ends(&limit.times) {
            if let Some(value) = value {
                by_limit = by_limit.with(&[("limit", &limit.kind.label()), ("end", end)], value);
            }
        }
    }
    metrics.add(by_limit);
}

fn of_limit(limit: &Limit) -> String {
    let of = limit.of.as_ref().map_or(String::new(), |of| format!(" ({of})"));
    let full = limit.full_at_per_sec.map_or(String::new(), |full| format!(", at {}/s", ends(&full, format_si)));
    let (used, most) = match limit.kind {
        LimitKind::Descriptors | LimitKind::Backlog => (grouped(limit.used), grouped(limit.most)),
        _ => (format!("{:.2}", limit.used), format_si(limit.most)),
    };
    format!(
        "{}{of}: {used} of {most} in use, full at {} x the current load{full}.",
        capital(limit.kind),
        times(&limit.times)
    )
}

fn capital(kind: LimitKind) -> String {
    let word = kind.word();
    word[..1].to_uppercase() + &word[1..]
}

fn times(range: &Range) -> String {
    let number = |value: f64| if value < 10.0 { format!("{value:.1}") } else { format_si(value.round()) };
    ends(range, number)
}

fn ends(range: &Range, words: impl Fn(f64) -> String) -> String {
    match range.high {
        Some(high) if words(high) == words(range.low) => words(high),
        Some(high) => format!("{} to {}", words(range.low), words(high)),
        None => format!("{} or more", words(range.low)),
    }
}
