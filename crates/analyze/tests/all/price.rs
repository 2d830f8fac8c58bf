//! The price of a command beside a server: one that is there is found, none is not, and the sentences say how sure it
//! is.

use crate::fixture;
use crate::server::{Bench, Server};
use analyze::compare::{self, Conclusion, Outcome, Price};
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

/// The server without and with a command beside it that makes a request this much dearer.
fn priced(times: f64, seed: u64, rounds: u32) -> Price {
    let dearer = Server { demand: server().demand * times, ..server() };
    let (a, mut b) = (run(&server(), 2 * seed, rounds), run(&dearer, 2 * seed + 1, rounds));
    fixture::found(&mut b.record).beside = ["agent", "--port", "8080"].map(String::from).to_vec();
    for point in &mut b.points {
        let cpus = 0.05 + 0.001 * f64::from(point.repeat);
        point.figures.set(names::BESIDE_CPUS, Figure::new(cpus, "CPUs", 2, Origin::Timed));
        point.figures.set(names::BESIDE_MEMORY, Figure::new(3e6, "bytes", 1, Origin::Counted));
    }
    compare::price(&a, &b, 0.05).expect("a price")
}

fn cpu(price: &Price) -> &compare::Difference {
    price.figures.iter().find(|figure| figure.figure == names::SERVER_CPU).expect("CPU per request")
}

#[test]
fn a_price_is_found_with_its_size_and_what_the_command_uses_itself() {
    let price = priced(1.1, 1, 6);
    let found = cpu(&price);
    assert!(price.is_found(found), "{found:?}");
    let interval = found.interval.unwrap();
    assert!(interval.low < 1.1 && 1.1 < interval.high && interval.high - interval.low < 0.06, "{interval:?}");
    assert_eq!((price.rounds, price.loads.as_slice()), (6, &[1.0, 8.0, 64.0][..]));
    assert_eq!(price.conclusion, Conclusion::Regression, "it is more than 5 %");
    let own = price.own_cpus.as_ref().unwrap();
    assert_eq!((own.n, own.origin), (18, Some(Origin::Timed)));
    assert!((own.mean - 0.0525).abs() < 1e-9, "{own:?}");
    let interval = own.interval.unwrap();
    assert!(interval.low < own.mean && own.mean < interval.high && interval.low > 0.05, "{own:?}");
    let words = compare::price_words(&price);
    assert!(words.starts_with("It costs ") && words.contains("of the server's CPU per request"), "{words}");
    assert!(words.contains("in 6 rounds from 1 to 64 connections"), "{words}");
    assert!(words.contains("The command itself used 5.25 % of a CPU") && words.contains("of memory"), "{words}");
}

#[test]
fn no_price_is_found_where_there_is_none_and_the_size_that_would_have_been_is_stated() {
    let prices: Vec<Price> = (0..60).map(|seed| priced(1.0, 100 + seed, 5)).collect();
    let alarms = prices.iter().filter(|price| price.figures.iter().any(|figure| price.is_found(figure))).count();
    // 5 % of 60 is 3; seven or more would happen in 3 of 100 such tests, and the seeds are fixed.
    assert!(alarms <= 6, "{alarms} of 60");
    let quiet = prices.iter().find(|price| !price.figures.iter().any(|figure| price.is_found(figure))).unwrap();
    let words = compare::price_words(quiet);
    assert!(words.starts_with("No change of the server was found in 5 rounds"), "{words}");
    let sizes: Vec<f64> = quiet.figures.iter().map(|figure| figure.detectable_ratio.unwrap()).collect();
    assert!(words.contains("% would have been found"), "{words}");
    // A price of that size is found in about 8 of 10.
    let size = 1.0 + cpu(quiet).detectable_ratio.unwrap();
    assert!(sizes.iter().all(|size| *size > 0.0 && *size < 0.5), "{sizes:?}");
    let found = (0..60).filter(|seed| {
        let price = priced(size, 300 + seed, 5);
        price.is_found(cpu(&price))
    });
    let found = found.count();
    assert!((30..=60).contains(&found), "a price of {size} was found in {found} of 60");
}

/// A load that the command breaks stays in the price, and errors that are quick are no gain.
#[test]
fn what_the_command_breaks_is_its_price() {
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
        compare::price(&a, &b, 0.05).expect("a price")
    };
    for (share, silent) in [(0.01, 0), (0.3, 0), (0.9, 0), (0.0, 8), (0.0, 48)] {
        let price = broken(share, silent, false);
        assert_eq!(price.loads, [1.0, 8.0, 64.0], "{share} {silent}");
        let good = price.figures.iter().find(|figure| figure.word == "good answers").expect("it is priced");
        assert_eq!(good.outcome, Outcome::Regression, "{share} {silent}: {good:#?}");
        let words = compare::price_words(&price);
        assert!(words.contains("good answers fall by ") && words.contains("Worse by more than "), "{words}");
    }
    // What breaks without the command, too, is not its price.
    assert_eq!(broken(0.3, 0, true).conclusion, Conclusion::NoRegression);
    assert_eq!(broken(0.9, 0, true).loads, [1.0, 8.0]);
}

#[test]
fn one_round_is_too_few_and_a_run_without_a_command_has_no_price() {
    let price = priced(1.1, 1, 1);
    assert_eq!(price.conclusion, Conclusion::CouldNotTell);
    assert!(compare::price_words(&price).starts_with("Could not tell: 1 round"), "{}", compare::price_words(&price));
    assert_eq!(compare::price(&run(&server(), 1, 2), &run(&server(), 2, 2), 0.05), None);
}
