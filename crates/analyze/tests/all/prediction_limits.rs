//! Predictions for synthetic servers that are limited by something other than their CPUs, or whose CPUs were never
//! busy. No prediction exceeds a physical limit; a capacity is right if its knee was measured, and otherwise refused
//! or doubted.

use crate::fixture;
use crate::server::{Bench, Server as Queue};
use analyze::Refused;
use analyze::predict::{self, Prediction};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::{Figure, Origin, Point, RunDir, WhatIf, names};
use statistics::server::Form;
use std::path::PathBuf;

/// The limit of a server.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// M/M/k: number of workers, and seconds for which each is busy.
    Workers(f64, f64),
    /// A token bucket: requests per second, and seconds per request.
    Bucket(f64, f64),
    /// Only the CPU; seconds of the path.
    Cpu(f64),
    /// Universal Scalability Law: contention, coherency, and requests per second of one connection.
    Contention(f64, f64, f64),
}

/// A server with its CPU seconds per request and number of CPUs.
#[derive(Debug, Clone, Copy)]
struct Truth {
    limit: Limit,
    demand_s: f64,
    cpus: usize,
    noise: f64,
}

impl Truth {
    /// The highest rate that the server can serve.
    fn capacity(&self) -> f64 {
        let cpu = self.cpus as f64 / self.demand_s;
        match self.limit {
            Limit::Workers(workers, seconds) => cpu.min(workers / seconds),
            Limit::Bucket(rate, _) => cpu.min(rate),
            Limit::Cpu(_) | Limit::Contention(..) => cpu,
        }
    }

    fn closed(&self, n: f64) -> f64 {
        let cpu = self.cpus as f64 / self.demand_s;
        match self.limit {
            Limit::Workers(workers, seconds) => (n.min(workers) / (seconds + self.demand_s)).min(cpu),
            Limit::Bucket(rate, seconds) => (n / (seconds + self.demand_s)).min(rate).min(cpu),
            Limit::Cpu(path) => {
                Queue { demand: self.demand_s / self.cpus as f64, path, ..Queue::default() }.throughput(n)
            }
            Limit::Contention(alpha, beta, gamma) => {
                let law = gamma * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0));
                law.min(cpu)
            }
        }
    }

    /// A run with these loads of the closed loop and rates of the open loop.
    fn run(&self, loads: &[u64], rates: &[f64], seed: u64) -> RunDir {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut noisy = |value: f64| {
            let normal: f64 = (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
            value * (self.noise * normal).exp()
        };
        let mut bench = Bench::new(Queue::default(), seed);
        for repeat in 0..3 {
            loads.iter().for_each(|load| bench.closed(*load, repeat, 1_000_000_000));
            rates.iter().for_each(|rate| bench.open(*rate, repeat, 1_000_000_000));
        }
        for point in &mut bench.points {
            let is_open = point.pace != record::Pace::Closed;
            let offered = point.value(names::OFFERED).unwrap_or(f64::INFINITY);
            let n = point.connections as f64;
            // Noise only slows down: no rate exceeds the capacity.
            let free = if is_open { offered.min(noisy(self.capacity())) } else { noisy(self.closed(n)) };
            let rate = free.min(self.capacity());
            let (demand_us, alone) = (noisy(self.demand_s) * 1e6, 1.0 / self.closed(1.0));
            let is_over = offered > self.capacity();
            let mean_s = if is_open { if is_over { 0.5 } else { alone } } else { n / rate };
            point.figures.0.remove(names::SERVER_SOFTIRQ);
            for (name, value, unit) in [
                (names::THROUGHPUT, rate, "1/s"),
                (names::GOODPUT, rate, "1/s"),
                (names::RESPONSE_MEAN, mean_s * 1e6, "us"),
                (names::RESPONSE_P50, mean_s * 1e6, "us"),
                (names::RESPONSE_P99, mean_s * 1.2e6, "us"),
                (names::SERVER_CPU, demand_us, "us"),
                (names::SERVER_CPU_BUSY, (rate * demand_us * 1e-6 / self.cpus as f64).min(1.0), "ratio"),
                (names::SERVER_BUSIEST_THREAD, (rate * demand_us * 1e-6).min(1.0) * 0.3, "CPUs"),
                (names::SERVER_CPUS_USED, (rate * demand_us * 1e-6).min(self.cpus as f64), "CPUs"),
            ] {
                point.figures.set(name, Figure::new(value, unit, 1000, Origin::Counted));
            }
        }
        run_of(bench.points, self.cpus)
    }
}

fn run_of(points: Vec<Point>, cpus: usize) -> RunDir {
    let mut record = fixture::record();
    fixture::loaded(&mut record).server.as_mut().unwrap().cpus = (1..=cpus).collect();
    RunDir { path: PathBuf::from("runs/test"), record, points, reading_doubts: vec![] }
}

fn ask(run: &RunDir, question: WhatIf) -> Result<Prediction, Refused> {
    predict::of_runs(std::slice::from_ref(run), &question)
}

fn value(prediction: &Prediction, name: &str) -> Option<f64> {
    prediction.answer.numbers.iter().find(|number| number.name == name).unwrap().estimate.map(|estimate| estimate.value)
}

fn doubled(most: u64) -> Vec<u64> {
    (0..).map(|power| 1 << power).take_while(|load| *load <= most).collect()
}

/// 16 workers that sleep 4 ms: 4,000 per second, whatever the CPUs allow.
fn sleepers() -> Truth {
    Truth { limit: Limit::Workers(16.0, 4e-3), demand_s: 60e-6, cpus: 2, noise: 0.01 }
}

#[test]
fn sleeping_workers_that_were_never_all_busy_give_a_bounded_capacity() {
    // The true demand, and two demands that fall steeply while the CPUs hardly work, for which models predicted
    // requests that cost nothing.
    for falls in [0.0, 0.3, 0.9] {
        let mut run = sleepers().run(&[1, 2, 3, 4, 6, 8], &[], 1);
        for point in &mut run.points {
            let cost = sleepers().demand_s * 1e6 * (1.0 + falls * 4.0 / point.connections as f64);
            let busy = cost * 1e-6 * point.value(names::THROUGHPUT).unwrap() / 2.0;
            point.figures.set(names::SERVER_CPU, Figure::new(cost, "us", 1, Origin::Counted));
            point.figures.set(names::SERVER_CPU_BUSY, Figure::new(busy, "ratio", 1, Origin::Counted));
        }
        let found = ask(&run, WhatIf::default()).unwrap();
        let highest = 8.0 / 4e-3;
        if let Some(capacity) = value(&found, "capacity") {
            assert!(capacity <= 10.0 * highest, "{capacity} of {:?}", found.model);
        }
        let lowest = sleepers().demand_s;
        assert!(found.model.cpu_capacity_per_sec(0.0) <= 4.0 * 2.0 / lowest, "{:?}", found.model);
        assert!(found.doubts.iter().any(|doubt| doubt.contains("the knee was not measured")), "{:?}", found.doubts);
        let assumed = &found.answer.assumptions;
        assert!(assumed.iter().any(|words| words.contains("are not visible below their knee")), "{assumed:?}");
        if let Some(low) = found.extrapolation {
            assert!(low.yield_connections.is_none(), "no yield point was measured");
            let says_so = low.doubt.is_some_and(|doubt| doubt.contains("no higher load checks the model"));
            assert_eq!(says_so, low.levels >= 3 && low.beyond.is_empty());
        }
    }
}

#[test]
fn requests_on_an_always_busy_cpu_are_not_predicted_to_cost_nothing() {
    let mut run = sleepers().run(&[1, 2, 4, 8, 16], &[], 5);
    for point in &mut run.points {
        let cost = 1.6 / point.value(names::THROUGHPUT).unwrap() * 1e6;
        point.figures.set(names::SERVER_CPU, Figure::new(cost, "us", 1, Origin::Counted));
        point.figures.set(names::SERVER_CPU_BUSY, Figure::new(0.8, "ratio", 1, Origin::Counted));
    }
    if let Ok(found) = ask(&run, WhatIf::default()) {
        // At 4,000 per second the CPUs were 80 % busy, so their capacity cannot be many times that.
        let capacity = value(&found, "capacity");
        assert!(capacity.is_none_or(|capacity| capacity < 1.5 * 4000.0 / 0.8), "{capacity:?} by {:?}", found.model);
    }
}

#[test]
fn a_rate_at_which_the_run_failed_is_not_predicted_to_hold() {
    // The original failure: a closed loop up to 8 connections, and an open loop that failed at 4,200 per second.
    let run = sleepers().run(&[1, 2, 3, 4, 6, 8], &[500.0, 1000.0, 2000.0, 3000.0, 4200.0, 5000.0], 2);
    let found = ask(&run, WhatIf { rate_per_sec: Some(7160.0), ..WhatIf::default() }).unwrap();
    assert_eq!(value(&found, "response p50"), None);
    let capacity = value(&found, "capacity").unwrap();
    assert!((3800.0..4200.0).contains(&capacity), "{capacity}");
    assert!(found.answer.bottleneck.contains("other than the CPU"), "{}", found.answer.bottleneck);
    let p50 = found.answer.numbers.iter().find(|number| number.name == "response p50").unwrap();
    assert!(p50.not_predicted.as_ref().unwrap().contains("the run failed at 4200/s"), "{p50:?}");
    let open: Vec<f64> = found.open_points.iter().filter_map(|point| point.load).collect();
    for rate in [500.0, 3000.0, 5000.0] {
        assert!(open.contains(&rate), "every open-loop load is checked: {open:?}");
    }
    let unsure = found.doubts.iter().find(|doubt| doubt.contains("equally well"));
    assert_eq!(unsure, None, "the limit is the same for all models");
    let p50: Vec<_> = found.open_points.iter().filter(|point| point.name == "p50").collect();
    assert!(p50.len() == 4 && p50.iter().all(|point| point.passes()), "{p50:?}");
}

#[test]
fn a_limit_other_than_cpu_is_the_capacity_if_its_knee_was_measured() {
    let bucket = Truth { limit: Limit::Bucket(3000.0, 1e-3), ..sleepers() };
    for (truth, loads) in [(sleepers(), doubled(128)), (bucket, doubled(64)), (sleepers(), doubled(64))] {
        let run = truth.run(&loads, &[], 3);
        let far = WhatIf { connections: Some(1000), ..WhatIf::default() };
        let question = WhatIf { cpus: Some(8), ..WhatIf::default() };
        let found = predict::with_what_ifs(std::slice::from_ref(&run), &question, &[far]).unwrap();
        let capacity = value(&found, "capacity").unwrap();
        assert!((capacity / truth.capacity() - 1.0).abs() < 0.05, "{capacity} of {truth:?}, {:?}", found.model);
        assert_ne!(found.model.form, Form::Usl, "a queue with a limit is what it is");
        let far = found.what_ifs[0].answer.as_ref().unwrap();
        let rate = far.numbers.iter().find(|number| number.name == "throughput").unwrap().estimate.unwrap().value;
        assert!((rate / truth.capacity() - 1.0).abs() < 0.05, "{rate} of {truth:?}");
        assert!(far.assumptions.iter().any(|words| words.contains("is not a CPU limit")), "{far:?}");
    }
}

#[test]
fn a_throughput_law_predicts_no_more_than_the_cpus_allow() {
    // 100 us on 2 CPUs allow at most 20k/s; up to 8 connections nothing shows that, and the law fits better.
    let truth = Truth { limit: Limit::Contention(0.02, 0.0, 1000.0), demand_s: 100e-6, cpus: 2, noise: 0.0005 };
    let run = truth.run(&[1, 2, 3, 4, 6, 8, 12, 16], &[], 4);
    for connections in [64.0, 1e3, 1e5] {
        let found = ask(&run, WhatIf { connections: Some(connections as u64), ..WhatIf::default() }).unwrap();
        if let Some(rate) = value(&found, "throughput") {
            assert!(rate <= 1.01 * truth.capacity(), "{rate} at {connections} by {:?}", found.model);
        }
    }
}

#[test]
fn a_queueing_model_with_a_small_error_is_preferred_to_a_law() {
    let truth = Truth { limit: Limit::Cpu(4e-3), demand_s: 50e-6, cpus: 1, noise: 0.002 };
    for seed in 0..5 {
        let found = ask(&truth.run(&doubled(64), &[], seed), WhatIf::default()).unwrap();
        assert_ne!(found.model.form, Form::Usl, "{:?}", found.checks);
        assert!(found.model.form.parameters() <= 3, "the simplest of those that tie: {:?}", found.model);
    }
}

fn truths() -> impl Strategy<Value = Truth> {
    let limit = prop_oneof![
        (2u32..40, 1e-3..2e-2f64).prop_map(|(workers, seconds)| Limit::Workers(f64::from(workers), seconds)),
        (200.0..5e3f64, 1e-4..5e-3f64).prop_map(|(rate, seconds)| Limit::Bucket(rate, seconds)),
        (1e-4..1e-2f64).prop_map(Limit::Cpu),
        (0.0..0.3f64, 0.0..1e-3f64, 100.0..2e3f64)
            .prop_map(|(alpha, beta, gamma)| Limit::Contention(alpha, beta, gamma)),
    ];
    (limit, 1e-5..2e-4f64, 1usize..5).prop_map(|(limit, demand_s, cpus)| Truth { limit, demand_s, cpus, noise: 0.01 })
}

/// Asserts that no prediction exceeds the server's limit, from loads up to 2^`most` connections.
fn predicts_within_limits(truth: Truth, most: u32, seed: u64, connections: f64) {
    let run = truth.run(&doubled(1 << most), &[], seed);
    let cpu = truth.cpus as f64 / truth.demand_s;
    let Ok(found) = ask(&run, WhatIf { connections: Some(connections as u64), ..WhatIf::default() }) else { return };
    let busiest = run.points.iter().filter_map(|point| point.value(names::SERVER_CPU_BUSY)).fold(0.0, f64::max);
    let highest = run.points.iter().filter_map(|point| point.value(names::THROUGHPUT)).fold(0.0, f64::max);
    let is_doubted = found.doubts.iter().any(|doubt| doubt.contains("the knee was not measured"));
    for name in ["throughput", "capacity"] {
        let number = found.answer.numbers.iter().find(|number| number.name == name);
        let Some(rate) = number.and_then(|number| Some(number.estimate?.value)) else { continue };
        assert!(rate <= 10.1 * highest, "{name} {rate} of {truth:?}, measured {highest}");
        // A falling demand may continue to fall slightly; a constant one may not.
        assert!(rate <= 1.25 * cpu, "{name} {rate} of {truth:?}: {:?}", found.model);
        let is_law = found.model.form == Form::Usl;
        let error = (rate / truth.capacity() - 1.0).abs();
        if name == "capacity" && !is_law && !is_doubted {
            assert!(error < 0.12, "{rate} of {truth:?}: {:?}, busy {busiest}", found.model);
        }
    }
}

#[test]
fn one_connection_cannot_keep_all_cpus_busy() {
    // On such a short path, loads 1 to 8 also fit a demand that grows from one connection on, with background work.
    for (demand_s, most, seed) in [(164.4e-6, 3, 0), (176.9135e-6, 4, 4), (181.0206e-6, 5, 946)] {
        let truth = Truth { limit: Limit::Cpu(1e-4), demand_s, cpus: 4, noise: 0.01 };
        predicts_within_limits(truth, most, seed, 100.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any limit of a server, and however little of it was measured.
    #[test]
    fn no_prediction_is_beyond_a_physical_limit(
        truth in truths(),
        most in 3u32..9,
        seed in 0u64..1000,
        n in 1.0f64..1e4,
    ) {
        predicts_within_limits(truth, most, seed, n);
    }
}

/// A server with this many workers and 400 us of CPU per request, on a machine with 16 CPUs and a path of 4 ms.
/// `spread`: the shares of the busiest thread and process in its CPU time.
fn on_sixteen_cpus(workers: usize, loads: &[u64], executable: &str, spread: impl Fn(&Point) -> (f64, f64)) -> RunDir {
    const CPUS: usize = 16;
    let truth = Truth { limit: Limit::Cpu(4e-3), demand_s: 400e-6, cpus: workers, noise: 0.005 };
    let mut points = truth.run(loads, &[], 7).points;
    for point in &mut points {
        let used = point.value(names::THROUGHPUT).unwrap() * point.value(names::SERVER_CPU).unwrap() * 1e-6;
        let (thread, process) = spread(point);
        for (name, value, unit) in [
            (names::SERVER_CPU_BUSY, used / CPUS as f64, "ratio"),
            (names::SERVER_CPUS_USED, used, "CPUs"),
            (names::SERVER_BUSIEST_THREAD, used * thread, "CPUs"),
            (names::SERVER_BUSIEST_PROCESS, used * process, "CPUs"),
        ] {
            point.figures.set(name, Figure::new(value, unit, 1000, Origin::Counted));
        }
    }
    let mut run = run_of(points, CPUS);
    run.record.server_facts.insert("executable".into(), executable.into());
    run
}

#[test]
fn workers_fewer_than_the_cpus_keep_no_more_of_them_busy() {
    // Four event loops below their limit: at 32 connections, each uses 72 % of a CPU.
    let run = on_sixteen_cpus(4, &doubled(32), "/usr/sbin/nginx", |_| (0.27, 0.27));
    let found = ask(&run, WhatIf { cpus: Some(8), ..WhatIf::default() }).unwrap();
    let capacity = found.model.cpu_capacity_per_sec(0.0);
    assert!((capacity * 400e-6 / 4.0 - 1.0).abs() < 0.1, "{capacity} of 4 CPUs: {:?}", found.model);
    let assumed = &found.answer.assumptions;
    assert!(assumed.iter().any(|words| words.contains("4 threads did nearly all of the work")), "{assumed:?}");
    // The loops' CPUs were 72 % busy, not 18 %.
    assert!(found.doubts.iter().any(|doubt| doubt.contains("at most 7")), "{:?}", found.doubts);
}

#[test]
fn a_thread_per_connection_is_not_a_limit_with_few_connections() {
    let mut run = on_sixteen_cpus(16, &[1, 2, 3, 4], "/usr/bin/server", |point| (1.0 / point.connections as f64, 1.0));
    // On a short path, each loop is busy.
    for point in &mut run.points {
        point.figures.set(names::SERVER_BUSIEST_THREAD, Figure::new(0.8, "CPUs", 1000, Origin::Counted));
        let used = 0.8 * point.connections as f64;
        point.figures.set(names::SERVER_CPUS_USED, Figure::new(used, "CPUs", 1000, Origin::Counted));
    }
    let found = ask(&run, WhatIf::default()).unwrap();
    assert_eq!(found.model.cpus, 16.0, "{:?}", found.model);
}

#[test]
fn an_interpreter_process_uses_one_cpu_with_any_number_of_threads() {
    for (executable, process, cpus) in [
        ("/usr/bin/python3.11", 1.0, 1.0),
        ("/usr/bin/ruby3.1", 0.97, 1.0),
        // Without the lock, or in another language, threads run in parallel.
        ("/usr/bin/python3.14t", 1.0, 16.0),
        ("/usr/bin/java", 1.0, 16.0),
    ] {
        let run = on_sixteen_cpus(1, &[1, 2, 4, 6], executable, |_| (0.2, process));
        let found = ask(&run, WhatIf::default()).unwrap();
        assert_eq!(found.model.cpus, cpus, "{executable}: {:?}", found.model);
    }
    // Two processes, each 60 % busy.
    let run = on_sixteen_cpus(2, &doubled(16), "/usr/bin/python3.11", |_| (0.1, 0.52));
    assert_eq!(ask(&run, WhatIf::default()).unwrap().model.cpus, 2.0);
    // Extensions release the lock.
    let run = on_sixteen_cpus(16, &doubled(32), "/usr/bin/python3.11", |_| (0.1, 1.0));
    assert_eq!(ask(&run, WhatIf::default()).unwrap().model.cpus, 16.0);
}
