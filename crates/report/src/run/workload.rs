//! Results by class, and those of a replay.

use crate::text::table::Table;
use crate::text::{TOO_FEW, percentile, wrap};
use analyze::zones::percent;
use record::Figure;
use record::text::plain;
use record::units::{count, format_bytes, format_nanos, grouped};
use record::workload::{ClassResult, Grouping, ReplayResult, WorkloadResult};

/// Maximum classes listed, because a file may have any number.
const LISTED: usize = 80;

pub(super) fn workload(result: &WorkloadResult) -> String {
    let mut out = String::new();
    for table in tables(result) {
        let note = table.note.clone();
        out.push_str(&format!("\n{}{}", table.aligned(1).lines(), wrap(&note, "  ", "  ")));
    }
    if let Some(replay) = &result.replay {
        out.push('\n');
        out.push_str(&self::replay(replay));
    }
    out
}

pub(crate) fn tables(result: &WorkloadResult) -> Vec<Table> {
    let groupings = [(Grouping::Size, "size class"), (Grouping::Kind, "kind")];
    groupings.into_iter().filter_map(|(grouping, heading)| classes(result.by(grouping), heading)).collect()
}

fn classes<'a>(classes: impl Iterator<Item = &'a ClassResult>, heading: &str) -> Option<Table> {
    let classes: Vec<&ClassResult> = classes.collect();
    let all: u64 = classes.iter().fold(0, |sum, class| sum.saturating_add(class.requests));
    let time = |figure: &Figure| figure.value.map(|us| format_nanos(us * 1e3)).unwrap_or_default();
    let row = |class: &&ClassResult| {
        vec![
            plain(&class.label, 40),
            grouped(class.requests as f64),
            if all == 0 { "-".into() } else { percent(class.requests as f64 / all as f64) },
            class.asked_ratio.map(percent).unwrap_or_default(),
            if class.failed == 0 { String::new() } else { grouped(class.failed as f64) },
            format_bytes(class.body_bytes as f64),
            time(&class.response_mean_us),
            time(&class.response_p50_us),
            time(&class.response_p90_us),
            percentile(&class.response_p99_us, 0.99).unwrap_or_default(),
            time(&class.response_max_us),
            class.response_mean_us.n.map(|n| grouped(n as f64)).unwrap_or_default(),
        ]
    };
    let more = classes.len().saturating_sub(LISTED);
    let note = if more > 0 { format!("The run directory has {more} more classes.") } else { String::new() };
    let columns = [
        (heading, ""),
        ("requests", "sent"),
        ("share", "of requests"),
        ("asked", "by the mix"),
        ("failed", "requests"),
        ("bodies", "received"),
        ("mean", "response"),
        ("p50", "response"),
        ("p90", "response"),
        ("p99", "response"),
        ("max", "response"),
        ("n", "responses"),
    ];
    (!classes.is_empty()).then(|| Table::titled("", columns, classes.iter().take(LISTED).map(row).collect(), note))
}

/// A class in one line: `to 64.0 KiB: 1,200 requests, p50 1.20 ms, p99 5.00 ms`.
pub(super) fn class_words(class: &ClassResult) -> String {
    let time = |word: &str, figure: &Figure| {
        figure.value.map_or(String::new(), |us| format!(", {word} {}", format_nanos(us * 1e3)))
    };
    let p99 = percentile(&class.response_p99_us, 0.99).filter(|words| words != TOO_FEW);
    let tail = p99.map_or(String::new(), |words| format!(", p99 {words}"));
    let failed = if class.failed == 0 { String::new() } else { format!(", {} failed", grouped(class.failed as f64)) };
    format!(
        "{}: {}{}{tail}{failed}",
        plain(&class.label, 40),
        count(class.requests, "request"),
        time("p50", &class.response_p50_us)
    )
}

pub(crate) fn replay_facts(replay: &ReplayResult) -> Vec<(&'static str, String)> {
    let count = |count: u64| grouped(count as f64);
    let mut facts = vec![(
        "log",
        format!(
            "{} ({}): {} lines, {} not readable, {} requests of {} in {} sessions over {} of log time{}",
            plain(&replay.file, 200),
            plain(&replay.format, 80),
            count(replay.lines),
            count(replay.rejected),
            count(replay.requests),
            match replay.clients {
                1 => "1 client".to_string(),
                clients => format!("{} clients", count(clients)),
            },
            count(replay.sessions),
            format_nanos(replay.span_ns as f64),
            match (replay.rounds, replay.is_whole) {
                (0 | 1, true) => ", all of it sent".to_string(),
                (rounds @ 2.., _) => format!(", restarted {} times", count(rounds - 1)),
                _ => ", the rest not sent".to_string(),
            }
        ),
    )];
    let compared = replay.sizes_equal.saturating_add(replay.sizes_different);
    if compared > 0 {
        facts.push((
            "bodies",
            format!(
                "{} of {} have the size in the log; {} bytes were received, {} are in the log",
                count(replay.sizes_equal),
                count(compared),
                count(replay.got_bytes),
                count(replay.expected_bytes)
            ),
        ));
    }
    let statuses = replay.statuses_equal.saturating_add(replay.statuses_different);
    if statuses > 0 {
        facts.push(("statuses", format!("{} of {} equal the log's", count(replay.statuses_equal), count(statuses))));
    }
    let mut order = Vec::new();
    if replay.went_back > 0 {
        order.push(format!(
            "{} lines go back in time, by at most {}",
            count(replay.went_back),
            format_nanos(replay.back_max_ns as f64)
        ));
    }
    if replay.clamped > 0 {
        order.push(format!("{} were too late for sorting and got a later time", count(replay.clamped)));
    }
    if replay.unsendable > 0 {
        order.push(format!("{} CONNECT requests were left out", count(replay.unsendable)));
    }
    if replay.evicted > 0 {
        order.push(format!("{} sessions lost their connection to another client", count(replay.evicted)));
    }
    if !order.is_empty() {
        facts.push(("order", order.join("; ")));
    }
    for example in replay.rejected_examples.iter().take(10) {
        facts.push(("not readable", plain(example, 300)));
    }
    if let Some(why) = &replay.failure {
        facts.push(("ended by", plain(why, 300)));
    }
    facts
}

fn replay(replay: &ReplayResult) -> String {
    let facts = replay_facts(replay);
    let indent = "                ";
    facts.into_iter().map(|(heading, text)| wrap(&text, &format!("  {heading:<14}"), indent)).collect()
}
