//! Checks that each counter of the watch appears as declared: in JSON, in Prometheus, on the screen, in the report's
//! text and page.

use crate::fixture;
use analyze::watch::{Recording, find};
use record::watch::{Beginning, Counter, Counts, FILE, Headroom, Line, Rates, Reading, Taken, Watching};
use report::metrics::text::{MetricsFormat, page as metrics_page};
use report::watch::{Screen, exposition, page, screen, text};
use std::collections::HashSet;

/// A different number for each counter.
fn number(counter: Counter) -> u64 {
    700 + counter as u64
}

fn reading() -> Reading {
    let mut reading = Reading { elapsed_ns: 1_000_000_000, open: Some(Default::default()), ..Reading::default() };
    reading.classes.push(Default::default());
    reading.connections.counted = Counts::from_fn(|counter| (!counter.is_loss()).then(|| number(counter)));
    reading.losses = Counts::from_fn(|counter| counter.is_loss().then(|| number(counter)));
    reading
}

#[test]
fn each_counter_has_unique_names_and_a_sentence() {
    let mut seen = HashSet::new();
    for declaration in Counter::ALL.map(Counter::declaration) {
        let is_word = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
        assert!(is_word(declaration.name) && is_word(declaration.metric), "{declaration:?}");
        assert!(!declaration.metric.ends_with("_total"), "Prometheus adds it: {declaration:?}");
        assert!(declaration.help.len() > 10 && declaration.help.ends_with('.'), "no sentence: {declaration:?}");
        assert!(declaration.help.chars().next().is_some_and(char::is_uppercase), "no sentence: {declaration:?}");
        let names = [("JSON", declaration.name), ("metrics", declaration.metric), ("help", declaration.help)];
        for name in names.into_iter().chain(declaration.figure.map(|figure| ("figures", figure))) {
            assert!(seen.insert(name), "{name:?} appears twice");
        }
    }
}

#[test]
fn each_counter_reaches_json_prometheus_the_screen_and_the_report() {
    let (watch, reading) = (Watching { port: 80, ..Watching::default() }, reading());
    let lines = [
        Line::Watch(Beginning { schema: record::run::SCHEMA, watching: watch.clone() }),
        Line::Reading(Box::new(Taken { totals: reading.clone(), ..Taken::default() })),
    ]
    .map(|line| line.text());
    let json: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
    let frame = Screen {
        watch: &watch,
        first: &Reading::default(),
        now: &reading,
        rates: &Rates::default(),
        headroom: &Headroom::default(),
        doubts: &[],
    };
    let metrics = metrics_page(&exposition::metrics(&frame), MetricsFormat::Prometheus);
    let screen = screen::tables(&frame);
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &[]);
    std::fs::write(run.path.join(FILE), lines.concat()).unwrap();
    let recording = Recording::open(&run.path).unwrap();
    let findings = find(&recording);
    let (text, html) = (text::run(&run, &findings), page::html(&run, &recording, &findings));
    for counter in Counter::ALL {
        let (declaration, n) = (counter.declaration(), number(counter));
        let object = if counter.is_loss() { "/totals/losses" } else { "/totals/connections" };
        assert_eq!(json.pointer(&format!("{object}/{}", declaration.name)), Some(&n.into()), "{json:#}");
        let metric = format!(
            "# HELP straingauge_{0}_total {1}\n# TYPE straingauge_{0}_total \
             counter\nstraingauge_{0}_total{{server_port=\"80\"}} {n}\n",
            declaration.metric, declaration.help
        );
        assert!(metrics.contains(&metric), "{metric}\n{metrics}");
        let label = declaration.help.trim_end_matches('.');
        let is_row =
            |line: &str| line.trim_start().starts_with(label) && line.split_whitespace().any(|w| w == n.to_string());
        assert!(text.lines().any(is_row), "{label}\n{text}");
        assert!(screen.lines().any(is_row), "{label}\n{screen}");
        let row = html.split("<tr").find(|row| row.contains(label));
        assert!(row.is_some_and(|row| row.contains(&format!(">{n}<"))), "{label}: {row:?}");
    }
}

/// A recording from before a counter existed lacks it, which does not mean 0.
#[test]
fn an_unmeasured_counter_is_not_zero() {
    let mut reading = Reading { elapsed_ns: 1_000_000_000, ..Reading::default() };
    let is_there = |counter: Counter| counter == Counter::Accepted;
    reading.connections.counted = Counts::from_fn(|counter| is_there(counter).then_some(3));
    let watch = Watching { port: 80, ..Watching::default() };
    let metrics = metrics_page(&crate::metrics::built(&reading, &watch, &[]), MetricsFormat::Prometheus);
    for counter in Counter::ALL {
        assert_eq!(metrics.contains(counter.declaration().metric), is_there(counter), "{metrics}");
    }
    let line = Line::Reading(Box::new(Taken { totals: reading, ..Taken::default() })).text();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&json["totals"]["connections"]["closed"], json["totals"].get("losses")),
        (&serde_json::Value::Null, None)
    );
}
