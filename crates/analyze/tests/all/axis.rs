//! The plan and the findings of an axis, for a synthetic server.

mod cpus;
mod layers;

use crate::fixture::{self, axis_plan, axis_point};
use analyze::sweep::{AxisSweep, Load, Planner, SweepStep};
use analyze::{axis, verdict, zones};
use record::profile::NOT_SAMPLED;
use record::scenario::{ProfileRun, SweepPlan};
use record::{
    Axis, AxisPlan, Criteria, Doubt, DoubtKind, Figure, Figures, Origin, Point, RunDir, RunKind, Severity, names,
};

/// Runs the planner to its end.
fn measured(plan: &AxisPlan, connections_max: u64, budget_s: u64) -> (Vec<Point>, String) {
    let sweep = record::scenario::SweepPlan { connections_max, ..crate::server::plan(budget_s) };
    let mut planner = AxisSweep::new(plan, &sweep, Some(54_321.0), 7);
    let (mut points, mut elapsed_ns) = (Vec::new(), 0);
    for _ in 0..1000 {
        match planner.next(&points, elapsed_ns) {
            SweepStep::Measure(trial) => {
                let Load::Place(place) = trial.load else { panic!("{trial:?}") };
                points.push(axis_point(place.axis, place.value, trial.repeat, points.len() as u32));
                elapsed_ns += trial.duration_ns + trial.warmup_ns + 50_000_000;
            }
            SweepStep::Yardstick => elapsed_ns += 400_000_000,
            SweepStep::Serve { .. } => panic!("there is one server"),
            SweepStep::Done { reason } => return (points, reason),
        }
    }
    panic!("never ends");
}

#[test]
fn every_repeat_measures_every_value_once_in_a_different_order() {
    let values = [0.0, 750.0, 2000.0, 10_000.0, 20_000.0];
    let (points, reason) = measured(&axis_plan(Axis::Cold, &values), 4096, 90);
    assert!(reason.contains("all 5 repeats"), "{reason}");
    let mut orders = std::collections::BTreeSet::new();
    for repeat in 1..=5 {
        let mut of_repeat: Vec<u64> = points
            .iter()
            .filter(|point| point.repeat == repeat)
            .map(|point| point.axis.unwrap().value as u64)
            .collect();
        orders.insert(of_repeat.clone());
        of_repeat.sort_unstable();
        assert_eq!(of_repeat, values.map(|value| value as u64));
    }
    assert!(orders.len() >= 3, "{orders:?}");
}

#[test]
fn the_budget_ends_with_a_complete_repeat() {
    let (points, reason) = measured(&axis_plan(Axis::Cold, &[0.0, 100.0, 200.0]), 4096, 10);
    assert!(reason.contains("budget"), "{reason}");
    assert!(!points.is_empty() && points.len().is_multiple_of(3), "{} points", points.len());
}

#[test]
fn a_change_is_found_in_spite_of_larger_drift() {
    let (points, _) = measured(&axis_plan(Axis::Cold, &[0.0, 1000.0, 2000.0]), 4096, 90);
    let found = axis::of_points(&points, &Criteria::default(), 1.0);
    let change = found[0].cpu_change.unwrap();
    assert!((change.ratio.value - 3.0).abs() < 0.05, "{change:?}");
    assert!(change.ratio.low.unwrap() > 2.9 && change.ratio.high.unwrap() < 3.1, "{change:?}");
    let words = axis::headline(&found[0]).unwrap();
    assert!(words.starts_with("CPU per request grew from "), "{words}");
    assert!(words.contains("between 0 and 2,000 cold connections (+"), "{words}");
}

#[test]
fn errors_do_not_count_as_throughput() {
    let (mut points, _) = measured(&axis_plan(Axis::Cold, &[0.0, 1000.0, 2000.0]), 4096, 90);
    for point in &mut points {
        let share = if point.axis.unwrap().value > 0.0 { 0.25 } else { 1.0 };
        let good = point.value(names::THROUGHPUT).unwrap() * share;
        point.figures.set(names::GOODPUT, Figure::new(good, "1/s", 1000, Origin::Counted));
    }
    let found = axis::of_points(&points, &Criteria::default(), 1.0);
    let all = axis::of_points(
        &measured(&axis_plan(Axis::Cold, &[0.0, 1000.0, 2000.0]), 4096, 90).0,
        &Criteria::default(),
        1.0,
    );
    let (good, all) = (found[0].throughput_change.unwrap(), all[0].throughput_change.unwrap());
    assert!((good.ratio.value / all.ratio.value - 0.25).abs() < 0.01, "{good:?} {all:?}");
}

#[test]
fn the_largest_number_of_conforming_connections_is_bracketed() {
    let (points, _) = measured(&axis_plan(Axis::Conforming, &[]), 4096, 120);
    let found = axis::of_points(&points, &Criteria::default(), 1.0);
    let conforming = found[0].conforming.clone().unwrap();
    let (held, failed) = (conforming.held.unwrap(), conforming.failed.unwrap());
    assert!(held <= 137.0 && failed > 137.0 && failed / held < 1.06, "{conforming:?}");
    assert!(points.iter().any(|point| point.repeat >= 3), "the bounds are repeated");
    let (points, _) = measured(&axis_plan(Axis::Conforming, &[]), 64, 120);
    let found = axis::of_points(&points, &Criteria::default(), 1.0);
    assert_eq!(found[0].conforming.clone().unwrap().failed, None, "64 conform, and no more were allowed");
}

#[test]
fn rates_exceed_the_capacity_as_far_as_requested() {
    let (points, _) = measured(&AxisPlan { overload_ratio: 2.5, ..axis_plan(Axis::Rate, &[]) }, 4096, 200);
    let highest = points.iter().map(|point| point.axis.unwrap().value).fold(0.0, f64::max);
    assert_eq!(highest, 136_000.0, "2.5 x 54,321 to three digits");
}

/// A run of `profile --axis` with one point, with or without measured layers.
fn profiled(layer: Figure) -> RunDir {
    let mut record = fixture::record();
    let run = fixture::found(&mut record).clone();
    let sweep = SweepPlan { axis: Some(axis_plan(Axis::Rate, &[1000.0])), ..run.sweep };
    record.scenario.kind = RunKind::Profile(ProfileRun { base: run.base, sweep });
    let mut point = axis_point(Axis::Rate, 1000.0, 1, 0);
    point.figures = Figures::default();
    let stack = [names::PACKET_SYSTEM_CALL, names::PACKET_TCP, names::PACKET_IP, names::PACKET_ETHERNET];
    for name in stack.into_iter().chain([names::PACKET_DRIVER]) {
        point.figures.set(name, layer.clone());
    }
    RunDir { path: "run".into(), record, points: vec![point], reading_doubts: Vec::new() }
}

fn headline(run: &RunDir) -> String {
    verdict::sentences(run, &zones::of_run(run)).headline
}

#[test]
fn a_profile_without_samples_gives_the_reason_and_no_figures() {
    let mut run = profiled(Figure::not_measured("us", "the server was sampled fewer than 20 times"));
    assert_eq!(headline(&run), "What the layers cost was not measured: the server was sampled fewer than 20 times.");
    run.points[0].figures = Figures::default();
    assert_eq!(headline(&run), "What the layers cost was not measured: no point was sampled.");
    let refused = format!("{NOT_SAMPLED}: sampling is not permitted");
    run.record.doubts.push(Doubt::new(DoubtKind::NotWatched, Severity::Note, refused, "run as root"));
    assert_eq!(headline(&run), "What the layers cost was not measured: sampling is not permitted.");
}

#[test]
fn a_profile_of_one_value_shows_its_cost() {
    let run = profiled(Figure::new(0.5, "us", 100, Origin::Sampled));
    assert_eq!(headline(&run), "The network stack took 2.50 us of CPU time for a packet sent, at 1000/s.");
}
