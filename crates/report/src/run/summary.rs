//! The output of `straingauge load` without `--full`: at most [`MAX_LINES`] lines.

use super::point::{connections, heading, percentile};
use super::workload::{class_words, replay_facts};
use crate::doubt;
use crate::text::{not_measured, wrap};
use analyze::zones::{percent, softirq_beside_us};
use record::protocol::Protocol;
use record::text::plain;
use record::units::{count, format_bytes, format_si, grouped};
use record::workload::Grouping;
use record::{Figure, Latency, Point, Severity, names};
use std::collections::BTreeMap;

/// Maximum lines of a summary.
pub const MAX_LINES: usize = 15;
/// Maximum status codes, and maximum kinds of errors.
const MAX_KINDS: usize = 5;
const MAX_CLASSES: usize = 3;
const LABEL: &str = "                 ";

/// Complete answers by kind.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// Counts by status code, for HTTP.
    pub statuses: BTreeMap<u16, u64>,
    /// Counts by word, for other protocols.
    pub replies: BTreeMap<String, u64>,
}

impl Answers {
    /// The counts of a load with this protocol.
    pub fn new(counts: &BTreeMap<u16, u64>, protocol: &Protocol) -> Answers {
        if protocol.has_status_codes() {
            return Answers { statuses: counts.clone(), replies: BTreeMap::new() };
        }
        let replies = counts.iter().map(|(status, count)| (protocol.status_words(*status).into_owned(), *count));
        Answers { statuses: BTreeMap::new(), replies: replies.collect() }
    }
}

/// The summary of a point. `latencies` as for [`point()`](super::point()).
pub fn summary(point: &Point, latencies: &[(String, Latency)], answers: &Answers) -> String {
    let mut lines = vec![heading(point)];
    let mut row = |label: &str, words: String| {
        if !words.is_empty() {
            lines.push(wrap(&words, &format!("  {label:15}"), LABEL));
        }
    };
    row("throughput", throughput(point));
    row("response time", response(point, latencies));
    row("status", counts(answers.statuses.iter().map(|(status, count)| (status.to_string(), *count))));
    row("replies", counts(answers.replies.iter().map(|(kind, count)| (kind.clone(), *count))));
    row("errors", errors(point));
    for class in point.workload.by(Grouping::Size).take(MAX_CLASSES) {
        row("size class", class_words(class));
    }
    let facts = point.workload.replay.as_ref().map(replay_facts).unwrap_or_default();
    for wanted in ["log", "not readable", "ended by"] {
        let said = facts.iter().find(|(heading, _)| *heading == wanted);
        row(wanted, said.map(|(_, words)| plain(words, 160)).unwrap_or_default());
    }
    let of_client = point.figures.get(names::CLIENT_CPU);
    row("client CPU", cpu(point, of_client, &[], names::CLIENT_UTILISATION, "of a CPU"));
    let parts = [
        ("user", point.value(names::SERVER_CPU_USER)),
        ("system", point.value(names::SERVER_CPU_SYSTEM)),
        ("softirq", softirq_beside_us(point)),
    ];
    let of_server = analyze::zones::cpu_figure(point);
    row("server CPU", cpu(point, of_server.as_ref(), &parts, names::SERVER_CPU_BUSY, "of its CPUs busy"));
    let by_gravity = doubt::by_gravity(&point.doubts);
    let mut out = lines.concat();
    let more = match by_gravity.first() {
        Some(doubt) if doubt.severity > Severity::Note => {
            let room = (MAX_LINES - 2).saturating_sub(out.lines().count());
            out.extend(doubt::paragraph(doubt).split_inclusive('\n').take(room));
            by_gravity.len() - 1
        }
        _ => by_gravity.len(),
    };
    let doubts = match more {
        0 => String::new(),
        more => format!("{}, ", count(more, "more doubt")),
    };
    out.push_str(&format!("{doubts}--full prints all figures with origin and sample count\n"));
    out
}

fn throughput(point: &Point) -> String {
    let Some(rate) = point.value(names::THROUGHPUT) else { return not_measured(None, 0) };
    let received = point.value(names::RECEIVED).map_or(String::new(), |bytes| format!(", {}/s", format_bytes(bytes)));
    let n = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n);
    let n = n.map_or(String::new(), |n| format!(" (n = {})", grouped(n as f64)));
    let offered = point.offered_per_sec().filter(|offered| *offered > 0.0).map_or(String::new(), |offered| {
        let good = point.value(names::GOODPUT).filter(|good| *good < rate);
        let good = good.map_or(String::new(), |good| format!(", {} without an error", percent(good / offered)));
        format!(", {} of the offered rate{good}", percent(rate / offered))
    });
    format!("{}/s{received}{offered}{n}", format_si(rate))
}

fn response(point: &Point, latencies: &[(String, Latency)]) -> String {
    let shown: Vec<String> = ["p50", "p90", "p99", "max"]
        .iter()
        .filter_map(|label| Some(format!("{label} {}", percentile(point, latencies, "response", label)?)))
        .collect();
    shown.join(", ")
}

/// Formats counts: `ok 200 x 5,000, 404 x 3`.
fn counts(kinds: impl Iterator<Item = (String, u64)>) -> String {
    let mut kinds: Vec<(String, u64)> = kinds.filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let left_out = kinds.len().saturating_sub(MAX_KINDS);
    let mut words: Vec<String> =
        kinds.iter().take(MAX_KINDS).map(|(kind, count)| format!("{kind}: {}", grouped(*count as f64))).collect();
    if left_out > 0 {
        words.push(format!("{left_out} more kinds"));
    }
    words.join(", ")
}

fn errors(point: &Point) -> String {
    let found = counts(point.outcomes.failures().into_iter().map(|(kind, count)| (kind.to_string(), count)));
    let silent = point.value(names::SILENT).filter(|count| *count > 0.0);
    let silent = silent.map(|count| format!("{} never answered", connections(count as u64)));
    let found =
        (!found.is_empty()).then(|| format!("{found} ({} of requests)", percent(point.outcomes.failed_ratio())));
    let outcomes = &point.outcomes;
    let unfinished = (outcomes.unfinished > 0).then(|| {
        let share = percent(outcomes.unfinished as f64 / outcomes.requests().max(1) as f64);
        format!("{} ({share}) had no response at the end", count(outcomes.unfinished, "request"))
    });
    let words: Vec<String> = [found, unfinished, silent].into_iter().flatten().collect();
    if words.is_empty() { "none".into() } else { words.join("; ") }
}

fn cpu(point: &Point, figure: Option<&Figure>, parts: &[(&str, Option<f64>)], busy: &str, of: &str) -> String {
    let parts: Vec<String> = parts.iter().filter_map(|(word, us)| Some(format!("{word} {:.1}", (*us)?))).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let busy = point.value(busy).map(|ratio| format!("{} {of}", percent(ratio)));
    match (figure.and_then(|figure| figure.value), busy) {
        (Some(us), busy) => {
            format!("{us:.1} us per request{parts}{}", busy.map_or(String::new(), |busy| format!(", {busy}")))
        }
        (None, Some(busy)) => busy,
        (None, None) => match figure.and_then(|figure| figure.not_measured.as_deref()) {
            Some(why) => not_measured(Some(why), 100),
            None => String::new(),
        },
    }
}
