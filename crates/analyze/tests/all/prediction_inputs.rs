//! Predictions from runs other than a plain closed loop of good answers from one server on whole CPUs.

use crate::fixture;
use crate::prediction::{LOADS, asked, measured, quiet, value, with_layers, within};
use crate::server::{Bench, Server};
use analyze::predict;
use record::protocol::{Http2Plan, MemcachedPlan, Protocol, RedisPlan};
use record::{Figure, Origin, Point, RunDir, WhatIf, names};

fn set(point: &mut Point, name: &'static str, value: f64) {
    let unit = names::ALL.iter().find(|(known, ..)| *known == name).map_or("us", |(_, unit, _)| *unit);
    point.figures.set(name, Figure::new(value, unit, 1000, Origin::Counted));
}

fn refused(runs: &[RunDir], question: &WhatIf) -> String {
    predict::of_runs(runs, question).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_cpu_limit_is_raised_with_the_requested_cpus() {
    // Half a CPU and 100 us per request: 5,000 per second.
    let mut run = measured(&Server { demand: 200e-6, path: 5e-3, ..quiet() }, &LOADS, 3);
    for point in &mut run.points {
        let cpu_us = point.value(names::SERVER_CPU).unwrap() / 2.0;
        let busy = (point.value(names::THROUGHPUT).unwrap() * cpu_us * 1e-6).min(0.5);
        set(point, names::SERVER_QUOTA, 0.5);
        set(point, names::SERVER_CPU, cpu_us);
        set(point, names::SERVER_CPU_BUSY, busy);
        set(point, names::SERVER_QUOTA_USED, busy / 0.5);
    }
    within(value(&asked(&run, WhatIf::default()), "capacity"), 5e3, 0.05);
    for cpus in [1.0, 2.0, 4.0] {
        let found = asked(&run, WhatIf { cpus: Some(cpus as u64), ..WhatIf::default() });
        within(value(&found, "capacity"), cpus * 1e4, 0.05);
        let words = format!("CPU time limit of 0.5 CPUs is raised to {cpus}");
        assert!(found.answer.assumptions.iter().any(|assumed| assumed.contains(&words)), "{:?}", found.answer);
    }
    // The queue of an open loop is also that of half a CPU: it grows without limit towards 5,000 per second.
    let wait =
        |rate: f64| value(&asked(&run, WhatIf { rate_per_sec: Some(rate), ..WhatIf::default() }), "response mean");
    assert!(wait(4500.0) > wait(500.0) + 4.0 * 200e-6, "{} {}", wait(4500.0), wait(500.0));
}

/// A server with 4,000 answers per second, 250 us of CPU each, which refuses further requests with a cheap 503.
fn shedding() -> RunDir {
    let server = Server { demand: 250e-6, path: 2e-3, ..quiet() };
    let mut run = measured(&server, &LOADS, 3);
    let mut bench = Bench::new(server, 3);
    for repeat in 0..2 {
        for rate in [1e3, 2e3, 3e3, 8e3] {
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    run.points.extend(bench.points);
    for point in &mut run.points {
        let is_open = point.value(names::OFFERED).is_some();
        let good = point.value(names::GOODPUT).unwrap();
        let n = point.connections as f64;
        let all = if is_open && point.load() > 4e3 {
            8e3
        } else if !is_open && n > 32.0 {
            n * 300.0
        } else {
            good
        };
        set(point, names::THROUGHPUT, all);
        set(point, names::SERVER_CPU, point.value(names::SERVER_CPU_BUSY).unwrap() / all * 1e6);
        point.outcomes.non_2xx = (all - good) as u64;
        if all > good && !is_open {
            set(point, names::RESPONSE_MEAN, n / all * 1e6);
        }
    }
    run
}

#[test]
fn fast_errors_do_not_count_as_served_requests() {
    let found = asked(&shedding(), WhatIf { rate_times: Some(1.0), ..WhatIf::default() });
    within(value(&found, "capacity"), 4e3, 0.05);
    within(value(&found, "throughput"), 4e3, 0.1);
    let doubt = "12 of 30 points of the closed loop are left out: more than 5 % of their requests failed";
    assert!(found.doubts.iter().any(|words| words.contains(doubt)), "{:?}", found.doubts);
    // An offered rate that was answered with errors remains a failed rate.
    assert!(found.open_points.iter().any(|point| point.load == Some(8e3)), "{:?}", found.open_points);
    let mut few = shedding();
    few.points.retain(|point| point.connections > 16);
    let words = refused(&[few], &WhatIf::default());
    assert!(
        words.contains("1 of 5 closed-loop loads are too few for a model") && words.contains("lower loads"),
        "{words}"
    );
}

#[test]
fn a_cheaper_layer_is_not_predicted_from_points_with_fast_errors() {
    let mut run = with_layers(&quiet());
    let highest = run.points.iter().filter_map(|point| point.value(names::THROUGHPUT)).fold(0.0, f64::max);
    for point in run.points.iter_mut().filter(|point| point.connections > 1000) {
        set(point, names::THROUGHPUT, 10.0 * highest);
        set(point, names::LAYER_TCP, 0.0);
        point.outcomes.non_2xx = 20 * point.outcomes.ok;
    }
    let found = asked(&run, WhatIf { cheaper: vec![("tcp".into(), 0.5)], ..WhatIf::default() });
    within(value(&found, "capacity"), quiet().capacity() / 0.8, 0.05);
}

#[test]
fn a_function_and_its_layer_cannot_both_be_made_cheaper() {
    let run = with_layers(&quiet());
    let cheaper = |asked: &[(&str, f64)]| WhatIf {
        cheaper: asked.iter().map(|(name, share)| (name.to_string(), *share)).collect(),
        ..WhatIf::default()
    };
    for asked in [[("user", 0.5), ("parse", 0.5)], [("parse", 0.1), ("User", 1.0)]] {
        let words = refused(std::slice::from_ref(&run), &cheaper(&asked));
        assert!(words.contains("'parse' is part of the layer 'user'"), "{words}");
    }
    asked(&run, cheaper(&[("tcp", 0.5), ("parse", 0.5)]));
    // Saving almost all CPU time gives 50 times the measured rates.
    let mut most = run;
    for point in &mut most.points {
        let whole = point.value(names::SERVER_CPU).unwrap();
        set(point, names::LAYER_TCP, 49.0 * whole);
    }
    let found = asked(&most, cheaper(&[("tcp", 1.0)]));
    let capacity = found.answer.numbers.iter().find(|number| number.name == "capacity").unwrap();
    let why = capacity.not_predicted.as_deref().unwrap_or_default();
    assert!(why.contains("more than 10 times the highest throughput measured"), "{capacity:?}");
    assert_eq!(found.answer.bottleneck, "not known: no load near the server's limit was measured");
}

#[test]
fn runs_of_two_servers_are_not_fitted_together() {
    let with = |facts: &[(&str, &str)]| {
        let mut run = measured(&quiet(), &LOADS, 2);
        run.record.server_facts.extend(facts.iter().map(|(name, fact)| (name.to_string(), fact.to_string())));
        run
    };
    let nginx = with(&[("program", "nginx"), ("version", "nginx/1.22.1")]);
    let words = refused(&[nginx.clone(), with(&[("program", "apache2")])], &WhatIf::default());
    assert!(words.contains("runs/test measured nginx, runs/test measured apache2"), "{words}");
    let doubts = |other: RunDir| predict::of_runs(&[nginx.clone(), other], &WhatIf::default()).unwrap().doubts;
    let of_both = |doubts: &[String]| doubts.iter().any(|words| words.contains("fitted as one server"));
    let newer = doubts(with(&[("program", "nginx"), ("version", "nginx/1.30.0")]));
    assert!(newer.iter().any(|words| words.contains("nginx/1.22.1 against nginx/1.30.0")), "{newer:?}");
    let mut other = nginx.clone();
    fixture::loaded(&mut other.record).load.method = "POST".into();
    assert!(of_both(&doubts(other)));
    // As with and without cold connections: the same server on another port.
    assert!(!of_both(&doubts(with(&[("program", "nginx"), ("command", "nginx -p /elsewhere")]))));
}

/// A run with this many requests in flight per connection.
fn pipelined(server: &Server, depth: u32) -> RunDir {
    let in_flight = [1, 2, 4, 8, 16, 32, 64].map(|connections| connections * u64::from(depth));
    let mut run = measured(server, &in_flight, 3);
    for point in &mut run.points {
        point.connections /= u64::from(depth);
    }
    let mut protocol = Protocol::Redis(RedisPlan::default());
    protocol.set_pipeline(depth);
    fixture::loaded(&mut run.record).load.protocol = protocol;
    run
}

#[test]
fn requests_in_flight_on_a_connection_all_wait_for_their_answers() {
    // 10 in flight on each of 64 connections: 640 requests of 100 us, so 64 ms.
    let server = Server { demand: 100e-6, path: 20e-3, ..quiet() };
    let run = pipelined(&server, 10);
    for n in [1.0, 5.0, 64.0, 200.0] {
        let found = asked(&run, WhatIf { connections: Some(n as u64), ..WhatIf::default() });
        within(value(&found, "throughput"), server.throughput(10.0 * n), 0.04);
        within(value(&found, "response mean"), 10.0 * n / server.throughput(10.0 * n), 0.04);
    }
    let found = asked(&run, WhatIf::default());
    within(found.model.path_s, server.path, 0.1);
    within(value(&found, "yield point"), server.true_yield() / 10.0, 0.15);
    // Here the 99th percentile is twice the mean, and the limit is 100 ms.
    within(value(&found, "failure point"), 0.1 / 2.0 / server.demand / 10.0, 0.1);
    let longer = Server { path: server.path + 40e-3, ..server };
    let found = asked(&run, WhatIf { connections: Some(10), delay_ns: Some(40_000_000), ..WhatIf::default() });
    within(value(&found, "throughput"), longer.throughput(100.0), 0.04);
    let words = refused(&[run, pipelined(&quiet(), 1)], &WhatIf::default());
    assert!(words.contains("10 requests in flight per connection") && words.contains("1"), "{words}");
}

#[test]
fn a_connection_answered_in_order_keeps_only_one_cpu_busy() {
    // A cache with four threads; each serves the requests of its connections one after another.
    let (thread, depth) = (Server { path: 30e-6, ..quiet() }, 16.0);
    let truth = |connections: f64, delay_s: f64| {
        let (threads, far) = (connections.min(4.0), Server { path: thread.path + delay_s, ..thread.clone() });
        threads * far.throughput(depth * connections / threads)
    };
    let mut run = pipelined(&thread, depth as u32);
    let mut protocol = Protocol::Memcached(MemcachedPlan::default());
    protocol.set_pipeline(depth as u32);
    let loaded = fixture::loaded(&mut run.record);
    (loaded.server.as_mut().unwrap().cpus, loaded.load.protocol) = ((1..=4).collect(), protocol);
    for point in &mut run.points {
        let rate = truth(point.connections as f64, 0.0);
        set(point, names::THROUGHPUT, rate);
        set(point, names::GOODPUT, rate);
        set(point, names::SERVER_CPU_BUSY, rate * thread.demand / 4.0);
        set(point, names::RESPONSE_MEAN, depth * point.connections as f64 / rate * 1e6);
    }
    // On a longer path, the requests of a connection still wait for each other, not for the path.
    for (n, delay_s) in [(6.0, 0.0), (1.0, 100e-6), (3.0, 50e-6)] {
        let found = asked(
            &run,
            WhatIf { connections: Some(n as u64), delay_ns: Some((delay_s * 1e9) as u64), ..WhatIf::default() },
        );
        within(value(&found, "throughput"), truth(n, delay_s), 0.06);
        within(value(&found, "capacity"), 4.0 / thread.demand, 0.06);
    }
    // A server may serve streams in parallel.
    assert!(!Protocol::Http2(Http2Plan::default()).answers_in_order());
}

#[test]
fn the_time_to_connect_is_not_part_of_the_response_time() {
    // A connection per request: connecting takes as long as answering below saturation.
    let server = quiet();
    let mut run = measured(&server, &LOADS, 3);
    for point in &mut run.points {
        let cycle_us = point.connections as f64 / point.value(names::THROUGHPUT).unwrap() * 1e6;
        let is_full = point.value(names::SERVER_CPU_BUSY).unwrap() >= 0.9;
        let mean_us = if is_full { cycle_us } else { cycle_us / 2.0 };
        set(point, names::RESPONSE_MEAN, mean_us);
        set(point, names::RESPONSE_P50, 0.8 * mean_us);
        set(point, names::RESPONSE_P99, 3.0 * mean_us);
    }
    let at = |n: f64| asked(&run, WhatIf { connections: Some(n as u64), ..WhatIf::default() });
    let cycle_s = |n: f64| n / server.throughput(n);
    for (n, part) in [(8.0, 0.5), (1000.0, 1.0)] {
        within(value(&at(n), "response mean"), part * cycle_s(n), 0.04);
        within(value(&at(n), "response p50"), 0.8 * part * cycle_s(n), 0.04);
        within(value(&at(n), "response p99"), 3.0 * part * cycle_s(n), 0.04);
    }
}

#[test]
fn round_trips_to_connect_are_only_taken_from_measurements() {
    let mut run = measured(&quiet(), &LOADS, 2);
    fixture::loaded(&mut run.record).load.requests_per_connection = 1;
    let words = refused(&[run], &WhatIf { delay_ns: Some(1_000_000), ..WhatIf::default() });
    assert!(words.contains("--round-trip needs a run without --requests-per-connection"), "{words}");
}

#[test]
fn the_open_loop_tail_combines_requests_and_waiting() {
    // 95 % of the requests wait 1 ms and 5 % wait 100 ms for something other than the CPU.
    let server = Server { demand: 100e-6, path: 5.95e-3, ..quiet() };
    let mut run = measured(&server, &LOADS, 3);
    let mut bench = Bench::new(server, 3);
    for rate in [500.0, 1000.0, 2000.0] {
        bench.open(rate, 0, 1_000_000_000);
    }
    run.points.extend(bench.points);
    for point in run.points.iter_mut() {
        let busy = point.value(names::SERVER_CPU_BUSY).unwrap();
        if busy < 0.9 {
            set(point, names::RESPONSE_P50, 1.2e3);
            set(point, names::RESPONSE_P99, 100e3);
            set(point, names::RESPONSE_MEAN, 6.05e3);
        }
    }
    let found = asked(&run, WhatIf { rate_per_sec: Some(1000.0), ..WhatIf::default() });
    within(value(&found, "response mean"), 6.05e-3, 0.05);
    within(value(&found, "response p50"), 1.2e-3, 0.1);
    within(value(&found, "response p99"), 100e-3, 0.1);
    for name in ["p50", "p99"] {
        let checks: Vec<_> = found.open_points.iter().filter(|point| point.name == name).collect();
        assert!(checks.len() == 3 && checks.iter().all(|point| point.passes()), "{name}: {checks:?}");
    }
    // A longer path adds a constant to every request.
    let far = asked(&run, WhatIf { rate_per_sec: Some(1000.0), delay_ns: Some(40_000_000), ..WhatIf::default() });
    within(value(&far, "response p50"), 41.2e-3, 0.05);
    within(value(&far, "response p99"), 140e-3, 0.05);
    // A tail of the open loop that differs from that of the closed one raises a doubt.
    for point in run.points.iter_mut().filter(|point| point.value(names::OFFERED).is_some()) {
        set(point, names::RESPONSE_P99, 20e3);
    }
    let doubts = asked(&run, WhatIf::default()).doubts;
    assert!(doubts.iter().any(|words| words.contains("at 3 of 3 open-loop loads, the predicted p99")), "{doubts:?}");
}

#[test]
fn response_times_at_a_limit_other_than_cpu_have_another_spread_than_below_it() {
    let server = Server { demand: 60e-6, path: 6e-3, hidden_limit: 4e3, ..quiet() };
    let mut run = measured(&server, &LOADS, 3);
    for point in &mut run.points {
        let mean_us = point.value(names::RESPONSE_MEAN).unwrap();
        let (p50, p99) = if point.connections < 24 { (0.5, 5.0) } else { (1.0, 1.2) };
        set(point, names::RESPONSE_P50, p50 * mean_us);
        set(point, names::RESPONSE_P99, p99 * mean_us);
    }
    for (n, p50, p99) in [(12.0, 0.5, 5.0), (500.0, 1.0, 1.2)] {
        let found = asked(&run, WhatIf { connections: Some(n as u64), ..WhatIf::default() });
        let mean_s = n / server.throughput(n);
        within(value(&found, "response p50"), p50 * mean_s, 0.05);
        within(value(&found, "response p99"), p99 * mean_s, 0.05);
    }
    let found = asked(&run, WhatIf { rate_per_sec: Some(1000.0), ..WhatIf::default() });
    within(value(&found, "response p99"), 5.0 * 6.06e-3, 0.05);
}
