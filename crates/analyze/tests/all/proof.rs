//! Making the named limit dearer: the prediction for each kind of stage, and the conclusion from the measured slope.

use crate::account::{group, keep, waits_for_a_lock};
use crate::rules::{healthy, set, waits};
use crate::server::{Bench, Server};
use crate::{fixture, slow_down};
use analyze::axis::slow_down::Effect;
use analyze::zones;
use record::account::ThreadGroup;
use record::account::WaitKind::{Events, Sleep, Work};
use record::{Estimate, Point, SlowPlace, names};
use verdict::proof::Conclusion::{NotProved, Proved, Refuted, Undecided};
use verdict::proof::{Experiment, Proof, concluded, experiment};

/// The experiment for a server, of which each point was changed.
fn planned(server: Server, change: impl Fn(&mut Point)) -> Result<Experiment, Proof> {
    let mut bench = Bench::new(server, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64, 128] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    bench.points.iter_mut().for_each(change);
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &bench.points);
    experiment(&run, &zones::of_run(&run))
}

fn effect(slope: f64, interval: Option<(f64, f64)>) -> Effect {
    Effect {
        reached_per_request: None,
        most_added_us: 10.0,
        cpu_us_per_request: Some(50.0),
        time: Some(Estimate::new(slope, interval, 0.95, 5)),
        p99: None,
        cpu: None,
        is_linear: None,
        is_client_limited: false,
        gain_ratio: None,
    }
}

#[test]
fn a_slope_proves_or_refutes_unless_its_interval_is_too_wide() {
    for (predicted, slope, interval, expected) in [
        (1.0, 0.97, Some((0.9, 1.05)), Proved),
        (1.0, 0.85, Some((0.83, 0.88)), Proved),
        (1.0, 0.1, Some((-0.1, 0.3)), Refuted),
        (1.0, 1.4, Some((1.2, 1.6)), Proved),
        (1.0, 2.4, Some((1.8, 2.8)), Refuted),
        (1.0, 0.9, Some((0.1, 1.7)), Undecided),
        (1.0, 1.0, None, Undecided),
        (0.125, 0.13, Some((0.1, 0.16)), Proved),
        (0.125, 1.0, Some((0.9, 1.1)), Refuted),
        (0.0, 0.02, Some((-0.1, 0.14)), Proved),
        (0.0, 0.9, Some((0.8, 1.0)), Refuted),
        (0.0, 0.1, Some((-0.4, 0.6)), Undecided),
    ] {
        let (conclusion, why) = concluded(&effect(slope, interval), predicted);
        assert_eq!(conclusion, expected, "{slope} {interval:?}, predicted {predicted}: {why}");
    }
    let by_client = Effect { is_client_limited: true, ..effect(0.1, Some((0.0, 0.2))) };
    assert_eq!(concluded(&by_client, 1.0).0, Undecided);
}

#[test]
fn the_prediction_is_that_of_the_full_stage() {
    let thread = planned(healthy(), |point| set(point, names::SERVER_CPUS, 1.0, 1)).expect("a full CPU");
    assert_eq!((thread.proof.predicted, thread.axis.slowed[0]), (Some(1.0), SlowPlace::Request), "{thread:?}");
    let pool = planned(waits(), |point| {
        let busy = (point.connections as f64).min(8.0) - 0.05;
        let waits = [(Sleep, "clock_nanosleep", "", busy), (Work, "futex", "0x8", 8.0 - busy - 0.05)];
        let first = group("app", 0.02, 0.0, &[(Events, "epoll_wait", "", 0.98)]);
        keep(point, vec![ThreadGroup { is_first: true, ..first }, group("app", 0.05, 0.0, &waits)], Vec::new());
    });
    assert_eq!(pool.expect("a full pool").proof.predicted, Some(0.125));
    let lock = planned(waits(), |point| waits_for_a_lock(point, point.connections as f64)).expect("a lock");
    assert_eq!((lock.proof.predicted, lock.axis.slowed[0]), (Some(1.0), SlowPlace::Lock));
    // 20 % of the 100 us between two releases.
    assert!((lock.axis.values[1] / 20e3 - 1.0).abs() < 0.1, "{:?}", lock.axis);
    let none = planned(waits(), |_| {}).expect_err("no limit was seen");
    assert_eq!((none.conclusion, none.predicted), (NotProved, None), "{none:?}");
}

#[test]
fn a_thread_whose_slope_is_one_is_proved_and_a_pool_of_eight_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let points = slow_down::measured(&[5e3, 10e3], &[SlowPlace::Request]);
    let made = fixture::write(folder.path(), fixture::record(), &points);
    let findings = zones::of_run(&made);
    for (predicted, expected) in [(1.0, Proved), (0.125, Refuted)] {
        let mut planned = planned(healthy(), |point| set(point, names::SERVER_CPUS, 1.0, 1)).expect("a full CPU");
        planned.proof.predicted = Some(predicted);
        let proof = planned.judged(&made, &findings);
        assert_eq!(proof.conclusion, expected, "{proof:?}");
        let effect = proof.axis.and_then(|axis| axis.effect).expect("an effect");
        assert!((effect.most_added_us - 10.0).abs() < 0.1, "{effect:?}");
    }
}
