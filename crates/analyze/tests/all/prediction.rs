//! Predictions from whole runs: synthetic servers of known behaviour, a server that was measured, and bad input.

use crate::server::{Bench, Server};
use crate::{fixture, reference};
use analyze::predict::{self, Prediction};
use record::{Figure, Origin, Point, RunDir, RunRecord, Status, Sweep, WhatIf, names};
use statistics::server::Form;
use std::path::PathBuf;

fn run_of(points: Vec<Point>, cpus: usize) -> RunDir {
    let mut record: RunRecord = fixture::record();
    record.status = Status::Complete;
    fixture::loaded(&mut record).server.as_mut().unwrap().cpus = (1..=cpus).collect();
    RunDir { path: PathBuf::from("runs/test"), record, points, reading_doubts: vec![] }
}

pub const LOADS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096];

pub fn measured(server: &Server, loads: &[u64], repeats: u32) -> RunDir {
    let mut bench = Bench::new(server.clone(), 7);
    for repeat in 0..repeats {
        for load in loads {
            bench.closed(*load, repeat, 1_000_000_000);
        }
    }
    let mut points = bench.points;
    for point in &mut points {
        let mean = point.connections as f64 / point.value(names::THROUGHPUT).unwrap() * 1e6;
        point.figures.set(names::RESPONSE_MEAN, Figure::new(mean, "us", 1000, Origin::Timed));
    }
    run_of(points, 1)
}

pub fn asked(run: &RunDir, question: WhatIf) -> Prediction {
    predict::of_runs(std::slice::from_ref(run), &question).unwrap()
}

pub fn value(prediction: &Prediction, name: &str) -> f64 {
    prediction.answer.numbers.iter().find(|number| number.name == name).unwrap().estimate.unwrap().value
}

#[track_caller]
pub fn within(found: f64, truth: f64, share: f64) {
    assert!((found / truth - 1.0).abs() <= share, "{found} is more than {share} off {truth}");
}

pub fn quiet() -> Server {
    Server { path: 500e-6, noise: 0.01, drift: 0.01, ..Server::default() }
}

#[test]
fn loads_that_were_not_measured_are_predicted() {
    let server = quiet();
    let run = measured(&server, &LOADS, 3);
    for n in [3u64, 24, 100, 2000] {
        let prediction = asked(&run, WhatIf { connections: Some(n), ..WhatIf::default() });
        within(value(&prediction, "throughput"), server.throughput(n as f64), 0.03);
        within(value(&prediction, "response mean"), n as f64 / server.throughput(n as f64), 0.03);
        let number = &prediction.answer.numbers[0];
        let (low, high) = number.estimate.unwrap().interval().unwrap();
        assert!(low < high && high / low < 1.1, "{number:?}");
    }
}

#[test]
fn points_up_to_half_the_yield_point_predict_the_rest() {
    let server = Server { path: 2e-3, ..quiet() };
    let run = measured(&server, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 3);
    let found = asked(&run, WhatIf::default()).extrapolation.unwrap();
    let (measured, predicted) = found.yield_connections.unwrap();
    within(predicted.unwrap(), measured, 0.10);
    within(predicted.unwrap(), server.true_yield(), 0.10);
    assert!(found.median_error_ratio.unwrap() < 0.10 && found.doubt.is_none(), "{found:?}");
    assert!(found.up_to_load <= measured / 2.0 && found.beyond.len() >= 3, "{found:?}");
}

#[test]
fn both_loops_are_predicted_from_points_up_to_half_the_yield_point_or_a_doubt_says_why_not() {
    let both = |server: &Server, seed: u64| {
        let mut run = measured(server, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 3);
        let mut bench = Bench::new(server.clone(), seed);
        for repeat in 0..3 {
            for rate in [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 0.9, 0.95, 1.05, 1.1].map(|share| share * server.capacity()) {
                bench.open(rate, repeat, 1_000_000_000);
            }
        }
        run.points.extend(bench.points);
        asked(&run, WhatIf::default())
    };
    let steady =
        both(&Server { path: 2e-3, ..quiet() }, 3).validation.expect("three loads lie below half the yield point");
    let of = |name: &str, sweep: &str| -> Vec<f64> {
        let wanted = steady.numbers.iter().filter(|number| number.name == name && number.sweep == sweep);
        wanted.filter_map(|number| number.error_ratio).collect()
    };
    for (name, sweep) in [
        ("throughput", "closed"),
        ("p50", "closed"),
        ("peak throughput", "closed"),
        ("yield point", "closed"),
        ("plan for", "open"),
        ("breaks at", "open"),
    ] {
        let errors = of(name, sweep);
        let limit = if name == "p50" || name == "yield point" { 0.20 } else { 0.10 };
        assert!(!errors.is_empty() && errors.iter().all(|error| error.abs() <= limit), "{name}: {errors:?}");
    }
    let grows = both(&Server { path: 2e-3, doubles_at: 400.0, ..quiet() }, 3).validation.expect("fitted");
    assert!(grows.numbers.iter().any(|number| !number.passes()), "a cost that grows beyond cannot be seen below");
    assert!(grows.doubts.iter().any(|doubt| doubt.contains("compared with the fit")), "{:?}", grows.doubts);
}

/// A run with requests of two classes, which cost 10 and 100 us, in these shares.
fn mixed(large: f64) -> RunDir {
    let demand = (1.0 - large) * 10e-6 + large * 100e-6;
    let mut run = measured(&Server { demand, ..quiet() }, &[1, 4, 16, 64, 256], 3);
    for point in &mut run.points {
        let class = |label: &str, share: f64| {
            let mut class =
                record::workload::ClassResult::new(record::workload::Grouping::Size, label, &record::Latency::new());
            class.requests = (share * point.outcomes.sent as f64) as u64;
            class
        };
        point.workload.classes = vec![class("to 64.0 KiB", 1.0 - large), class("larger", large)];
    }
    run
}

#[test]
fn background_work_is_distinguished_from_the_cost_of_requests() {
    let server = Server { path: 10e-3, ..quiet() };
    let mut run = measured(&server, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], 3);
    for point in &mut run.points {
        let rate = point.value(names::THROUGHPUT).unwrap();
        let busy = point.value(names::SERVER_CPU_BUSY).unwrap() + 0.04;
        point.figures.set(names::SERVER_CPU_BUSY, Figure::new(busy.min(1.0), "ratio", 1, Origin::Counted));
        point.figures.set(names::SERVER_CPU, Figure::new(busy / rate * 1e6, "us", 1, Origin::Counted));
    }
    let found = asked(&run, WhatIf::default()).extrapolation.unwrap();
    let fitted = found.server.expect("eight loads lie below half the yield point");
    assert_eq!(found.form, Some(Form::Background), "{found:?}");
    within(fitted.background_cpus, 0.04, 0.25);
    within(fitted.base_s, server.demand, 0.05);
    assert!(found.median_error_ratio.unwrap() < 0.10, "{found:?}");
}

/// A server with the demand of the fitted form, so that only noise separates model and points.
fn of_form(truth: statistics::server::Server, loads: &[u64]) -> RunDir {
    let mut run = measured(&Server { path: truth.path_s, noise: 0.005, drift: 0.005, ..Server::default() }, loads, 3);
    for point in &mut run.points {
        let state = truth.closed(point.connections as f64, 0.0);
        let mut scatter = point.value(names::SERVER_CPU).unwrap() / 12.0;
        scatter = scatter.clamp(0.98, 1.02);
        let (rate, demand) = (state.throughput_per_sec * scatter, state.demand_s / scatter);
        for (name, value) in [
            (names::THROUGHPUT, rate),
            (names::GOODPUT, rate),
            (names::SERVER_CPU, demand * 1e6),
            (names::SERVER_CPU_BUSY, state.utilisation),
            (names::RESPONSE_MEAN, point.connections as f64 / rate * 1e6),
        ] {
            let unit = names::ALL.iter().find(|(known, ..)| *known == name).map_or("us", |(_, unit, _)| *unit);
            point.figures.set(name, Figure::new(value, unit, 1, Origin::Counted));
        }
    }
    run
}

#[test]
fn a_cost_that_grows_with_each_doubling_is_seen_below_the_yield_point() {
    let plain = asked(&measured(&quiet(), &LOADS, 3), WhatIf::default()).model;
    let truth = statistics::server::Server {
        form: Form::WakingDoubling,
        base_s: 6e-6,
        wake_s: 8e-6,
        cooling_s: 0.0,
        growth_s: 0.0,
        doubling_s: 0.5e-6,
        background_cpus: 0.0,
        cv_squared: 1.0,
        path_s: 10e-3,
        cpus: 1.0,
        ..plain
    };
    let run = of_form(truth, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 440, 1024, 2048, 4096, 8192]);
    let found = asked(&run, WhatIf::default()).extrapolation.unwrap();
    let (measured, predicted) = found.yield_connections.unwrap();
    assert!(found.up_to_load <= measured / 2.0, "{found:?}");
    within(predicted.unwrap(), measured, 0.15);
    assert!(found.median_error_ratio.unwrap() < 0.08, "{found:?}");
    // The capacity is the peak of the closed loop, with about 900 busy connections, not the rate at the cost of one
    // connection.
    let capacity = truth.capacity_per_sec(0.0);
    let peak = (0..1000).map(|step| truth.closed(1.01f64.powi(step), 0.0).throughput_per_sec).fold(0.0, f64::max);
    within(capacity, peak, 1e-4);
    within(capacity * (6e-6 + 0.5e-6 * (capacity * 10e-3).log2()), 1.0, 0.02);
}

#[test]
fn a_cost_that_is_higher_after_idling_is_not_extrapolated_to_a_full_server() {
    let plain = asked(&measured(&quiet(), &LOADS, 3), WhatIf::default()).model;
    let truth = statistics::server::Server {
        form: Form::Cooling,
        base_s: 14e-6,
        wake_s: 160e-6,
        cooling_s: 7e-3,
        cv_squared: 1.0,
        path_s: 10e-3,
        cpus: 1.0,
        ..plain
    };
    let run = of_form(truth, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]);
    let found = asked(&run, WhatIf::default()).extrapolation.unwrap();
    let (measured, predicted) = found.yield_connections.unwrap();
    assert!(found.up_to_load <= measured / 2.0, "{found:?}");
    within(predicted.unwrap(), measured, 0.15);
    let (low, high) = found.yield_range.unwrap();
    assert!(low <= predicted.unwrap() && predicted.unwrap() <= high, "{found:?}");
}

#[test]
fn an_unanswerable_kept_question_does_not_stop_the_other_answers() {
    let server = quiet();
    let mut run = measured(&server, &LOADS, 3);
    assert!(predict::kept(&run).is_empty());
    fixture::found(&mut run.record).what_ifs = vec![
        WhatIf { name: "many <b>".into(), connections: Some(2000), ..WhatIf::default() },
        WhatIf { cold: Some(500), ..WhatIf::default() },
        WhatIf { rate_times: Some(f64::NAN), ..WhatIf::default() },
        WhatIf { rate_times: Some(0.5), cpus: Some(2), ..WhatIf::default() },
    ];
    let kept = predict::kept(&run);
    let refused: Vec<bool> = kept.iter().map(|kept| kept.not_predicted.is_some()).collect();
    assert_eq!(refused, [false, true, true, false], "{kept:?}");
    let throughput = kept[0].answer.as_ref().unwrap().numbers[0].estimate.unwrap().value;
    within(throughput, server.throughput(2000.0), 0.03);
    assert!(kept[1].not_predicted.as_ref().unwrap().contains("--cold needs runs"), "{kept:?}");
    run.points.truncate(1);
    let none = predict::kept(&run);
    assert!(none.iter().all(|kept| kept.answer.is_none() && kept.not_predicted.is_some()), "{none:?}");
}

#[test]
fn another_mix_is_predicted_from_runs_with_different_mixes() {
    let ask = |runs: &[RunDir], shares: &[(&str, f64)]| {
        let mix = shares.iter().map(|(class, share)| (class.to_string(), *share)).collect();
        predict::of_runs(runs, &WhatIf { connections: Some(64), mix, ..WhatIf::default() })
    };
    let runs = [mixed(0.1), mixed(0.4)];
    let prediction = ask(&runs, &[("to 64.0 KiB", 0.75), ("2", 0.25)]).unwrap();
    let truth = Server { demand: 0.75 * 10e-6 + 0.25 * 100e-6, ..quiet() };
    within(value(&prediction, "throughput"), truth.throughput(64.0), 0.05);
    assert!(prediction.answer.question.contains("a mix of to 64.0 KiB 75.0 %"), "{}", prediction.answer.question);
    assert!(
        prediction.answer.assumptions.iter().any(|words| words.contains("25.0 % 'larger' at")),
        "{:?}",
        prediction.answer.assumptions
    );
    let refused = |runs: &[RunDir], shares: &[(&str, f64)], words: &str| {
        let why = ask(runs, shares).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    };
    refused(&runs[..1], &[("1", 0.5), ("2", 0.5)], "needs 2 runs with different mixes (given: 1)");
    refused(&[mixed(0.2), mixed(0.2)], &[("1", 0.5), ("2", 0.5)], "too similar");
    refused(
        &runs,
        &[("small", 1.0)],
        "'small' is not a class of these runs; they have 1 = 'to 64.0 KiB', 2 = 'larger'",
    );
    refused(&runs, &[("1", 0.5)], "the shares of the mix add up to 50.0 %");
    refused(&[measured(&quiet(), &LOADS, 2)], &[("1", 1.0)], "needs runs of one workload with the same classes");
}

/// The run of a server whose CPU time is 40 % TCP, 10 % in a function of its own, and the rest elsewhere.
pub fn with_layers(server: &Server) -> RunDir {
    let mut run = measured(server, &LOADS, 3);
    for point in &mut run.points {
        let whole = point.value(names::SERVER_CPU).unwrap();
        for (name, share) in [
            (names::LAYER_USER, 0.3),
            (names::LAYER_SYSTEM_CALL, 0.2),
            (names::LAYER_TCP, 0.4),
            (names::LAYER_IP, 0.05),
            (names::LAYER_ETHERNET, 0.0),
            (names::LAYER_DRIVER, 0.0),
            (names::LAYER_OTHER, 0.05),
            (names::LAYER_UNATTRIBUTED, 0.0),
        ] {
            point.figures.set(name, Figure::new(share * whole, "us", 100, Origin::Sampled));
        }
        point.functions = vec![record::point::FunctionCost {
            function: "parse".into(),
            module: Some("server".into()),
            layer: Some(record::layers::Layer::User),
            us_per_request: 0.1 * whole,
            samples: 100,
        }];
    }
    run
}

#[test]
fn a_cheaper_layer_or_function_reduces_the_cost_by_its_share() {
    let server = quiet();
    let run = with_layers(&server);
    let ask = |run: &RunDir, cheaper: &[(&str, f64)]| {
        let cheaper = cheaper.iter().map(|(name, share)| (name.to_string(), *share)).collect();
        predict::of_runs(std::slice::from_ref(run), &WhatIf { cheaper, ..WhatIf::default() })
    };
    for (cheaper, saved) in [
        (vec![("TCP", 0.5)], 0.2),
        (vec![("system-call", 1.0)], 0.2),
        (vec![("parse", 0.5)], 0.05),
        (vec![("tcp", 0.25), ("System Call", 0.5)], 0.2),
    ] {
        let prediction = ask(&run, &cheaper).unwrap();
        within(value(&prediction, "capacity"), 1.0 / (server.demand * (1.0 - saved)), 0.03);
        let words = format!("a request saves {:.1} % of its CPU time", saved * 100.0);
        let assumed = &prediction.answer.assumptions;
        assert!(assumed.iter().any(|assumed| assumed.contains(&words)), "{assumed:?}");
        assert!(prediction.answer.question.contains("% cheaper"), "{}", prediction.answer.question);
    }
    // Saving a cost that does not limit the server gains nothing.
    let mut limited = run.clone();
    limited.points.retain(|point| point.connections <= 64);
    for point in &mut limited.points {
        let n = point.connections as f64;
        let rate = (n * 100.0).min(1000.0);
        for (name, value) in [
            (names::THROUGHPUT, rate),
            (names::GOODPUT, rate),
            (names::SERVER_CPU_BUSY, rate * server.demand),
            (names::SERVER_CPU, server.demand * 1e6),
            (names::RESPONSE_MEAN, n / rate * 1e6),
        ] {
            let unit = names::ALL.iter().find(|(known, ..)| *known == name).map_or("us", |(_, unit, _)| *unit);
            point.figures.set(name, Figure::new(value, unit, 1, Origin::Counted));
        }
    }
    within(value(&ask(&limited, &[("tcp", 0.5)]).unwrap(), "capacity"), 1000.0, 0.01);
    let refused = |run: &RunDir, words: &str| {
        let why = ask(run, &[("nowhere", 0.5)]).unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    };
    refused(
        &run,
        "'nowhere' is neither a layer (user, system-call, tcp, ip, ethernet, driver, other, unattributed) nor one of",
    );
    refused(&run, "(parse and others)");
    refused(&measured(&server, &LOADS, 2), "needs profiled layers");
    let twice = WhatIf { cheaper: vec![("TCP".into(), 0.1), ("tcp".into(), 0.1)], ..WhatIf::default() };
    assert!(predict::what_if::check(&twice).unwrap_err().to_string().contains("twice"));
    let most = WhatIf { cheaper: vec![("tcp".into(), 1.5)], ..WhatIf::default() };
    assert!(predict::what_if::check(&most).unwrap_err().to_string().contains("at most 100 %"));
}

#[test]
fn growth_with_connections_is_found_and_predicted() {
    let server = Server { doubles_at: 4000.0, ..quiet() };
    let run = measured(&server, &LOADS, 3);
    let prediction = asked(&run, WhatIf { connections: Some(8000), ..WhatIf::default() });
    assert!(
        matches!(prediction.model.form, Form::Growing | Form::WakingGrowing | Form::BackgroundGrowing),
        "{:?}",
        prediction.model
    );
    within(prediction.model.growth_s * 4000.0, prediction.model.base_s, 0.1);
    within(value(&prediction, "throughput"), server.throughput(8000.0), 0.06);
    assert!(prediction.checks.iter().any(|check| check.form == Form::Constant && !check.is_offered));
}

#[test]
fn predictions_for_more_cpus_and_a_longer_path_match_the_simulated_server() {
    let server = quiet();
    let run = measured(&server, &LOADS, 3);
    let longer = Server { path: server.path + 40e-3, ..server.clone() };
    let prediction = asked(&run, WhatIf { connections: Some(4000), delay_ns: Some(40_000_000), ..WhatIf::default() });
    within(value(&prediction, "throughput"), longer.throughput(4000.0), 0.03);
    assert!(value(&prediction, "response p50") > 40e-3);
    within(value(&prediction, "yield point"), longer.true_yield(), 0.1);
    let prediction = asked(&run, WhatIf { connections: Some(1000), cpus: Some(4), ..WhatIf::default() });
    within(value(&prediction, "capacity"), 4.0 / server.demand, 0.03);
    assert!(prediction.answer.assumptions.iter().any(|words| words.contains("contend")));
    let question = WhatIf { rate_times: Some(2.0), ..WhatIf::default() };
    let over = asked(&run, question.clone());
    assert!(over.answer.bottleneck.contains("CPU"), "{}", over.answer.bottleneck);
    let mean = over.answer.numbers.iter().find(|number| number.name == "response mean").unwrap();
    assert!(mean.estimate.is_none() && mean.not_predicted.as_ref().unwrap().contains("beyond the capacity"));
    let enough = asked(&run, WhatIf { cpus: Some(4), ..question });
    assert!(value(&enough, "response p99") > value(&enough, "response p50"));
    within(value(&enough, "utilisation"), 0.5, 0.05);
}

#[test]
fn cold_connections_are_predicted_only_from_runs_that_measured_them() {
    let server = quiet();
    let mut points = Vec::new();
    for cold in [0.0, 5000.0] {
        let cost = Server { demand: server.demand * (1.0 + cold / 10_000.0), ..server.clone() };
        for mut point in measured(&cost, &LOADS, 2).points {
            point.figures.set(names::COLD, Figure::new(cold, "connections", 1, Origin::Counted));
            points.push(point);
        }
    }
    let run = run_of(points, 1);
    let cold = WhatIf { cold: Some(10_000), connections: Some(64), ..WhatIf::default() };
    within(value(&asked(&run, cold.clone()), "capacity"), 0.5 / server.demand, 0.05);
    let scaled = asked(&run, WhatIf { scaled_select: true, ..cold.clone() });
    within(value(&scaled, "capacity"), 1.0 / server.demand, 0.05);
    let without = measured(&server, &LOADS, 2);
    let said = |question: &WhatIf| predict::of_runs(std::slice::from_ref(&without), question).unwrap_err().to_string();
    assert!(said(&cold).contains("--cold needs runs with different numbers of cold connections"));
    let scaled = WhatIf { scaled_select: true, ..WhatIf::default() };
    assert!(said(&scaled).contains("--scaled-select needs runs"));
}

#[test]
fn the_measured_nginx_sweep_is_modelled_with_a_doubt_about_its_short_path() {
    let run = run_of(reference::points(), 1);
    let prediction = asked(&run, WhatIf { connections: Some(512), ..WhatIf::default() });
    let chosen = prediction.checks.iter().find(|check| check.form == prediction.model.form).unwrap();
    assert!(chosen.median_error_ratio.unwrap() < 0.10, "{chosen:?}");
    // Between the two measured neighbours, 80k at 256 and 61k at 1,024 connections.
    let rate = value(&prediction, "throughput");
    assert!((55_000.0..85_000.0).contains(&rate), "{rate}");
    let doubt = prediction.extrapolation.unwrap().doubt.unwrap();
    assert!(doubt.contains("at most half the yield point"), "{doubt}");
}

/// Medians that `find` printed for nginx with one worker on 2026-11-21: connections, requests per
/// second, busy share of the server's CPU.
const KEPT: [(u64, f64, f64); 14] = [
    (1, 33.4e3, 0.59),
    (2, 51.4e3, 0.77),
    (3, 69.5e3, 0.98),
    (4, 71.2e3, 0.99),
    (8, 72.7e3, 0.99),
    (16, 70.9e3, 0.99),
    (32, 71.7e3, 1.0),
    (64, 70.7e3, 0.99),
    (128, 71.2e3, 1.0),
    (256, 71.9e3, 1.0),
    (512, 66.8e3, 1.0),
    (1024, 62.1e3, 1.0),
    (2048, 64.1e3, 1.0),
    (4096, 60.6e3, 1.0),
];

#[test]
fn the_kept_run_of_nginx_predicts_each_of_its_loads_from_the_others() {
    let mut points = reference::points();
    points.truncate(KEPT.len());
    for (point, (connections, rate, busy)) in points.iter_mut().zip(KEPT) {
        point.connections = connections;
        point.figures.set(names::THROUGHPUT, Figure::new(rate, "1/s", 1, Origin::Counted));
        point.figures.set(names::SERVER_CPU_BUSY, Figure::new(busy, "ratio", 1, Origin::Counted));
        point.figures.set(names::SERVER_CPU, Figure::new(busy / rate * 1e6, "us", 1, Origin::Counted));
    }
    let prediction = asked(&run_of(points, 1), WhatIf { connections: Some(6), ..WhatIf::default() });
    let chosen = prediction.checks.iter().find(|check| check.form == prediction.model.form).unwrap();
    assert!(chosen.median_error_ratio.unwrap() < 0.10 && prediction.model.form != Form::Usl, "{chosen:?}");
    assert!(prediction.model.growth_s > 0.0, "a request cost more at 4,096 connections: {:?}", prediction.model);
    within(value(&prediction, "throughput"), 72e3, 0.10);
    within(value(&prediction, "yield point"), 2.6, 0.25);
    // The yield point is at 3 connections, so nothing can be fitted below half of it, which is reported.
    assert!(
        prediction.doubts.iter().any(|doubt| doubt.contains("at most half the yield point")),
        "{:?}",
        prediction.doubts
    );
}

#[test]
fn fitted_demands_and_lines_equal_those_of_the_server() {
    let mut bench = Bench::new(quiet(), 3);
    for repeat in 0..3 {
        for rate in [10e3, 20e3, 30e3, 40e3, 50e3] {
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    let mut run = measured(&quiet(), &LOADS, 3);
    run.points.extend(bench.points);
    let prediction = asked(&run, WhatIf::default());
    let open = prediction.measured.iter().find(|measured| measured.sweep == "open loop").unwrap();
    let idle = &open.regressions.iter().find(|regression| regression.part == "idle").unwrap().line;
    within(-idle.slope.value, quiet().demand, 0.05);
    within(idle.x_intercept.unwrap().value, quiet().capacity(), 0.05);
    let (low, high) = idle.x_intercept.unwrap().interval().unwrap();
    assert!(low < quiet().capacity() && quiet().capacity() < high, "{idle:?}");
    for demand in open.demands.iter().filter(|demand| demand.resource == "cpu") {
        within(demand.demand_us.value, 12.0, 0.05);
        assert_eq!(demand.demand_us.n, 3);
    }
}

#[test]
fn unsuitable_runs_are_refused_in_one_sentence() {
    let said = |points: Vec<Point>| {
        let error = predict::of_runs(&[run_of(points, 1)], &WhatIf::default()).unwrap_err();
        let words = error.to_string();
        assert!(words.len() < 400 && !words.contains('\n'), "{words}");
        words
    };
    let all = |loads: &[u64]| measured(&quiet(), loads, 3).points;
    assert!(said(vec![]).contains("no point with a throughput"));
    assert!(said(all(&[64])).contains("all points are at one load, 64 connections"));
    assert!(said(all(&[1, 64])).contains("too few"));
    let mut blind = all(&LOADS);
    for point in &mut blind {
        point.figures.0.retain(|name, _| !name.starts_with("server."));
    }
    assert!(said(blind).contains("did not watch the server's CPU"));
    let mut negative = all(&LOADS);
    negative[4].figures.set(names::SERVER_CPU, Figure::new(-3.0, "us", 1, Origin::Counted));
    assert!(said(negative).contains("point 004 of runs/test has server.cpu_us_per_request = -3"));
    // Throughput without any law: every second load at a tenth of the speed.
    let mut wild = all(&LOADS);
    for point in wild.iter_mut().filter(|point| point.connections.trailing_zeros() % 2 == 1) {
        let rate = point.value(names::THROUGHPUT).unwrap() / 10.0;
        point.figures.set(names::THROUGHPUT, Figure::new(rate, "1/s", 1, Origin::Counted));
    }
    assert!(said(wild).contains("no model passed the check"));
    let mut open = Bench::new(quiet(), 3);
    for rate in [10e3, 20e3, 30e3] {
        open.open(rate, 0, 1_000_000_000);
    }
    assert!(said(open.points).contains("only open-loop points"));
    let two = [run_of(all(&LOADS), 1), run_of(all(&LOADS), 2)];
    let why = predict::of_runs(&two, &WhatIf::default()).unwrap_err().to_string();
    assert!(why.contains("predict from runs with the same CPUs"), "{why}");
}

#[test]
fn any_figures_are_accepted_without_panic() {
    for bad in [f64::NAN, f64::INFINITY, 1e300, 1e-300, 0.0] {
        for name in
            [names::THROUGHPUT, names::SERVER_CPU_BUSY, names::RESPONSE_MEAN, names::COLD, names::MACHINE_OTHERS]
        {
            let mut run = measured(&quiet(), &[1, 4, 16, 64], 2);
            for point in run.points.iter_mut().step_by(3) {
                point
                    .figures
                    .0
                    .insert(name.into(), Figure { value: Some(bad), ..Figure::new(1.0, "us", 1, Origin::Counted) });
            }
            let _ = predict::of_runs(&[run], &WhatIf { rate_times: Some(0.5), ..WhatIf::default() });
        }
    }
}

#[test]
fn other_work_on_the_machine_raises_a_doubt() {
    let mut run = measured(&quiet(), &LOADS, 3);
    for point in &mut run.points {
        point.figures.set(names::MACHINE_OTHERS, Figure::new(0.7, "CPUs", 1, Origin::Counted));
    }
    // Here the server's own account lacks 15 % of softirq time, because this synthetic server reports both.
    let prediction = asked(&run, WhatIf::default());
    assert!(prediction.doubts.iter().any(|doubt| doubt.contains("0.70 CPUs")), "{:?}", prediction.doubts);
    assert!(run.points.iter().all(|point| point.sweep == Sweep::Connections));
}
