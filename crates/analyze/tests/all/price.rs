//! The cost of a command with `find --beside`: a real one is found, none is invented, and the sentences state the
//! certainty.

use crate::fixture;
use crate::server::{Bench, Server};
use analyze::compare::{self, Comparison, Conclusion, Outcome, Price};
use record::{DoubtKind, Figure, Origin, RunDir, names};
use std::path::PathBuf;

fn run(server: &Server, seed: u64, rounds: u32) -> RunDir {
    let mut bench = Bench::new(server.clone(), seed);
    for round in 0..rounds {
        for load in [1, 8, 64] {
            bench.closed(load, round, 1_000_000_000);
        }
    }
    let (path, record) = (PathBuf::from("runs/x"), fixture::record());
    RunDir { path, record, points: bench.points, reading_doubts: vec![] }
}

fn server() -> Server {
    Server { noise: 0.02, drift: 0.0, ..Server::default() }
}

/// The server without and with a command that multiplies the cost of a request by `times`.
fn priced(times: f64, seed: u64, rounds: u32) -> (Price, Comparison) {
    let dearer = Server { demand: server().demand * times, ..server() };
    let (a, mut b) = (run(&server(), 2 * seed, rounds), run(&dearer, 2 * seed + 1, rounds));
    fixture::found(&mut b.record).beside = ["agent", "--port", "8080"].map(String::from).to_vec();
    for point in &mut b.points {
        let cpus = 0.05 + 0.001 * f64::from(point.repeat);
        point.figures.set(names::BESIDE_CPUS, Figure::new(cpus, "CPUs", 2, Origin::Timed));
        point.figures.set(names::BESIDE_MEMORY, Figure::new(3e6, "bytes", 1, Origin::Counted));
    }
    found(&a, &b)
}

fn found(a: &RunDir, b: &RunDir) -> (Price, Comparison) {
    (compare::price(b, 0.95).expect("a price"), compare::interleaved(a, b, 0.05).expect("loads in common"))
}

fn cpu(found: &Comparison) -> &compare::Difference {
    found.figure(names::SERVER_CPU).expect("CPU per request")
}

#[test]
fn a_price_is_found_with_its_size_and_the_commands_own_usage() {
    let (price, comparison) = priced(1.1, 1, 6);
    let found = cpu(&comparison);
    assert!(found.is_found(), "{found:?}");
    let (low, high) = found.ratio.interval().unwrap();
    assert!(low < 1.1 && 1.1 < high && high - low < 0.06, "{found:?}");
    assert_eq!((comparison.repeats, comparison.loads.as_slice()), (6, &[1.0, 8.0, 64.0][..]));
    assert_eq!(comparison.conclusion, Conclusion::Regression, "it is more than 5 %");
    let own = price.own_cpus.unwrap();
    assert!((own.value - 0.0525).abs() < 1e-9 && own.n == 6, "{own:?}");
    assert!(own.low.unwrap() > 0.05 && own.high.unwrap() > own.value, "{own:?}");
    let words = compare::price_words(&price, &comparison);
    assert!(words.starts_with("With it, the server costs ") && words.contains("% more CPU per request ("), "{words}");
    assert!(words.contains("in 6 rounds from 1 to 64 connections"), "{words}");
    assert!(words.contains("The command itself used 5.25 % of a CPU") && words.contains("of memory"), "{words}");
}

#[test]
fn a_find_without_a_price_states_the_size_that_it_could_detect() {
    let all: Vec<(Price, Comparison)> = (0..60).map(|seed| priced(1.0, 100 + seed, 5)).collect();
    let is_alarm = |found: &Comparison| found.figures.iter().any(|figure| figure.is_found());
    let alarms = all.iter().filter(|(_, found)| is_alarm(found)).count();
    // A cost may also be a gain: both ends raise alarms, so up to 10 %.
    assert!(alarms <= 6, "{alarms} of 60");
    let (price, quiet) = all.iter().find(|(_, found)| !is_alarm(found)).unwrap();
    let words = compare::price_words(price, quiet);
    assert!(words.starts_with("No change of the server was found in 5 rounds"), "{words}");
    assert!(words.contains("% would have been found"), "{words}");
    // A cost of that size is found in about 8 of 10 comparisons.
    let sizes: Vec<f64> = all.iter().map(|(_, found)| cpu(found).detectable_ratio.unwrap()).collect();
    let size = 1.0 + statistics::median(&sizes).unwrap();
    let found = (0..60).filter(|seed| cpu(&priced(size, 300 + seed, 5).1).is_found()).count();
    assert!((40..=59).contains(&found), "a price of {size} was found in {found} of 60");
}

/// A load that the command breaks is part of the cost, and quick errors are not a gain.
#[test]
fn errors_that_the_command_causes_are_part_of_its_price() {
    let broken = |share: f64, silent: u64, is_without: bool| {
        let (mut a, mut b) = (run(&server(), 1, 5), run(&server(), 1, 5));
        fixture::found(&mut b.record).beside = vec!["agent".into()];
        let both: &mut [&mut RunDir] = if is_without { &mut [&mut a, &mut b] } else { &mut [&mut b] };
        for point in both.iter_mut().flat_map(|run| &mut run.points).filter(|point| point.connections == 64) {
            point.outcomes.non_2xx = (point.outcomes.ok as f64 * share) as u64;
            point.outcomes.ok -= point.outcomes.non_2xx;
            (point.outcomes.connections_used, point.outcomes.connections_silent) = (64, silent);
            let (good, n) = (point.value(names::THROUGHPUT).unwrap(), point.outcomes.ok);
            point.figures.set(names::GOODPUT, Figure::new(good * (1.0 - share), "1/s", n, Origin::Counted));
            if share > 0.5 {
                point.doubts.push(DoubtKind::ServerErrors.invalid("most requests failed", "look at its log"));
            }
            if silent > 32 {
                point.doubts.push(DoubtKind::SilentConnections.invalid("most got nothing", "look at its workers"));
            }
        }
        found(&a, &b)
    };
    for (share, silent) in [(0.01, 0), (0.3, 0), (0.9, 0), (0.0, 8), (0.0, 48)] {
        let (price, found) = broken(share, silent, false);
        assert_eq!(found.loads, [1.0, 8.0, 64.0], "{share} {silent}");
        let good = found.figures.iter().find(|figure| figure.word == "good answers").expect("it is priced");
        assert_eq!(good.outcome, Outcome::Regression, "{share} {silent}: {good:#?}");
        let words = compare::price_words(&price, &found);
        assert!(
            words.contains("fewer good answers (") && words.contains(" A regression at a threshold of "),
            "{words}"
        );
    }
    // Failures without the command are not part of its cost.
    for share in [0.3, 0.9] {
        assert_eq!(broken(share, 0, true).1.conclusion, Conclusion::NoRegression);
    }
}

#[test]
fn one_round_is_too_few_and_a_run_without_a_command_has_no_price() {
    let (price, found) = priced(1.1, 1, 1);
    assert_eq!(found.conclusion, Conclusion::CouldNotTell);
    let words = compare::price_words(&price, &found);
    assert!(words.starts_with("Could not tell: 1 round"), "{words}");
    assert_eq!(compare::price(&run(&server(), 2, 2), 0.95), None);
}
