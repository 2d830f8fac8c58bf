//! The tables of one point, the output of `straingauge load --full`.

use super::{after_empty_line, slowest};
use crate::doubt;
use crate::text::table::Table;
use crate::text::{self, TOO_FEW, not_measured, wrap};
use analyze::zones::percent;
use record::text::plain;
use record::units::{self, format_bytes, format_nanos, format_si, grouped};
use record::{Arrival, Figure, Latency, Outcomes, Pace, Point, names};

const QUANTILES: &[(&str, f64)] =
    &[("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
/// Histograms that exclude requests without a response.
const CENSORED: [&str; 3] = ["response", "service", "first-byte"];

/// All tables of a point. `latencies`: its histograms by tag, as returned by [`record::RunDir::latencies`]; without
/// them, percentiles come from the figures.
pub fn point(point: &Point, latencies: &[(String, Latency)]) -> String {
    let mut out = heading(point)
        + "\n"
        + &outcomes(point)
        + &after_empty_line(rates(point))
        + &after_empty_line(times(point, latencies));
    out += &super::workload::workload(&point.workload);
    out += &slowest::text(slowest::of_points(&[point], "of the window"));
    out += &after_empty_line(server(point));
    out.push_str(&super::watched::point(point));
    if !point.connection_states.is_empty() {
        let states: Vec<String> = point
            .connection_states
            .iter()
            .filter_map(|(state, figure)| Some((state, figure.value.filter(|count| *count > 0.0)?)))
            .map(|(state, count)| format!("{} {}", grouped(count), plain(state, 20)))
            .take(12)
            .collect();
        out.push('\n');
        let states = if states.is_empty() { "none".into() } else { states.join(", ") };
        out.push_str(&wrap(&states, "  connections  ", "               "));
    }
    out.push_str(&doubt::text(&point.doubts));
    out
}

/// The heading: `closed loop, 8 connections, 10.0 s after 1.00 s of warm-up` and a newline.
pub(crate) fn heading(point: &Point) -> String {
    let seconds = point.duration_ns as f64 / 1e9;
    let pace = match point.pace {
        Pace::Open { rate_per_sec, arrival: Arrival::Trace } => {
            format!(
                "a log at its own times, {}/s over at most {}",
                format_si(rate_per_sec),
                connections(point.connections)
            )
        }
        Pace::Closed if point.workload.replay.is_some() => {
            format!("a log as fast as the server answers, at most {}", connections(point.connections))
        }
        Pace::Closed => format!("closed loop, {}", connections(point.connections)),
        Pace::Open { rate_per_sec, .. } => {
            format!("open loop, {}/s offered over at most {}", format_si(rate_per_sec), connections(point.connections))
        }
    };
    let warmup = if point.warmup_ns == 0 { "no time".into() } else { format_nanos(point.warmup_ns as f64) };
    format!("{pace}, {seconds:.1} s after {warmup} of warm-up\n")
}

pub(super) fn connections(count: u64) -> String {
    units::count(count, "connection")
}

fn outcomes(point: &Point) -> String {
    let mut table = Table::new(["requests", "count", "share"], 1);
    let requests = point.outcomes.requests();
    for (kind, count) in counts(&point.outcomes) {
        let share = if requests == 0 { "-".into() } else { percent(count as f64 / requests as f64) };
        table.row(vec![kind.into(), grouped(count as f64), share]);
    }
    table.lines()
}

/// Requests by outcome; rare outcomes only if there are any.
pub(crate) fn counts(outcomes: &Outcomes) -> Vec<(&'static str, u64)> {
    let some = |name, count| Some((name, count)).filter(|_| count > 0);
    let before = [Some(("sent", outcomes.sent)), some("in flight at the start", outcomes.carried_in)];
    let known = before.into_iter().flatten().chain([("ok", outcomes.ok)]).chain(outcomes.failures());
    known.chain(some("unfinished at the end", outcomes.unfinished)).collect()
}

fn rates(point: &Point) -> String {
    let mut table = Table::new(["", "", ""], 3);
    let mut row = |label: &str, name: &str, words: fn(f64) -> String| {
        if let Some(figure) = point.figures.get(name) {
            table.row(vec![label.into(), words_of(figure, words), origin(figure)]);
        }
    };
    row("throughput", names::THROUGHPUT, |value| format!("{}/s", format_si(value)));
    if point.value(names::GOODPUT) != point.value(names::THROUGHPUT) {
        row("goodput", names::GOODPUT, |value| format!("{}/s", format_si(value)));
    }
    if point.value(names::SILENT).is_some_and(|count| count > 0.0) {
        row("never answered", names::SILENT, |count| connections(count as u64));
    }
    // A measured reap delay is a column of the times.
    if point.figures.get(names::REAP_P99).is_some_and(|figure| figure.value.is_none()) {
        row("reap delay", names::REAP_P99, |us| format_nanos(us * 1e3));
    } else {
        row("reap delay", names::REAP_DATED, |share| format!("measured in {} of the time", percent(share)));
    }
    row("received", names::RECEIVED, |value| format!("{}/s", format_bytes(value)));
    row("client CPU", names::CLIENT_CPU, |value| format!("{value:.1} us/request"));
    row("client busy", names::CLIENT_UTILISATION, |value| format!("{} of a CPU", percent(value)));
    row("cold connections", names::COLD, grouped);
    row("  dropped", names::COLD_DROPPED, |value| format!("{}/s, opened again", format_si(value)));
    row("  user memory", names::COLD_USER_MEMORY, |value| format!("{} each", format_bytes(value)));
    row("  kernel memory", names::COLD_KERNEL_MEMORY, |value| format!("{} each", format_bytes(value)));
    row("conforming", names::CONFORMING, |value| format!("{} of connections", percent(value)));
    row("each connection", names::CONNECTION_BITS, |value| format!("{}bit/s", format_si(value)));
    row("TLS handshakes", names::TLS_HANDSHAKES, |value| format!("{}/s", format_si(value)));
    row("TLS handshake p50", names::TLS_HANDSHAKE_P50, |us| format_nanos(us * 1e3));
    row("TLS handshake p99", names::TLS_HANDSHAKE_P99, |us| format_nanos(us * 1e3));
    row("TLS resumed", names::TLS_RESUMED, |value| format!("{} of handshakes", percent(value)));
    table.lines().lines().skip(1).map(|line| format!("{line}\n")).collect()
}

fn words_of(figure: &Figure, words: fn(f64) -> String) -> String {
    figure.value.map_or_else(|| not_measured(figure.not_measured.as_deref(), 50), words)
}

pub(super) fn origin(figure: &Figure) -> String {
    match (figure.origin, figure.n) {
        (Some(origin), Some(n)) if figure.value.is_some() => format!("{}, n = {}", origin.word(), grouped(n as f64)),
        _ => String::new(),
    }
}

/// A column of times: heading, histogram tag, and the figures by row for use without a histogram.
type TimeColumn = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const TIMES: &[TimeColumn] = &[
    (
        "response",
        "response",
        &[
            ("mean", names::RESPONSE_MEAN),
            ("p50", names::RESPONSE_P50),
            ("p90", names::RESPONSE_P90),
            ("p95", names::RESPONSE_P95),
            ("p99", names::RESPONSE_P99),
            ("p99.9", names::RESPONSE_P999),
            ("max", names::RESPONSE_MAX),
        ],
    ),
    ("service", "service", &[("p50", names::SERVICE_P50), ("p99", names::SERVICE_P99), ("max", names::SERVICE_MAX)]),
    ("lag", "lag", &[("p50", names::LAG_P50), ("p99", names::LAG_P99), ("max", names::LAG_MAX)]),
    (
        "part gap",
        "part-gap",
        &[
            ("mean", names::PART_GAP_MEAN),
            ("p50", names::PART_GAP_P50),
            ("p99", names::PART_GAP_P99),
            ("max", names::PART_GAP_MAX),
        ],
    ),
    ("first byte", "first-byte", &[("p50", names::FIRST_BYTE_P50), ("p99", names::FIRST_BYTE_P99)]),
    ("connect", "connect", &[("p50", names::CONNECT_P50), ("p99", names::CONNECT_P99)]),
    ("reap", "reap", &[("p50", names::REAP_P50), ("p99", names::REAP_P99), ("max", names::REAP_MAX)]),
    ("without it", "response-arrived", &[("p50", names::ARRIVED_P50), ("p99", names::ARRIVED_P99)]),
];

fn times(point: &Point, latencies: &[(String, Latency)]) -> String {
    let is_closed = point.offered_per_sec().is_none();
    let mut table = Table::new(std::iter::once("time").chain(TIMES.iter().map(|(heading, ..)| *heading)), 1);
    let (mut few, mut is_bound) = (false, false);
    let rows = ["mean"].into_iter().chain(QUANTILES.iter().map(|(label, _)| *label)).chain(["max", "n"]);
    for label in rows {
        let mut cells = vec![label.to_string()];
        for (heading, tag, figures) in TIMES {
            let nanos = match cell(point, latencies, (heading, tag, figures), label) {
                // In a closed loop no request is late, so the column would be all zeros.
                _ if is_closed && *heading == "lag" => None,
                Some(nanos) => {
                    few |= nanos == TOO_FEW;
                    is_bound |= nanos.starts_with('>');
                    Some(nanos)
                }
                None => None,
            };
            cells.push(nanos.unwrap_or_default());
        }
        if cells[1..].iter().any(|cell| !cell.is_empty()) {
            table.row(cells);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let mut out = table.lines();
    if few {
        out.push_str("  '-': too few samples for this percentile\n");
    }
    if is_bound {
        out.push_str("  '>=': lower bound; requests without a response take longer\n");
    }
    out
}

/// A cell of a column: from the histogram, otherwise from the figures.
fn cell(point: &Point, latencies: &[(String, Latency)], column: TimeColumn, label: &str) -> Option<String> {
    let (_, tag, figures) = column;
    match latencies.iter().find(|(found, _)| found == tag) {
        Some((_, latency)) => {
            let quantile = match label {
                "mean" => Some(0.999),
                "max" => Some(1.0),
                _ => QUANTILES.iter().find(|(known, _)| *known == label).map(|(_, quantile)| *quantile),
            };
            let is_lower_bound = quantile.is_some_and(|quantile| point.outcomes.is_lower_bound(quantile));
            let words = from_histogram(latency, label)?;
            Some(text::at_least(is_lower_bound && CENSORED.contains(&column.1), words))
        }
        None => {
            let name = figures.iter().find(|(known, _)| *known == label).map(|(_, name)| *name);
            let quantile = QUANTILES.iter().find(|(known, _)| *known == label).map_or(0.0, |(_, quantile)| *quantile);
            text::percentile(point.figures.get(name?)?, quantile)
        }
    }
}

pub(super) fn percentile(point: &Point, latencies: &[(String, Latency)], heading: &str, label: &str) -> Option<String> {
    let column = TIMES.iter().find(|(known, ..)| *known == heading)?;
    cell(point, latencies, *column, label)
}

fn from_histogram(latency: &Latency, label: &str) -> Option<String> {
    if latency.is_empty() {
        return None;
    }
    let nanos = match label {
        "mean" => latency.mean_ns()?,
        "max" => latency.max_ns()? as f64,
        "n" => return Some(grouped(latency.len() as f64)),
        _ => {
            let (_, quantile) = QUANTILES.iter().find(|(known, _)| *known == label)?;
            if text::rests_on_few(latency.len(), *quantile) {
                return Some(TOO_FEW.into());
            }
            latency.quantile_ns(*quantile)? as f64
        }
    };
    Some(format_nanos(nanos))
}

fn server(point: &Point) -> String {
    let mut table = Table::new(["", "", ""], 3);
    let us: fn(f64) -> String = |value| format!("{value:.1} us/request");
    if let Some(figure) = analyze::zones::cpu_figure(point) {
        table.row(vec!["server CPU".into(), words_of(&figure, us), origin(&figure)]);
    }
    let mut row = |label: &str, name: &str, words: fn(f64) -> String| {
        if let Some(figure) = point.figures.get(name) {
            table.row(vec![label.into(), words_of(figure, words), origin(figure)]);
        }
    };
    row("  user", names::SERVER_CPU_USER, us);
    row("  system", names::SERVER_CPU_SYSTEM, us);
    let has_beside = point.figures.get(names::SERVER_SOFTIRQ_BESIDE).is_some();
    row("  softirq", if has_beside { names::SERVER_SOFTIRQ_BESIDE } else { names::SERVER_SOFTIRQ }, us);
    row("server's CPUs busy", names::SERVER_CPU_BUSY, percent);
    if point.value(names::SERVER_QUOTA).is_some() {
        row("CPU time limit used", names::SERVER_QUOTA_USED, percent);
        row("stopped by the limit", names::SERVER_THROTTLED, |share| format!("{} of its periods", percent(share)));
    }
    row("busiest thread", names::SERVER_BUSIEST_THREAD, |value| format!("{} of a CPU", percent(value)));
    row("server memory", names::SERVER_MEMORY, format_bytes);
    row("accept queue", names::ACCEPT_QUEUE_MAX, |value| format!("{} at most", grouped(value)));
    row("dropped at accept", names::TCP_LISTEN_OVERFLOWS, |value| format!("{}/s", format_si(value)));
    row("retransmits", names::TCP_RETRANSMITS, |value| format!("{}/s", format_si(value)));
    row("steal", names::MACHINE_STEAL, percent);
    row("path lateness p50", names::PATH_LATENESS_P50, |us| format_nanos(us * 1e3));
    row("path lateness p99", names::PATH_LATENESS_P99, |us| format_nanos(us * 1e3));
    row("path lateness max", names::PATH_LATENESS_MAX, |us| format_nanos(us * 1e3));
    row("path packets", names::PATH_PACKETS, grouped);
    row("  lost", names::PATH_LOST, grouped);
    row("  dropped", names::PATH_DROPPED, grouped);
    row("path's own CPU", names::PATH_CPU, |us| format!("{us:.1} us/packet"));
    row("watcher's own CPU", names::OBSERVER_CPUS, |value| format!("{} of a CPU", percent(value)));
    table.lines().lines().skip(1).map(|line| format!("{line}\n")).collect()
}
