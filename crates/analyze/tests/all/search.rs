//! The planners with synthetic servers: in most runs, the true points are within the intervals.

use crate::fixture::{axis_plan, axis_point};
use crate::server::{Bench, Server, disturb, plan};
use analyze::sweep::{AxisSweep, ConnectionSweep, Load, Planner, RateSearch, SweepStep, TurnSweep, held_goodput};
use analyze::zones::{self, Findings};
use record::scenario::SweepPlan;
use record::{Axis, Criteria, DoubtKind, Figure, Origin, Pace, Point, Sweep, names};

/// Number of seeds for each server.
fn seeds() -> u64 {
    if crate::long_run() { 60 } else { 4 }
}

fn closed(server: &Server, seed: u64, budget_s: u64) -> (Findings, String) {
    let mut bench = Bench::new(server.clone(), seed);
    let plan = plan(budget_s);
    let reason = bench.sweep_connections(&plan, seed);
    assert!(bench.elapsed_ns < budget_s * 500_000_000 + 3_000_000_000, "kept to its half of the budget");
    (zones::find(&bench.points, &plan.criteria), reason)
}

/// Quality of the intervals over many seeds.
struct Coverage {
    /// Seeds whose interval contains the truth.
    covered: usize,
    /// Median ratio of upper to lower end.
    width: f64,
    /// Median ratio of estimate to truth, minus 1.
    bias: f64,
}

fn coverage(server: &Server, seeds: u64, budget_s: u64) -> Coverage {
    let truth = server.true_yield();
    let (mut widths, mut errors, mut covered) = (Vec::new(), Vec::new(), 0);
    for seed in 0..seeds {
        let (findings, reason) = closed(server, seed, budget_s);
        let found = findings.connections.unwrap().yield_point;
        let (Some(low), Some(high), Some(estimate)) = (found.low, found.high, found.estimate) else {
            panic!("{found:?}")
        };
        if std::env::var_os("SHOW").is_some() {
            println!("{truth:.2} in {low:.2}..{high:.2} est {estimate:.2}: {reason}");
        }
        widths.push(high / low);
        errors.push(estimate / truth - 1.0);
        covered += usize::from(low <= truth && truth <= high);
    }
    let middle = |values: &[f64]| statistics::median(values).unwrap();
    Coverage { covered, width: middle(&widths), bias: middle(&errors) }
}

#[test]
fn the_true_knee_lies_within_the_yield_points_interval_in_most_runs() {
    let servers = [
        ("pool of 8", Server::pool(8.0, 5e-3), 0.03),
        ("pool of 32", Server::pool(32.0, 10e-3), 0.03),
        ("pool of 11, noisy", Server { noise: 0.08, ..Server::pool(11.0, 5e-3) }, 0.05),
        ("pool of 8, cost grows", Server { doubles_at: 100.0, ..Server::pool(8.0, 5e-3) }, 0.05),
        ("one CPU", Server { path: 0.0, ..Server::default() }, 0.05),
        ("small", Server::default(), 0.15),
        ("large", Server { path: 2e-3, ..Server::default() }, 0.1),
        ("retrograde", Server { path: 500e-6, doubles_at: 3000.0, ..Server::default() }, 0.1),
        ("noisy", Server { path: 300e-6, noise: 0.08, ..Server::default() }, 0.15),
    ];
    let seeds = seeds();
    for (name, server, most_bias) in servers {
        let Coverage { covered, width, bias } = coverage(&server, seeds, 120);
        println!(
            "{name}: knee {:.1}, covered {covered} of {seeds}, high/low {width:.2}, bias {:+.1} %",
            server.true_yield(),
            100.0 * bias
        );
        assert!(4 * covered >= 3 * seeds as usize, "{name}: {covered} of {seeds}");
        assert!(width < 2.0, "{name}: {width}");
        assert!(bias.abs() < most_bias, "{name}: {bias}");
    }
}

#[test]
fn a_small_budget_still_finds_the_yield_point_roughly() {
    let server = Server { path: 300e-6, ..Server::default() };
    let seeds = seeds();
    let Coverage { covered, width, bias } = coverage(&server, seeds, 40);
    println!("covered {covered} of {seeds}, high/low {width:.2}, bias {bias:+.2}");
    assert!(3 * covered >= 2 * seeds as usize, "{covered} of {seeds}");
}

#[test]
fn a_server_that_never_saturates_has_no_yield_point() {
    let server = Server { demand: 1e-9, path: 10e-3, ..Server::default() };
    let (findings, reason) = closed(&server, 1, 120);
    let found = findings.connections.unwrap();
    assert_eq!(found.yield_point.estimate, None);
    assert_eq!(found.yield_point.reason, "not reached up to 4,096 connections: throughput still follows load");
    assert!(reason.contains("no yield point to narrow"), "{reason}");
    assert_eq!(found.failure_point.reason, "not reached up to 4,096 connections");
}

#[test]
fn a_server_that_refuses_connections_fails_at_that_load_and_ends_the_first_pass() {
    let server = Server { path: 2e-3, refuses_beyond: 700.0, ..Server::default() };
    let (findings, _) = closed(&server, 3, 120);
    let found = findings.connections.unwrap();
    let failure = &found.failure_point;
    assert!(failure.held.unwrap() <= 700.0 && failure.failed.unwrap() >= 700.0, "{failure:?}");
    assert!(failure.failed.unwrap() / failure.held.unwrap() < 1.5, "{failure:?}");
    assert!(found.levels.last().unwrap().load <= 2048.0, "stops after failure was seen twice");
    assert!(failure.reason.contains("refused"), "{}", failure.reason);
}

#[test]
fn a_saturated_client_gives_no_verdict_on_the_server() {
    let server = Server { path: 300e-6, client_limit: 30_000.0, ..Server::default() };
    let (findings, _) = closed(&server, 3, 120);
    let found = findings.connections.unwrap();
    assert_eq!(found.yield_point.estimate, None, "{:?}", found.yield_point);
    assert!(found.yield_point.reason.contains("client"), "{}", found.yield_point.reason);
    assert!(found.doubts.iter().any(|doubt| doubt.kind == DoubtKind::ClientSaturated));
}

#[test]
fn the_true_failure_rate_lies_within_its_interval_in_most_runs() {
    let seeds = seeds();
    for (name, drift, hint) in [
        ("steady", 0.01, Some(1.0)),
        ("drifting", 0.15, Some(1.0)),
        ("blind", 0.01, None),
        ("wrong hint", 0.05, Some(3.0)),
    ] {
        let server = Server { drift, noise: 0.01, ..Server::default() };
        let (mut covered, mut widths) = (0, Vec::new());
        for seed in 0..seeds {
            let mut bench = Bench::new(server.clone(), seed);
            let plan = plan(120);
            let reason = bench.search_rate(&plan, hint.map(|factor: f64| factor * server.capacity()), seed);
            let found = zones::find(&bench.points, &plan.criteria).rate.unwrap().failure_point;
            let (Some(low), Some(high)) = (found.low, found.high) else { panic!("{name}: {found:?} {reason}") };
            if std::env::var_os("SHOW").is_some() {
                println!(
                    "{name}: {:.0} in {low:.0}..{high:.0} {:?} in {} points: {reason}",
                    server.capacity(),
                    found.estimate,
                    bench.points.len()
                );
            }
            if drift < 0.02 {
                assert!(found.failed.unwrap() / found.held.unwrap() <= 1.0501, "{name}: {found:?} {reason}");
            }
            widths.push(high / low);
            // Goodput below 98 % is failure, so a rate up to 1 / 0.98 of the capacity still holds.
            covered += usize::from(low <= server.capacity() / 0.98 && server.capacity() <= high);
        }
        let width = statistics::median(&widths).unwrap();
        println!("{name}: covered {covered} of {seeds}, high/low {width:.3}");
        assert!(4 * covered >= 3 * seeds as usize, "{name}: covered {covered} of {seeds}");
    }
}

#[test]
fn a_short_search_finds_the_capacity_of_a_server_that_is_slow_before_it_falls_behind() {
    let (mut all, mut covered) = (0, 0);
    for (budget_s, truth, hint) in [(7, 630.0, 0.97), (7, 630.0, 1.05), (9, 400.0, 1.05), (9, 1100.0, 1.0)] {
        let server = Server { demand: 1.0 / truth, path: 0.0, drift: 0.005, noise: 0.005, ..Server::default() };
        let server = Server { is_poisson: true, ..server };
        for seed in 0..seeds() {
            let mut bench = Bench::new(server.clone(), seed);
            let plan = plan(budget_s);
            let reason = bench.search_rate(&plan, Some(hint * truth), seed);
            let found = zones::find(&bench.points, &plan.criteria).rate.unwrap();
            let (capacity, failing) = (found.capacity.unwrap(), found.failure_point);
            assert!(capacity.estimate.is_some(), "{truth}/s, {budget_s} s: {capacity:?} {failing:?} {reason}");
            all += 1;
            covered += usize::from(capacity.low <= Some(truth) && Some(truth) <= capacity.high);
        }
    }
    assert!(10 * covered >= 9 * all, "{covered} of {all}");
}

#[test]
fn the_open_loop_begins_at_the_throughput_that_met_the_response_time_limit() {
    let plan = plan(60);
    let point = |connections: u64, goodput: f64, p99_ms: f64| {
        let mut point = Point::new(Sweep::Connections, 0, connections, Pace::Closed);
        (point.duration_ns, point.outcomes.ok) = (1_000_000_000, goodput as u64);
        point.outcomes.sent = point.outcomes.ok;
        let mut set = |name, value, unit| point.figures.set(name, Figure::new(value, unit, 1000, Origin::Timed));
        set(names::GOODPUT, goodput, "1/s");
        set(names::RESPONSE_P90, p99_ms * 900.0, "us");
        set(names::RESPONSE_P99, p99_ms * 1e3, "us");
        point
    };
    let points = [point(1, 1_000.0, 20.0), point(8, 4_000.0, 90.0), point(64, 10_000.0, 300.0)];
    assert_eq!(held_goodput(&points, &plan.criteria), Some(4_000.0));
    assert_eq!(held_goodput(&points[2..], &plan.criteria), Some(10_000.0));
    let late = [point(1, 1_000.0, 150.0), point(64, 10_000.0, 300.0)];
    assert_eq!(held_goodput(&late, &plan.criteria), Some(1_000.0));
    assert_eq!(held_goodput(&[], &plan.criteria), None);
}

#[test]
fn a_slow_server_is_not_judged_by_too_short_windows() {
    // With a millisecond per request, a twentieth too much leaves only a few more in flight at the end of a window.
    for demand in [1.1e-3, 0.7e-3, 0.4e-3] {
        let server = Server { demand, path: 0.0, drift: 0.002, noise: 0.002, ..Server::default() };
        let truth = server.capacity();
        for seed in 0..seeds() {
            let mut bench = Bench::new(server.clone(), seed);
            let plan = SweepPlan { point_duration_ns: 250_000_000, ..plan(20) };
            let reason = bench.search_rate(&plan, Some(0.97 * truth), seed);
            let found = zones::find(&bench.points, &plan.criteria).rate.unwrap();
            let (capacity, failing) = (found.capacity.unwrap(), found.failure_point);
            let estimate = capacity.estimate.unwrap_or_else(|| panic!("{capacity:?} {reason}"));
            assert!((estimate / truth - 1.0).abs() < 0.015, "{truth:.0}: {capacity:?} {reason}");
            // The rate at which the 99th percentile exceeds 100 ms, or goodput falls below 98 %.
            let (low, high) = (failing.low.unwrap(), failing.high.unwrap());
            let slow = truth * (1.0 - 4.6 * demand / 0.1);
            assert!(low <= 1.02 * truth && slow <= high, "{truth:.0}: {failing:?} {reason}");
        }
    }
}

#[test]
fn a_dead_server_ends_every_search() {
    let plan = plan(600);
    let planners: [Box<dyn Planner>; 3] = [
        Box::new(ConnectionSweep::new(&plan, 1)),
        Box::new(RateSearch::new(&plan, None, 1)),
        Box::new(TurnSweep::new(&plan, 1)),
    ];
    for mut planner in planners {
        assert!((0..500).any(|_| matches!(planner.next(&[], 0), SweepStep::Done { .. })), "{}", planner.subject());
    }
}

#[test]
fn a_requested_warm_up_precedes_every_point() {
    let warmups = |warmup_ns: Option<u64>| -> std::collections::BTreeSet<(u64, u64)> {
        let plan = record::scenario::SweepPlan { warmup_ns, ..plan(60) };
        let (mut bench, mut sweep) = (Bench::new(Server::default(), 1), ConnectionSweep::new(&plan, 1));
        let steps = std::iter::from_fn(|| match sweep.next(&bench.points, bench.elapsed_ns) {
            SweepStep::Done { .. } => None,
            step => {
                match step {
                    SweepStep::Measure(trial) => bench.measure(trial),
                    _ => bench.yardstick(0),
                }
                Some(step)
            }
        });
        let trials = steps.filter_map(|step| match step {
            SweepStep::Measure(trial) => Some((trial.duration_ns, trial.warmup_ns)),
            _ => None,
        });
        trials.collect()
    };
    assert_eq!(warmups(None), [(250_000_000, 50_000_000), (1_000_000_000, 200_000_000)].into());
    let asked = 700_000_000;
    assert_eq!(warmups(Some(asked)), [(250_000_000, asked), (1_000_000_000, asked)].into());
}

/// The points of two synthetic servers measured in turn.
fn in_turn(servers: [Server; 2], budget_s: u64) -> [Vec<record::Point>; 2] {
    let mut benches = servers.map(|server| Bench::new(server, 5));
    let plan = record::scenario::SweepPlan { connections_max: 64, ..plan(budget_s) };
    let (mut planner, mut now, mut elapsed_ns) = (TurnSweep::new(&plan, 1), 0, 0);
    for _ in 0..2000 {
        let bench = &mut benches[now];
        match planner.next(&bench.points, elapsed_ns) {
            SweepStep::Serve { server } => now = server,
            SweepStep::Measure(trial) => bench.measure(trial),
            SweepStep::Yardstick => bench.yardstick(0),
            SweepStep::Done { .. } => return benches.map(|bench| bench.points),
        }
        elapsed_ns = benches.iter().map(|bench| bench.elapsed_ns).sum();
    }
    panic!("the turns do not end");
}

#[test]
fn two_servers_are_measured_in_turn_at_the_loads_of_the_first_one() {
    let fails_early = Server { path: 2e-3, refuses_beyond: 6.0, ..Server::default() };
    let [of_a, of_b] = in_turn([fails_early, Server::default()], 600);
    let loads = |points: &[record::Point], repeat: u32| {
        let of_round =
            points.iter().filter(|point| point.sweep == record::Sweep::Connections && point.repeat == repeat);
        of_round.map(|point| point.connections).collect::<Vec<_>>()
    };
    assert_eq!(loads(&of_a, 0), [1, 2, 4, 8, 16], "upward until two loads in a row fail");
    for round in 1..5 {
        assert_eq!(loads(&of_a, round), loads(&of_b, round), "round {round}");
        assert_eq!(loads(&of_a, round).len(), 5, "round {round}");
    }
}

#[test]
fn the_same_seed_gives_the_same_sweep() {
    let run = || {
        let mut bench = Bench::new(Server::default(), 5);
        bench.sweep_connections(&plan(60), 9);
        bench.points
    };
    assert_eq!(run(), run());
}

/// How many times each load was measured in each repeat, while other work disturbs some visits (load, repeat, visit).
fn visits_of(
    planner: &mut dyn Planner,
    disturbs: &dyn Fn(f64, u32, usize) -> bool,
) -> std::collections::BTreeMap<(u32, u64), usize> {
    let mut bench = Bench::new(Server { noise: 0.005, drift: 0.01, ..Server::default() }, 3);
    let mut visits = std::collections::BTreeMap::new();
    for _ in 0..2000 {
        match planner.next(&bench.points, bench.elapsed_ns) {
            SweepStep::Measure(trial) => {
                let load = match trial.load {
                    Load::Connections(load) | Load::Unloading(load) | Load::Capacity(load) => load as f64,
                    Load::Rate(rate) | Load::Share(rate) => rate,
                    Load::Place(place) => place.value,
                };
                match trial.load {
                    Load::Place(place) => {
                        let index = bench.points.len() as u32;
                        bench.points.push(axis_point(place.axis, place.value, trial.repeat, index));
                        bench.elapsed_ns += trial.duration_ns + trial.warmup_ns;
                    }
                    _ => bench.measure(trial),
                }
                let visit = visits.entry((trial.repeat, load as u64)).or_insert(0usize);
                *visit += 1;
                if disturbs(load, trial.repeat, *visit) {
                    disturb(bench.points.last_mut().unwrap());
                }
            }
            SweepStep::Yardstick => bench.yardstick(0),
            SweepStep::Serve { .. } => {}
            SweepStep::Done { .. } => return visits,
        }
    }
    panic!("it does not end");
}

#[test]
fn every_planner_remeasures_a_disturbed_point_once_if_most_are_quiet() {
    let plan = plan(120);
    let few = record::scenario::SweepPlan { connections_max: 64, ..plan.clone() };
    type Made<'a> = Box<dyn Fn() -> Box<dyn Planner> + 'a>;
    let make: [(&str, Made<'_>); 4] = [
        ("connections", Box::new(|| Box::new(ConnectionSweep::new(&plan, 3)))),
        ("rate", Box::new(|| Box::new(RateSearch::new(&plan, Some(83_000.0), 3)))),
        ("axis", Box::new(|| Box::new(AxisSweep::new(&axis_plan(Axis::Cold, &[0.0, 100.0, 200.0]), &plan, None, 3)))),
        ("turns", Box::new(|| Box::new(TurnSweep::new(&few, 3)))),
    ];
    for (name, planner) in make {
        let quiet = visits_of(&mut *planner(), &|_, _, _| false);
        // With two servers in turn, each load is measured twice per round, once per server.
        let once = if name == "turns" { 2 } else { 1 };
        let most = *quiet.values().max().unwrap();
        // Also a load that a search over rate did not reach by bisection.
        let mut in_repeat_2 =
            quiet.iter().filter(|((repeat, _), n)| *repeat == 2 && **n == once).map(|((_, load), _)| *load);
        let at = in_repeat_2.nth(1).unwrap();
        let is_there = move |load: f64, repeat: u32| load as u64 == at && repeat == 2;
        let first = visits_of(&mut *planner(), &|load, repeat, visit| is_there(load, repeat) && visit == 1);
        assert_eq!(first[&(2, at)], once + 1, "{name}: {first:?}");
        let of_repeat = || first.iter().filter(|((repeat, _), _)| *repeat == 2);
        assert!(of_repeat().all(|((_, load), n)| *load == at || *n <= most), "{name}: {first:?}");
        let all = visits_of(&mut *planner(), &|load, repeat, _| is_there(load, repeat));
        assert_eq!(all[&(2, at)], 2 * once, "{name}, once more, not for ever: {all:?}");
        let always = visits_of(&mut *planner(), &|_, _, _| true);
        assert!(always.values().all(|n| *n <= most), "{name}, measuring again would not help: {always:?}");
    }
}

/// Findings of both sweeps for a server on a machine with other work.
fn beside_other_work(disturbed: f64, seed: u64) -> Findings {
    let server = Server { disturbed, ..Server::pool(8.0, 5e-3) };
    let mut bench = Bench::new(Server { noise: 0.02, drift: 0.05, ..server }, seed);
    let plan = plan(150);
    bench.sweep_connections(&plan, seed);
    let hint = held_goodput(&bench.points, &plan.criteria);
    bench.search_rate(&plan, hint, seed);
    zones::find(&bench.points, &plan.criteria)
}

#[test]
fn other_work_reduces_precision_but_not_accuracy() {
    let truths = [Server::pool(8.0, 5e-3).true_yield(), Server::pool(8.0, 5e-3).capacity()];
    for (disturbed, least_sure) in [(0.0, 0.75), (0.1, 0.6), (0.4, 0.0), (1.0, 0.0)] {
        let (mut untrue, mut unsure, mut wrong) = (0, 0, Vec::new());
        for seed in 0..seeds() {
            let found = beside_other_work(disturbed, seed);
            let (closed, open) = (found.connections.unwrap(), found.rate.unwrap());
            for (sweep, point, truth) in [
                (&closed, &closed.yield_point, truths[0]),
                (&open, &open.failure_point, truths[1] / Criteria::default().goodput_ratio),
            ] {
                // By the goodput criterion, a rate slightly above the capacity holds.
                let slack = if sweep.sweep == record::Sweep::Rate { 0.02 } else { 0.0 };
                let is_within = point.low.is_some_and(|low| low <= truth * (1.0 + slack))
                    && point.high.is_none_or(|high| high >= truth * (1.0 - slack));
                let is_doubted = sweep.doubts.iter().any(|doubt| doubt.what.contains("the intervals may not contain"));
                unsure += usize::from(is_doubted);
                if !is_within && !is_doubted {
                    untrue += 1;
                    wrong.push(format!("seed {seed}: {truth} not in {:?} to {:?}", point.low, point.high));
                }
            }
        }
        let all = 2 * seeds() as usize;
        println!("{disturbed}: untrue {untrue} of {all}, doubted {unsure}");
        assert!(untrue <= (all / 10).max(1), "{disturbed}: {wrong:#?}");
        assert!((all - unsure) as f64 >= least_sure * all as f64, "{disturbed}: doubted {unsure} of {all}");
    }
}

#[test]
fn a_disturbed_point_does_not_count_next_to_a_quiet_one() {
    let mut bench = Bench::new(Server { noise: 0.0, drift: 0.0, ..Server::default() }, 3);
    for repeat in 0..3 {
        for load in [1, 2, 4, 8, 16, 32] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    let quiet = zones::find(&bench.points, &Criteria::default());
    for point in bench.points.iter_mut().filter(|point| point.repeat == 1) {
        let rate = point.value(names::THROUGHPUT).unwrap() / 3.0;
        for name in [names::THROUGHPUT, names::GOODPUT] {
            point.figures.set(name, record::Figure::new(rate, "1/s", 1000, record::Origin::Counted));
        }
        let doubt = record::DoubtKind::Steal.warning("12 % were stolen", "repeat it");
        point.doubts.push(doubt);
    }
    let disturbed = zones::find(&bench.points, &Criteria::default());
    let lowest = |found: &Findings| -> Vec<Option<f64>> {
        let levels = &found.connections.as_ref().unwrap().levels;
        levels.iter().map(|level| Some(level.throughput_per_sec?.min)).collect()
    };
    for (a, b) in lowest(&disturbed).into_iter().zip(lowest(&quiet)) {
        assert!((a.unwrap() / b.unwrap() - 1.0).abs() < 1e-6, "{a:?} {b:?}");
    }
}
