//! How often `compare` detects a slower server or raises a false alarm, on synthetic machines: their speed drifts
//! between rounds, turns of a server differ slightly, each point scatters, and other work disturbs some.

use crate::fixture;
use analyze::compare::{self, Comparison, Conclusion};
use rand::RngExt;
use record::{DoubtKind, Figure, Origin, Pace, Point, RunDir, Sweep, names};
use statistics::random;
use std::path::PathBuf;

/// A machine; scatter as standard deviations of logarithms.
#[derive(Clone, Copy)]
struct Machine {
    /// Scatter of a round's speed, for both servers.
    drift: f64,
    /// Scatter of a server's turn within the round.
    turn: f64,
    /// Scatter of a point.
    point: f64,
    /// Share of the points that other work disturbs by taking a tenth to four tenths of their speed.
    disturbed: f64,
}

const QUIET: Machine = Machine { drift: 0.1, turn: 0.012, point: 0.03, disturbed: 0.0 };
/// A shared machine whose neighbour uses half a CPU.
const SHARED: Machine = Machine { drift: 0.3, turn: 0.03, point: 0.06, disturbed: 0.5 };

const LOADS: u32 = 14;

/// Both runs; a request to B costs `times` as much as one to A. Measured in turn, or on two days.
fn runs(machine: Machine, times: f64, rounds: u32, seed: u64, in_turn: bool) -> [RunDir; 2] {
    let mut random = random(seed);
    // The sum of twelve uniform numbers is nearly normal.
    let mut normal = move || (0..12).map(|_| random.random_range(-0.5..0.5)).sum::<f64>();
    let mut choice = statistics::random(!seed);
    let mut points = [Vec::new(), Vec::new()];
    for repeat in 0..rounds {
        let both = machine.drift * normal();
        for (side, points) in points.iter_mut().enumerate() {
            let drift = if in_turn { both } else { machine.drift * normal() };
            let turn = drift + machine.turn * normal();
            for load in 0..LOADS {
                let is_disturbed = choice.random_range(0.0..1.0) < machine.disturbed;
                let taken = if is_disturbed { choice.random_range(0.1..0.4) } else { 0.0 };
                let speed = (turn + machine.point * normal()).exp() * (1.0 - taken);
                let cost_us = 200.0 * if side == 1 { times } else { 1.0 };
                let (rate, connections) = (1e6 / cost_us * speed, 1u64 << load);
                let mut point = Point::new(Sweep::Connections, repeat, connections, Pace::Closed);
                (point.index, point.duration_ns) = (points.len() as u32, 400_000_000);
                point.outcomes.ok = (rate * 0.4) as u64;
                let tail = (0.15 * normal()).exp();
                for (name, value) in [
                    (names::THROUGHPUT, rate),
                    (names::SERVER_CPU, cost_us / speed.sqrt() * (machine.point * normal()).exp()),
                    (names::RESPONSE_P50, connections as f64 * 1e6 / rate),
                    (names::RESPONSE_P99, 1.5 * tail * connections as f64 * 1e6 / rate),
                ] {
                    point.figures.set(name, Figure::new(value, "", 1000, Origin::Counted));
                }
                if is_disturbed {
                    point.doubts.push(DoubtKind::NoisyNeighbour.warning("other work used 0.5 CPUs", "stop it"));
                }
                points.push(point);
            }
        }
    }
    points.map(|points| RunDir {
        path: PathBuf::from("runs/x"),
        record: fixture::record(),
        points,
        reading_doubts: vec![],
    })
}

fn many(machine: Machine, times: f64, rounds: u32, count: u64, in_turn: bool) -> Vec<Comparison> {
    let compared = if in_turn { compare::interleaved } else { compare::runs };
    let one = |seed: u64| {
        let [a, b] = runs(machine, times, rounds, seed.wrapping_mul(0x9e37_79b9) + 17, in_turn);
        compared(&a, &b, compare::THRESHOLD_RATIO).unwrap()
    };
    (0..count).map(one).collect()
}

fn share(found: &[Comparison], conclusion: Conclusion) -> f64 {
    found.iter().filter(|found| found.conclusion == conclusion).count() as f64 / found.len() as f64
}

fn alarms(found: &[Comparison]) -> f64 {
    share(found, Conclusion::Regression)
}

/// Seeded, so each number is the same on every machine. 150 comparisons determine a share of 0.05 to 0.018, and one
/// of 0.9 to 0.025; 60 to 0.028 and 0.039.
fn seeds() -> u64 {
    if crate::long_run() { 150 } else { 60 }
}

#[test]
fn a_quiet_machine_shows_a_server_that_is_5_or_10_percent_slower() {
    for rounds in [4, 6] {
        let same = many(QUIET, 1.0, rounds, seeds(), true);
        assert!(alarms(&same) <= 0.05, "A against A, {rounds} rounds: {}", alarms(&same));
        let slower = many(QUIET, 1.1, rounds, seeds(), true);
        assert!(alarms(&slower) >= 0.9, "10 % slower, {rounds} rounds: {}", alarms(&slower));
    }
    let slower = many(QUIET, 1.05, 6, seeds(), true);
    assert!(alarms(&slower) >= 0.9, "5 % slower: {}", alarms(&slower));
    let same = share(&many(QUIET, 1.0, 6, seeds(), true), Conclusion::NoRegression);
    assert!(same >= 0.9, "no difference is said to be none: {same}");
}

#[test]
fn a_neighbour_widens_intervals_and_gives_no_false_alarms() {
    for rounds in [2, 4, 6] {
        let same = many(SHARED, 1.0, rounds, 3 * seeds(), true);
        assert!(alarms(&same) <= 0.05, "A against A, {rounds} rounds: {}", alarms(&same));
    }
    let slower = many(SHARED, 1.1, 8, seeds(), true);
    assert!(alarms(&slower) >= 0.9, "10 % slower, 8 rounds: {}", alarms(&slower));
}

#[test]
fn separate_runs_give_no_false_alarms_with_any_drift() {
    for machine in [QUIET, SHARED] {
        for rounds in [4, 6] {
            let same = many(machine, 1.0, rounds, seeds(), false);
            assert!(alarms(&same) <= 0.05, "A against A, {rounds} repeats: {}", alarms(&same));
        }
    }
    let twice = many(QUIET, 1.25, 6, seeds(), false);
    assert!(alarms(&twice) >= 0.9, "25 % slower: {}", alarms(&twice));
}

#[test]
fn a_ratio_lies_in_its_interval_as_often_as_stated() {
    let truth = 1.0 / 1.1;
    for machine in [QUIET, SHARED] {
        let found = many(machine, 1.1, 5, seeds(), true);
        let covers = |one: &&Comparison| {
            let ratio = one.figure(names::THROUGHPUT).unwrap().ratio;
            assert_eq!((ratio.confidence, ratio.n), (0.975, 5), "four figures share the false alarms");
            !ratio.excludes(truth)
        };
        let covered = found.iter().filter(covers).count() as f64 / found.len() as f64;
        assert!((0.93..=1.0).contains(&covered), "{covered}");
    }
}

#[test]
fn a_worsening_of_the_stated_size_is_found_about_as_often_as_stated() {
    let size = |found: &Comparison| found.figure(names::THROUGHPUT).unwrap().detectable_ratio.unwrap();
    let sizes: Vec<f64> = many(SHARED, 1.0, 5, seeds(), true).iter().map(size).collect();
    let size = statistics::median(&sizes).unwrap();
    let found = many(SHARED, 1.0 / (1.0 - size), 5, seeds(), true);
    let seen = found.iter().filter(|one| one.figure(names::THROUGHPUT).unwrap().is_found()).count() as f64;
    assert!((0.65..0.95).contains(&(seen / seeds() as f64)), "{seen} of {} at {size}", seeds());
}

#[test]
fn a_differing_load_is_named_and_a_random_difference_rarely() {
    let departing = |found: &Comparison| {
        let main = found.figures.iter().filter(|figure| figure.is_main);
        main.flat_map(|figure| &figure.loads).filter(|at| at.departs).map(|at| at.load).collect::<Vec<f64>>()
    };
    let same = many(QUIET, 1.1, 6, seeds(), true);
    let chance = same.iter().filter(|found| !departing(found).is_empty()).count() as f64;
    assert!(chance / seeds() as f64 <= 0.05, "{chance} of {}", seeds());
    let named = (0..seeds()).filter(|seed| {
        let [a, mut b] = runs(QUIET, 1.0, 6, 7 + seed, true);
        for point in b.points.iter_mut().filter(|point| point.connections == 512) {
            let rate = point.value(names::THROUGHPUT).unwrap();
            point.figures.set(names::THROUGHPUT, Figure::new(0.7 * rate, "1/s", 1000, Origin::Counted));
        }
        let found = compare::interleaved(&a, &b, compare::THRESHOLD_RATIO).unwrap();
        let is_said = compare::headline(&found).contains("Otherwise: throughput ");
        departing(&found) == [512.0] && is_said
    });
    let named = named.count() as f64;
    assert!(named / seeds() as f64 >= 0.9, "{named} of {}", seeds());
}

#[test]
fn the_first_sentence_is_the_answer() {
    let first = |machine, times, rounds, in_turn| {
        let [a, b] = runs(machine, times, rounds, 1, in_turn);
        let found = if in_turn { compare::interleaved(&a, &b, 0.05) } else { compare::runs(&a, &b, 0.05) };
        let words = compare::headline(&found.unwrap());
        println!("{words}");
        words
    };
    let worse = first(QUIET, 1.1, 6, true);
    assert!(
        worse.starts_with("B answers 9.")
            && worse.contains(" fewer requests than A (7.0 % to 12 %; 14 loads, 6 repeats)")
    );
    let same = first(QUIET, 1.0, 8, true);
    assert!(same.starts_with("No difference above ") && same.contains(" in throughput and CPU per request (14 loads"));
    let better = first(QUIET, 0.9, 6, true);
    assert!(
        better.starts_with("B answers 1")
            && better.contains(" more requests than A (")
            && better.contains("No regression")
    );
    let open = first(SHARED, 1.0, 3, true);
    assert!(open.starts_with("Could not tell whether B is worse than A by more than 5 %: throughput -"), "{open}");
    assert!(open.contains(" would have been found in ") && open.contains("; repeat "), "{open}");
    let apart = first(SHARED, 1.0, 4, false);
    assert!(apart.contains("; measure both in turn, so that drift cancels: find --compare-with."), "{apart}");
}
