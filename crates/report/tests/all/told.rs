//! What sentences say, read back and compared with the table beside them: over all recorded runs, and over made-up
//! servers.

use crate::server::{Bench, Server};
use crate::{fixture, recorded};
use analyze::statistics::median;
use analyze::{verdict, zones};
use proptest::prelude::*;
use record::{RunDir, Sweep, units};
use report::run;

/// A row of the table of levels: numbers as printed.
#[derive(Debug, Default)]
struct Row {
    load: String,
    rate: String,
    /// CPU, user, system, softirq where all are there.
    cost: Vec<String>,
}

/// The rows of the closed loop's table in a summary.
fn rows(summary: &str) -> Vec<Row> {
    let table =
        summary.lines().skip_while(|line| !line.starts_with("closed loop")).skip_while(|line| !line.contains("conns"));
    table.skip(1).take_while(|line| line.ends_with(|c: char| c.is_ascii_digit())).map(row).collect()
}

fn row(line: &str) -> Row {
    let mut words = line.split_whitespace().peekable();
    let load = words.next().expect("a load").to_string();
    words.next();
    let rate = words.next().expect("a rate").to_string();
    words.next_if(|word| word.contains(".."));
    for _ in 0..2 {
        if words.next() != Some("-") {
            words.next();
        }
    }
    let cost =
        words.take_while(|word| word.parse::<f64>().is_ok_and(|_| word.contains('.'))).map(String::from).collect();
    Row { load, rate, cost }
}

fn number(printed: &str) -> f64 {
    let factor = if printed.ends_with('k') {
        1e3
    } else if printed.ends_with('M') {
        1e6
    } else if printed.ends_with('G') {
        1e9
    } else {
        1.0
    };
    printed.trim_end_matches(['k', 'M', 'G']).replace(',', "").parse::<f64>().unwrap_or_else(|_| panic!("{printed}"))
        * factor
}

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

fn share(words: &str) -> f64 {
    words.trim_end_matches(" %").parse::<f64>().unwrap_or_else(|_| panic!("{words}")) / 100.0
}

/// Each estimate with its interval, as `about 19.8k/s (18.2k to 20.1k)`.
fn estimates(said: &str) -> Vec<[f64; 3]> {
    let whole = |text: &str| {
        let (estimate, rest) = text.split_once(" (")?;
        let (low, high) = rest.split_once(')')?.0.split_once(" to ")?;
        let estimate = estimate.split_whitespace().next()?.trim_end_matches("/s");
        let is_number = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit());
        let all = [estimate, low, high].map(|text| Some(text).filter(is_number).map(number));
        Some([all[0]?, all[1]?, all[2]?])
    };
    said.split("about ").skip(1).filter_map(whole).collect()
}

/// Good answers at one number of connections over those at another, the median of the repeats that have both.
fn in_the_same_repeats(run: &RunDir, from: &str, to: &str) -> f64 {
    let rates = |load: &str, repeat: u32| -> Vec<f64> {
        let is_there = |point: &&record::Point| {
            point.sweep == record::Sweep::Connections
                && point.repeat == repeat
                && point.connections as f64 == number(load)
        };
        run.points.iter().filter(is_there).filter_map(|point| point.value(record::names::GOODPUT)).collect()
    };
    let repeats: std::collections::BTreeSet<u32> = run.points.iter().map(|point| point.repeat).collect();
    let ratios =
        repeats.iter().filter_map(|repeat| Some(median(&rates(to, *repeat))? / median(&rates(from, *repeat))?));
    median(&ratios.collect::<Vec<_>>()).unwrap()
}

/// Compares the sentences with the table; returns their number.
fn check(run: &RunDir, name: &str) -> usize {
    let findings = zones::of_run(run);
    let verdict = verdict::sentences(run, &findings);
    let summary = run::text(run, &findings, &verdict);
    let rows = rows(&summary);
    let at = |load: &str| {
        let load = load.trim_end_matches(" connections").trim_end_matches(" connection");
        rows.iter().find(|row| row.load == load).unwrap_or_else(|| panic!("{name}: no row for {load} in\n{summary}"))
    };
    let mut compared = 0;
    assert!(!summary.contains("-0.0"), "{name}:\n{summary}");
    for said in verdict.sentences.iter().chain([&verdict.headline]) {
        assert!(!said.contains("-0.0"), "{name}: {said}");
        for [estimate, low, high] in estimates(said) {
            assert!((low..=high).contains(&estimate), "{name}: {said}");
        }
        if let (Some(peak), Some(load)) = (between(said, "peaked at ", "/s"), between(said, "/s with ", " connection"))
        {
            assert_eq!(at(load).rate, peak, "{name}: {said}\n{summary}");
            let most = rows.iter().map(|row| number(&row.rate)).fold(0.0, f64::max);
            assert_eq!(number(peak), most, "{name}: {said}\n{summary}");
            if let (Some(end), Some(lower)) = (between(said, "; at ", " it was"), between(said, "it was ", " lower")) {
                let ratio = if said.contains("lower in the same repeats") {
                    1.0 - in_the_same_repeats(run, load, end.split(' ').next().unwrap())
                } else {
                    1.0 - number(&at(end).rate) / number(peak)
                };
                assert!((share(lower) - ratio).abs() <= 0.0051, "{name}: {said}: {ratio}\n{summary}");
            }
            compared += 1;
        }
        if let Some(peak) = between(said, "; peak ", "/s") {
            let most = rows.iter().map(|row| number(&row.rate)).fold(0.0, f64::max);
            assert_eq!(number(peak), most, "{name}: {said}\n{summary}");
        }
        if let Some(low) = between(said, "A request cost ", " us of server CPU at ") {
            let low_load = between(said, "server CPU at ", " and ").unwrap();
            let rest = said.split_once(" and ").unwrap().1;
            let (high, rest) = rest.split_once(" us at ").unwrap();
            let (high_load, rest) = rest.split_once(" (+").unwrap();
            let rise = rest.split_once(')').unwrap().0;
            assert_eq!(at(low_load).cost[0], low, "{name}: {said}\n{summary}");
            assert_eq!(at(high_load).cost[0], high, "{name}: {said}\n{summary}");
            let ratio = number(high) / number(low) - 1.0;
            assert!((share(rise) - ratio).abs() <= 0.0051, "{name}: {said}: {ratio}");
            for (part, column) in [("user", 1), ("system", 2), ("softirq", 3)] {
                let Some(values) = between(said, &format!("{part} time, from "), " us") else { continue };
                let (before, after) = values.split_once(" to ").unwrap();
                assert_eq!(at(low_load).cost[column], before, "{name}: {said}\n{summary}");
                assert_eq!(at(high_load).cost[column], after, "{name}: {said}\n{summary}");
                let grew = (number(after) - number(before)) / (number(high) - number(low));
                assert!(grew > 0.5 || !said.contains("most of it"), "{name}: {said}");
            }
            if said.contains("Efficiency is lost") {
                // The criterion is applied before rounding.
                let rounding = 0.1 / number(low);
                assert!(ratio >= findings.criteria.efficiency_loss_ratio - rounding, "{name}: {said}");
            }
            compared += 1;
        }
        for part in said.split("(limit ").skip(1) {
            let limit = part.split_once(')').unwrap().0;
            let before = said.split("(limit ").next().unwrap();
            assert!(
                !before.contains(&format!(" {limit} of")) && !before.contains(&format!("was {limit} ")),
                "{name}: {said}"
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn sentences_on_recorded_runs_repeat_the_numbers_of_the_table() {
    let names = recorded::names();
    assert!(names.len() >= 8, "{names:?}");
    let compared: usize =
        names.iter().map(|name| check(&RunDir::open(&recorded::run(name).path()).unwrap(), name)).sum();
    assert!(compared >= names.len(), "{compared} sentences of {} runs", names.len());
}

#[test]
fn a_failure_in_one_loop_only_is_explained_by_what_the_loops_are() {
    let mut bench = Bench::new(Server { noise: 0.02, drift: 0.05, ..Server::default() }, 5);
    for repeat in 0..3 {
        for load in [1, 2, 4, 8, 16, 32, 64] {
            bench.closed(load, repeat, 1_000_000_000);
        }
        for rate in [0.5, 0.9, 1.2, 1.5] {
            let rate = rate * bench.server.capacity();
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    let run =
        RunDir { path: "runs/test".into(), record: fixture::record(), points: bench.points, reading_doubts: vec![] };
    let verdict = verdict::sentences(&run, &zones::of_run(&run));
    assert!(
        verdict.headline.contains("no failure up to") && verdict.headline.contains("fails from"),
        "{}",
        verdict.headline
    );
    let explained = verdict.sentences.iter().filter(|said| said.contains("only the open loop fails"));
    assert_eq!(explained.count(), 1, "{:?}", verdict.sentences);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sentences_on_made_up_servers_repeat_the_numbers_of_the_table(
        path in 0.0f64..2e-3,
        doubles_at in 20.0f64..4000.0,
        noise in 0.0f64..0.2,
        drift in 0.01f64..0.4,
        limit in prop_oneof![Just(f64::INFINITY), 200.0f64..50_000.0],
        refuses_beyond in prop_oneof![Just(f64::INFINITY), 20.0f64..200.0],
        repeats in 1u32..4,
        seed in any::<u64>(),
    ) {
        let server =
            Server { path, doubles_at, noise, drift, hidden_limit: limit, refuses_beyond, ..Server::default() };
        let mut bench = Bench::new(server, seed);
        for load in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            bench.closed(load, 0, 250_000_000);
        }
        for repeat in 1..repeats {
            for load in [2, 4, 8, 32, 256] {
                bench.closed(load, repeat, 1_000_000_000);
            }
            for rate in [0.5, 0.9, 0.98, 1.02, 1.2] {
                let rate = rate * bench.server.capacity();
                bench.open(rate, repeat, 1_000_000_000);
            }
        }
        let (path, record) = ("runs/test".into(), fixture::record());
        let run = RunDir { path, record, points: bench.points, reading_doubts: vec![] };
        prop_assert!(run.points.iter().any(|point| point.sweep == Sweep::Connections));
        check(&run, "made up");
    }

    #[test]
    fn a_number_read_back_is_the_number_shown(value in prop_oneof![0.0f64..1e9, 0.9e9..2e9]) {
        let shown = units::format_si(value);
        prop_assert_eq!(units::format_si(number(&shown)), shown);
    }
}
