//! The plan and the findings of an axis, for a synthetic server; the cost of a packet in each layer along it; and
//! scaling over CPUs by the Universal Scalability Law.

use crate::fixture::{self, axis_plan, axis_point};
use analyze::axis::cpus::Scaling;
use analyze::axis::layers::{LayersAt, OVERALL};
use analyze::axis::{self, AxisFindings, of_points, sentences as of_axis};
use analyze::sweep::{AxisSweep, Load, Planner, SweepStep};
use analyze::zones;
use record::profile::NOT_SAMPLED;
use record::scenario::{ProfileRun, SweepPlan};
use record::{
    Axis, AxisPlace, AxisPlan, Criteria, Doubt, DoubtKind, Estimate, Figure, Figures, Origin, Point, RunDir, RunKind,
    Severity, Sweep, names,
};
use statistics::usl::Usl;

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

const LAYERS: [&str; 8] = [
    names::PACKET_USER,
    names::PACKET_SYSTEM_CALL,
    names::PACKET_TCP,
    names::PACKET_IP,
    names::PACKET_ETHERNET,
    names::PACKET_DRIVER,
    names::PACKET_OTHER,
    names::PACKET_UNATTRIBUTED,
];

fn point(repeat: u32, connections: u64, tcp_us: f64) -> Point {
    let mut figures = LAYERS.map(|name| (name, if name == names::PACKET_TCP { tcp_us } else { 1.0 })).to_vec();
    figures.extend([
        (names::PACKETS_SENT, 10_000.0),
        (names::PACKETS_RECEIVED, 9_000.0),
        (names::SEGMENTS_SENT, 10_000.0),
        (names::PAYLOAD_SENT, 14_480_000.0),
    ]);
    let mut point = fixture::point(Sweep::Axis, repeat, connections, &figures);
    point.figures.set("layer.stack_cycles_per_packet_sent", Figure::not_measured("count", "no counter"));
    point.axis = Some(AxisPlace { axis: Axis::Connections, value: connections as f64, slowed: None });
    point
}

fn findings(points: &[Point]) -> AxisFindings {
    of_points(points, &Criteria::default(), 1.0).remove(0)
}

#[test]
fn the_stack_is_the_sum_of_its_layers_and_names_the_layers_that_grew() {
    let points: Vec<Point> = (1..=4).flat_map(|repeat| [point(repeat, 4, 2.0), point(repeat, 2048, 5.0)]).collect();
    let layers = findings(&points).layers.unwrap();
    let overall = |level: &LayersAt| level.cost(OVERALL).unwrap().us_per_packet.unwrap().value;
    // System Call, IP, Ethernet and Driver cost 1 us each.
    assert_eq!(layers.levels.iter().map(overall).collect::<Vec<_>>(), [6.0, 9.0]);
    let level = &layers.levels[0];
    assert_eq!((level.packets_sent, level.samples), (40_000, 3200));
    assert!((level.received_per_sent.unwrap() - 0.9).abs() < 1e-9);
    assert_eq!(level.segments_per_packet, Some(1.0));
    assert!((level.bits_per_sec.unwrap().value - 115_840_000.0).abs() < 1e-3);
    // 2 us per packet for 10,000 packets in a second.
    assert!((level.cost("TCP").unwrap().cpu_ratio.unwrap().value - 0.02).abs() < 1e-9);
    let change = layers.changes.iter().find(|change| change.layer == "TCP").unwrap();
    assert!((change.us.ratio.value - 2.5).abs() < 1e-9 && change.us.ratio.n == 4, "{change:?}");
    assert_eq!(layers.changes[0].layer, OVERALL);
    assert_eq!(layers.not_measured, [("cycles".to_string(), "no counter".to_string())]);
    assert!(layers.events.is_empty());
}

#[test]
fn instructions_per_cycle_need_both_counters() {
    let mut both = point(1, 4, 2.0);
    for (event, value) in [("cycles", 3000.0), ("instructions", 1200.0)] {
        for word in ["tcp", "stack"] {
            both.figures.set(&names::event_per_packet(word, event), Figure::new(value, "count", 50, Origin::Sampled));
        }
    }
    let layers = findings(&[both]).layers.unwrap();
    assert_eq!(layers.events, ["cycles", "instructions"]);
    let tcp = layers.levels[0].cost("TCP").unwrap();
    assert!((tcp.instructions_per_cycle(&layers.events).unwrap() - 0.4).abs() < 1e-9);
    assert_eq!(layers.levels[0].cost("IP").unwrap().instructions_per_cycle(&layers.events), None);
    assert!(layers.not_measured.is_empty());
}

#[test]
fn points_without_a_profile_have_no_layers() {
    let mut bare = point(1, 4, 2.0);
    bare.figures = Figures::default();
    assert_eq!(findings(&[bare]).layers, None);
}

/// Points of three repeats whose machines differ in speed, with these shares of busy CPUs.
fn points(law: Usl, steps: &[(f64, f64)]) -> Vec<Point> {
    let mut points = Vec::new();
    for repeat in 1..=3 {
        for (cpus, busy) in steps {
            let rate = law.throughput(*cpus) * (1.0 + 0.1 * f64::from(repeat));
            let figures = [(names::THROUGHPUT, rate), (names::GOODPUT, rate), (names::SERVER_CPU_BUSY, *busy)];
            let axis = Some(AxisPlace { axis: Axis::Cpus, value: *cpus, slowed: None });
            points.push(Point { axis, ..fixture::point(Sweep::Axis, repeat, 64, &figures) });
        }
    }
    points
}

fn scaling(points: &[Point]) -> (Scaling, String) {
    let found = of_points(points, &Criteria::default(), 1.0);
    let said = of_axis(&found[0]).join(" ");
    (found[0].scaling.clone().expect("it is the axis of CPUs"), said)
}

#[test]
fn the_law_is_found_again_whatever_the_machines_speed() {
    let law = Usl { alpha: 0.05, beta: 0.002, gamma: 1000.0 };
    for steps in [&[(1.0, 0.99), (2.0, 0.99), (4.0, 0.99), (8.0, 0.5)][..], &[(1.0, 1.0), (4.0, 1.0), (8.0, 0.5)]] {
        let (found, said) = scaling(&points(law, steps));
        let near = |estimate: Option<Estimate>, value: f64| {
            let found = estimate.expect("it can be told").value;
            assert!((found / value - 1.0).abs() < 0.05, "{found} instead of {value}");
        };
        near(found.contention_ratio, law.alpha);
        near(found.coherency_ratio, law.beta);
        near(found.peak_cpus, (0.95f64 / 0.002).sqrt());
        for words in ["peaks at 22 CPUs", "with 1 CPU its CPU is full", "with 8 CPUs its CPUs are only 50 % busy"] {
            assert!(said.contains(words), "{words} is not in {said}");
        }
    }
}

#[test]
fn two_numbers_of_cpus_do_not_show_coherency() {
    let law = Usl { alpha: 0.1, beta: 0.0, gamma: 1000.0 };
    let (found, said) = scaling(&points(law, &[(1.0, 1.0), (2.0, 1.0)]));
    assert!((found.contention_ratio.expect("it can be told").value - 0.1).abs() < 0.005);
    assert_eq!((found.coherency_ratio, found.peak_cpus), (None, None));
    let slower = Usl { alpha: 0.0, beta: 1.0, gamma: 1000.0 };
    let (worse, _) = scaling(&points(slower, &[(1.0, 1.0), (2.0, 1.0)]));
    assert_eq!(worse.contention_ratio.map(|all| all.value), Some(1.0), "throughput fell");
    assert!(said.contains("cannot distinguish contention from coherency"), "{said}");
    let (found, said) = scaling(&points(law, &[(1.0, 1.0), (2.0, 1.0), (4.0, 1.0)]));
    assert!(found.peak_cpus.is_none() && said.contains("too little for a peak"), "{said}");
}
