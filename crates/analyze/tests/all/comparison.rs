//! Comparisons of two runs find real differences and ignore chance.

use crate::fixture;
use crate::server::{Bench, Server};
use analyze::compare::{self, Comparison, Conclusion, Outcome};
use record::{DoubtKind, RunDir, names};
use std::path::PathBuf;

fn run(server: &Server, seed: u64, repeats: u32) -> RunDir {
    let mut bench = Bench::new(server.clone(), seed);
    for repeat in 0..repeats {
        for load in [1, 8, 64, 512] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    RunDir {
        path: PathBuf::from(format!("runs/{seed}")),
        record: fixture::record(),
        points: bench.points,
        reading_doubts: vec![],
    }
}

fn steady() -> Server {
    Server { noise: 0.02, drift: 0.01, ..Server::default() }
}

/// A figure's outcome, by its short word.
fn outcome(found: &Comparison, word: &str) -> Option<Outcome> {
    found.figures.iter().find(|figure| figure.word == word).map(|figure| figure.outcome)
}

#[test]
fn a_slower_server_is_a_regression_and_the_same_one_is_not() {
    let slower = Server { demand: steady().demand * 1.2, ..steady() };
    let (a, b) = (run(&steady(), 1, 5), run(&slower, 2, 5));
    let found = compare::runs(&a, &b, 0.05).unwrap();
    assert_eq!(found.conclusion, Conclusion::Regression);
    let cpu = found.figure(names::SERVER_CPU).unwrap();
    let (low, high) = cpu.ratio.interval().unwrap();
    assert!(low < 1.2 && 1.2 < high && cpu.outcome == Outcome::Regression, "{cpu:?}");
    assert!((cpu.b / cpu.a - cpu.ratio.value).abs() < 1e-9 && cpu.loads.len() == 4, "{cpu:?}");
    let back = compare::runs(&b, &a, 0.05).unwrap();
    assert_eq!((back.regressions().count(), outcome(&back, "CPU/request")), (0, Some(Outcome::Improvement)));
    assert_eq!(compare::runs(&a, &b, 0.5).unwrap().conclusion, Conclusion::NoRegression, "the threshold is 50 %");
    let words = compare::headline(&found);
    assert!(words.starts_with("B answers ") && words.contains(" fewer requests than A ("), "{words}");
    assert!(words.contains("; 4 loads, 5 repeats)") && words.contains(" more CPU per request ("), "{words}");
    assert!(words.contains(". A regression: the threshold is 5 %."), "{words}");
}

/// The printed interval decides: a figure whose interval is beyond the threshold is not undecided, and one whose
/// interval contains no change is not worse.
#[test]
fn the_interval_decides() {
    for (seed, times) in (0..120).map(|seed| (seed, 0.9 + 0.002 * f64::from(seed as u32))) {
        let server = Server { demand: steady().demand * times, ..steady() };
        let found = compare::runs(&run(&steady(), seed, 4), &run(&server, 900 + seed, 4), 0.05).unwrap();
        for figure in &found.figures {
            let (low, high) = figure.ratio.interval().unwrap();
            let worse = |ratio: f64| if figure.better == compare::Better::Higher { 1.0 - ratio } else { ratio - 1.0 };
            let (least, most) = (worse(low).min(worse(high)), worse(low).max(worse(high)));
            let wanted = match figure.outcome {
                Outcome::Regression => least > 0.0 && most > 0.05,
                Outcome::Improvement => most < 0.0,
                Outcome::NotWorse => (0.0..=0.05).contains(&most),
                Outcome::Unclear => least <= 0.0 && most > 0.05,
                Outcome::Untested => false,
            };
            assert!(wanted, "{figure:?}");
        }
        let open = found.figures.iter().filter(|figure| figure.is_main && figure.outcome == Outcome::Unclear);
        let worse = found.regressions().count() > 0;
        let wanted = match (worse, open.count()) {
            (true, _) => Conclusion::Regression,
            (false, 0) => Conclusion::NoRegression,
            (false, _) => Conclusion::CouldNotTell,
        };
        assert_eq!(found.conclusion, wanted, "{found:?}");
    }
}

/// Errors that are quicker than answers make every other figure better.
#[test]
fn a_server_with_errors_is_worse_even_if_its_errors_are_fast() {
    let failing = |seed: u64, share: f64| {
        let quicker = Server { demand: steady().demand * (1.0 - share), ..steady() };
        let mut failing = run(&quicker, seed, 5);
        for point in &mut failing.points {
            let failed = (point.outcomes.ok as f64 * share) as u64;
            (point.outcomes.ok, point.outcomes.non_2xx) = (point.outcomes.ok - failed, failed);
            let (good, n) = (point.value(names::THROUGHPUT).unwrap() * (1.0 - share), point.outcomes.ok);
            point.figures.set(names::GOODPUT, record::Figure::new(good, "1/s", n, record::Origin::Counted));
        }
        failing
    };
    let whole = run(&steady(), 1, 5);
    for share in [0.01, 0.3, 0.6, 1.0] {
        let found = compare::runs(&whole, &failing(2, share), 0.05).unwrap();
        assert_eq!(found.conclusion, Conclusion::Regression, "{share}: {found:#?}");
        assert_eq!(outcome(&found, "good answers"), Some(Outcome::Regression), "{share}: {found:#?}");
        let back = compare::runs(&failing(2, share), &whole, 0.05).unwrap();
        assert_eq!(outcome(&back, "good answers"), Some(Outcome::Improvement), "{share}: {back:#?}");
    }
    // Each figure has its own limit, which the sentences name.
    let few = compare::headline(&compare::runs(&whole, &failing(2, 0.01), 0.05).unwrap());
    assert!(few.starts_with("B gives 1.0 % fewer good answers than A (1.0 % to 1.0 %; 4 loads, 5 repeats)"), "{few}");
    assert!(few.contains(". A regression: the threshold is 0.1 %."), "{few}");
    let many = compare::headline(&compare::runs(&whole, &failing(2, 0.3), 0.05).unwrap());
    assert!(many.contains(". A regression: the threshold is 5 % (good answers: 0.1 %)."), "{many}");
    let fine = compare::headline(&compare::runs(&whole, &whole, 0.025).unwrap());
    assert!(
        fine.starts_with("No difference above ") && fine.contains(" in throughput and CPU per request ("),
        "{fine}"
    );
    // Errors within the limit are not mentioned. If both runs fail, more errors are worse, and about as many are not.
    let of_good =
        |a: f64, b: f64| outcome(&compare::runs(&failing(1, a), &failing(2, b), 0.05).unwrap(), "good answers");
    assert_eq!(of_good(0.0, 0.0005), None);
    assert_eq!(of_good(0.003, 0.4), Some(Outcome::Regression));
    assert_eq!(of_good(0.3, 0.31), Some(Outcome::NotWorse));
}

/// Changes a point as if the server never answered `silent` of its connections.
fn hangs(point: &mut record::Point, silent: u64) {
    let (outcomes, connections) = (&mut point.outcomes, point.connections);
    (outcomes.connections_used, outcomes.connections_silent, outcomes.unfinished) = (connections, silent, silent);
    if silent == connections {
        (outcomes.sent, outcomes.carried_in, outcomes.ok) = (0, connections, 0);
        point.figures = record::Figures::default();
        point.figures.set(names::THROUGHPUT, record::Figure::new(0.0, "1/s", 0, record::Origin::Counted));
    }
}

#[test]
fn a_server_that_leaves_connections_unanswered_is_worse() {
    let hanging = |seed: u64, silent: u64, repeats: u32| {
        let mut run = run(&steady(), seed, 4);
        let hit = run.points.iter_mut().filter(|point| point.connections == 8 && point.repeat < repeats);
        hit.for_each(|point| hangs(point, silent));
        run
    };
    let whole = run(&steady(), 1, 4);
    for (silent, word) in [(8, "throughput"), (8, "good answers"), (4, "good answers")] {
        for compared in [compare::runs, compare::interleaved] {
            let found = compared(&whole, &hanging(1, silent, 4), 0.05).unwrap();
            assert_eq!(outcome(&found, word), Some(Outcome::Regression), "{silent} {word}: {found:#?}");
            let back = compared(&hanging(1, silent, 4), &whole, 0.05).unwrap();
            assert_eq!(back.regressions().count(), 0, "{back:#?}");
            // One load of four; the others are not worse.
            let good = found.figures.iter().find(|figure| figure.word == "good answers").unwrap();
            let departing: Vec<f64> = good.loads.iter().filter(|at| at.departs).map(|at| at.load).collect();
            assert_eq!(departing, [8.0], "{good:#?}");
            assert!(compare::headline(&found).contains(" at 8 conns"), "{}", compare::headline(&found));
        }
    }
    // Occasional hangs are shown neither to be worse nor to be equal.
    for (silent, repeats) in [(8, 1), (8, 2), (4, 1), (4, 2)] {
        let found = compare::runs(&whole, &hanging(1, silent, repeats), 0.05).unwrap();
        assert_eq!(found.conclusion, Conclusion::CouldNotTell, "{silent} {repeats}: {found:#?}");
    }
    let both = compare::runs(&hanging(1, 4, 4), &hanging(1, 4, 4), 0.05).unwrap();
    assert_eq!(both.conclusion, Conclusion::NoRegression, "{both:#?}");
}

#[test]
fn a_load_at_which_one_run_sent_no_request_is_reported() {
    let whole = run(&steady(), 1, 4);
    let mut half = whole.clone();
    for point in half.points.iter_mut().filter(|point| point.connections == 8) {
        point.outcomes = record::Outcomes::default();
        point.figures = record::Figures::default();
        point.duration_ns = 0;
    }
    for (a, b, words) in [(&whole, &half, "B sent no request"), (&half, &whole, "A sent no request")] {
        let found = compare::runs(a, b, 0.05).unwrap();
        assert_eq!(found.conclusion, Conclusion::CouldNotTell, "{found:#?}");
        assert!(
            found
                .doubts
                .contains(&format!("{words} at 8 connections, and the other run did, so this load is not compared")),
            "{found:#?}"
        );
        assert_eq!(found.unmatched, 0, "both runs have this load");
        let said = compare::headline(&found);
        assert!(said.starts_with("Could not tell: at some loads one of the runs sent no request; at the "), "{said}");
    }
}

#[test]
fn doubts_about_points_apply_to_the_comparison() {
    let (a, mut b) = (run(&steady(), 1, 4), run(&steady(), 2, 4));
    let what = "other processes used 1.70 CPUs of those under test";
    for point in b.points.iter_mut().take(3) {
        point.doubts.push(DoubtKind::NoisyNeighbour.warning(what, "stop them"));
    }
    let found = compare::runs(&a, &b, 0.05).unwrap();
    assert_eq!(found.doubts, [format!("B: 3 of 16 points: {what}")]);
    // If the client was the limit, equal figures show nothing about the servers.
    let quiet = Server { noise: 0.001, drift: 0.0, ..Server::default() };
    let (mut a, mut b) = (run(&quiet, 1, 8), run(&quiet, 2, 8));
    assert_eq!(compare::runs(&a, &b, 0.05).unwrap().conclusion, Conclusion::NoRegression);
    for point in a.points.iter_mut().chain(&mut b.points) {
        point.doubts.push(DoubtKind::ClientSaturated.invalid("the client used 99 %", "more CPUs"));
    }
    let found = compare::runs(&a, &b, 0.05).unwrap();
    assert_eq!(found.conclusion, Conclusion::CouldNotTell);
    assert!(found.doubts[0].starts_with("A and B: 32 of 32 points: the client used 99 %"), "{:?}", found.doubts);
}

#[test]
fn single_loads_at_a_rate_are_compared_by_their_rate_and_only_with_each_other() {
    let loads = |seed: u64, is_open: bool| {
        let mut bench = Bench::new(steady(), seed);
        for repeat in 0..3 {
            if is_open {
                bench.open(5000.0, repeat, 1_000_000_000);
            } else {
                bench.closed(5000, repeat, 1_000_000_000);
            }
        }
        bench.points.iter_mut().for_each(|point| point.sweep = record::Sweep::Single);
        RunDir { points: bench.points, ..run(&steady(), seed, 0) }
    };
    let (open, closed) = ([loads(1, true), loads(2, true)], [loads(3, false), loads(4, false)]);
    let words = |[a, b]: &[RunDir; 2]| {
        let found = compare::runs(a, b, 0.05).unwrap();
        let loads = found.figures.iter().flat_map(|figure| &figure.loads);
        loads.map(compare::load_words).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(words(&open), ["5000/s".to_string()].into());
    assert_eq!(words(&closed), ["5,000 conns".to_string()].into());
    let said = compare::runs(&open[0], &closed[0], 0.05).unwrap_err().to_string();
    assert!(said.contains("no load in common"), "{said}");
}

#[test]
fn untestable_figures_are_reported() {
    let (a, b) = (run(&steady(), 1, 1), run(&steady(), 2, 1));
    let found = compare::runs(&a, &b, 0.05).unwrap();
    assert!(found.figures.iter().all(|found| found.outcome == Outcome::Untested));
    assert!(found.doubts.iter().any(|doubt| doubt.contains("nothing could be tested")));
    assert_eq!(found.conclusion, Conclusion::CouldNotTell);
    assert_eq!(compare::headline(&found), "Could not tell: no figure could be tested.");
    let mut other = run(&steady(), 3, 1);
    for point in &mut other.points {
        point.connections += 10_000;
    }
    let said = compare::runs(&a, &other, 0.05).unwrap_err().to_string();
    assert!(said.contains("no load in common"), "{said}");
    let mut elsewhere = b.clone();
    elsewhere.record.machine.kernel = "other".into();
    elsewhere.record.started_unix_ms += 3_600_000;
    let doubts = compare::runs(&a, &elsewhere, 0.05).unwrap().doubts;
    assert!(doubts[0].contains("different machines") && doubts[1].contains("60 minutes"), "{doubts:?}");
}

#[test]
fn a_baseline_from_a_machine_with_other_cpus_raises_a_doubt_that_names_the_difference() {
    let with_quota = |cpus: Option<f64>| {
        let mut run = run(&steady(), 1, 2);
        for point in &mut run.points {
            point.figures.set(names::SERVER_CPUS, record::Figure::new(2.0, "count", 1, record::Origin::Counted));
            if let Some(cpus) = cpus {
                point.figures.set(names::SERVER_QUOTA, record::Figure::new(cpus, "CPUs", 1, record::Origin::Counted));
            }
        }
        run
    };
    let (a, b) = (with_quota(None), with_quota(Some(0.5)));
    assert_eq!(
        compare::runs(&a, &b, 0.05).unwrap().doubts,
        ["the runs come from different machines, kernels or CPUs: the server's CPU time limit none (A) against \
             0.5 CPUs (B); these may explain the difference"]
    );
    for (change, wanted) in [
        (|record| record.machine.cpus = 8, "CPUs 2 (A) against 8 (B)"),
        (
            |record| fixture::loaded(record).server.as_mut().unwrap().cpus = vec![1, 2, 3],
            "server's CPUs 1 (A) against 3 (B)",
        ),
        (|record| record.machine.cpu_model = "Other".into(), "CPU Example CPU at 2.6 GHz (A) against Other (B)"),
    ] as [(fn(&mut record::RunRecord), &str); 3]
    {
        let doubts = doubts_after(change);
        assert!(doubts.len() == 1 && doubts[0].contains(wanted), "{doubts:?}");
    }
    let (mut a, mut b) = (run(&steady(), 1, 2), run(&steady(), 2, 2));
    b.record.machine.governor = Some("powersave".into());
    assert_eq!(compare::runs(&a, &b, 0.05).unwrap().doubts, Vec::<String>::new(), "only one says");
    a.record.machine.governor = Some("performance".into());
    let doubts = compare::runs(&a, &b, 0.05).unwrap().doubts;
    assert!(doubts[0].contains("governor performance (A) against powersave (B)"), "{doubts:?}");
}

/// The doubts when a run is compared with a run of the same server with a changed record.
fn doubts_after(change: impl Fn(&mut record::RunRecord)) -> Vec<String> {
    let (a, mut b) = (run(&steady(), 1, 2), run(&steady(), 2, 2));
    change(&mut b.record);
    compare::runs(&a, &b, 0.05).unwrap().doubts
}

#[test]
fn two_runs_of_one_server_raise_no_doubt() {
    assert_eq!(doubts_after(|_| ()), Vec::<String>::new());
}

#[test]
fn runs_of_different_servers_raise_a_doubt_that_names_the_difference() {
    let set = |record: &mut record::RunRecord, facts: &[(&str, &str)]| {
        record.server_facts.extend(facts.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    };
    let server = doubts_after(|record| {
        fixture::loaded(record).server.as_mut().unwrap().argv = vec!["apache2".into(), "-X".into()]
    });
    assert_eq!(server.len(), 1, "{server:?}");
    assert!(server[0].starts_with("the two runs measured different servers: "), "{server:?}");
    assert!(server[0].contains("command line nginx -c nginx.conf (A) against apache2 -X (B)"), "{server:?}");
    let version = doubts_after(|record| set(record, &[("version", "nginx/1.26.0")]));
    assert!(version[0].contains("version nginx/1.22.1 (A) against nginx/1.26.0 (B)"), "{version:?}");
    assert_eq!(doubts_after(|record| set(record, &[("program", "nginx"), ("pid", "7")])).len(), 0, "only one says");
    let (mut a, mut b) = (run(&steady(), 1, 2), run(&steady(), 2, 2));
    set(&mut a.record, &[("program", "nginx"), ("executable", "/usr/sbin/nginx")]);
    set(&mut b.record, &[("program", "ng\u{1b}[31m"), ("executable", "/opt/nginx"), ("scalable_select", "preloaded")]);
    let said = compare::runs(&a, &b, 0.05).unwrap();
    assert!(said.doubts[0].contains("program nginx (A) against ng?[31m (B); scalable select"), "{:?}", said.doubts);
    assert_eq!(compare::interleaved(&a, &b, 0.05).unwrap().doubts, Vec::<String>::new(), "they took turns on purpose");
}

#[test]
fn long_command_lines_are_quoted_from_their_first_difference() {
    let said = |a: &str, b: &str| {
        let of = |seed, command: &str| {
            let mut run = run(&steady(), seed, 2);
            let server = fixture::loaded(&mut run.record).server.as_mut();
            server.unwrap().argv = command.split(' ').map(String::from).collect();
            run
        };
        compare::runs(&of(1, a), &of(2, b), 0.05).unwrap().doubts.remove(0)
    };
    let same = "server --with-a-long-option=1 --and-another-one=2 --and-a-third-one=3 -c";
    let words = said(&format!("{same} /a/x.conf"), &format!("{same} /b/x.conf"));
    assert!(words.contains("command line ... -c /a/x.conf (A) against ... -c /b/x.conf (B)"), "{words}");
    let words = said(&"x".repeat(500), "y");
    assert!(words.matches('x').count() < 80 && words.contains("(A) against y (B)"), "a path without end: {words}");
}

#[test]
fn different_requests_raise_a_doubt_and_a_different_port_does_not() {
    let other = doubts_after(|record| {
        fixture::loaded(record).load.targets[0].path = "/10k.bin".into();
        fixture::loaded(record).load.requests_per_connection = 1;
    });
    assert_eq!(other.len(), 1, "{other:?}");
    assert!(
        other[0].starts_with("the two runs sent different requests: request GET /1k.bin (A) against GET /10k.bin (B)")
    );
    assert!(other[0].contains("requests per connection no limit (A) against 1 (B)"), "{other:?}");
    let mix = doubts_after(|record| fixture::loaded(record).load.workload.name = "webstone".into());
    assert!(mix[0].contains("workload none (A) against webstone (B)"), "{mix:?}");
    let slow = doubts_after(|record| fixture::loaded(record).load.clients.read_bytes_per_sec = 1000);
    assert!(slow[0].contains("another kind of clients"), "{slow:?}");
    let moved = doubts_after(|record| {
        fixture::loaded(record).url = "http://127.0.0.1:9090/1k.bin".into();
        fixture::loaded(record).load.host = "127.0.0.1:9090".into();
    });
    assert_eq!(moved, Vec::<String>::new());
}
