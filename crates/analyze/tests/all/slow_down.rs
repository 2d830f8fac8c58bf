//! Plans and findings of slow-downs, on a synthetic single-threaded server with known places.

use crate::fixture::{axis_plan, axis_point};
use analyze::axis::slow_down::Effect;
use analyze::axis::{AxisFindings, effect_words, headline, of_points};
use analyze::sweep::{AxisSweep, Load, Planner, SweepStep};
use record::{Arrival, Axis, AxisPlace, AxisPlan, Criteria, Figure, Origin, Pace, Point, SlowPlace, names};

/// CPU time of a request without a slow-down, microseconds.
const COST_US: f64 = 50.0;

/// How often a request reaches a place, and how much longer it takes if `us` are added there.
fn law(place: SlowPlace, us: f64) -> (f64, f64) {
    match place {
        // On the server's own thread.
        SlowPlace::Request => (1.0, us),
        SlowPlace::Send => (2.0, us),
        // On another CPU, which has time.
        SlowPlace::Receive => (1.5, 0.0),
        SlowPlace::WakeUp => (0.001, us),
        // Batches grow with the delay.
        SlowPlace::FileRead => (1.0, 0.3 * us * us),
        _ => (0.0, 0.0),
    }
}

fn point(at: AxisPlace, repeat: u32, index: u32) -> Point {
    let mut point = axis_point(Axis::SlowDown, at.value, repeat, index);
    point.axis = Some(at);
    let jitter = 1.0 + 0.004 * (f64::from(index * 7 % 5) - 2.0);
    let drift = 1.0 + 0.02 * f64::from(repeat);
    let reached = at.slowed.map(|place| law(place, 0.0).0);
    let added_us = reached.map(|reached| reached * at.value / 1e3);
    let later_us = at.slowed.map_or(0.0, |place| law(place, added_us.unwrap_or(0.0)).1);
    let time_us = (COST_US + later_us) * drift * jitter;
    let mut set = |name: &str, value: f64, unit: &str| {
        point.figures.set(name, Figure::new(value, unit, 50_000, Origin::Counted));
    };
    set(names::THROUGHPUT, 1e6 / time_us, "1/s");
    set(names::SERVER_CPU, (COST_US + added_us.unwrap_or(0.0)) * drift * jitter, "us");
    set(names::RESPONSE_P99, 8.0 * time_us, "us");
    if let (Some(reached), Some(added_us)) = (reached, added_us) {
        set(names::SLOW_REACHED, reached, "1");
        set(names::SLOW_ADDED, added_us, "us");
    }
    point
}

pub fn measured(values: &[f64], slowed: &[SlowPlace]) -> Vec<Point> {
    let plan = AxisPlan { slowed: slowed.to_vec(), ..axis_plan(Axis::SlowDown, values) };
    let mut planner = AxisSweep::new(&plan, &crate::server::plan(300), None, 7);
    let (mut points, mut elapsed_ns) = (Vec::new(), 0);
    for _ in 0..1000 {
        match planner.next(&points, elapsed_ns) {
            SweepStep::Measure(trial) => {
                let Load::Place(at) = trial.load else { panic!("{trial:?}") };
                points.push(point(at, trial.repeat, points.len() as u32));
                elapsed_ns += trial.duration_ns + trial.warmup_ns + 50_000_000;
            }
            SweepStep::Yardstick => elapsed_ns += 400_000_000,
            SweepStep::Serve { .. } => panic!("there is one server"),
            SweepStep::Done { reason } => {
                assert!(reason.contains("all 5 repeats") || reason.contains("no value"), "{reason}");
                return points;
            }
        }
    }
    panic!("never ends");
}

fn found(points: &[Point]) -> Vec<AxisFindings> {
    of_points(points, &Criteria::default(), 1.0)
}

fn effect(found: &[AxisFindings], place: SlowPlace) -> &Effect {
    let of = found.iter().find(|axis| axis.slowed == Some(place)).unwrap_or_else(|| panic!("{place:?}"));
    of.effect.as_ref().unwrap_or_else(|| panic!("{of:?}"))
}

#[test]
fn delays_are_at_most_a_fifth_of_a_requests_cost_and_unreached_places_are_left_out() {
    let slowed = [SlowPlace::Request, SlowPlace::Send, SlowPlace::WakeUp];
    let points = measured(&[], &slowed);
    let most = |place: SlowPlace| {
        let added = |point: &&Point| point.repeat > 0 && point.axis.is_some_and(|at| at.slowed == Some(place));
        points.iter().filter(added).filter_map(|point| point.axis).map(|at| at.value).fold(0.0, f64::max)
    };
    // 20 % of 50 us, and one packet more at the other place; the first cost is known to within its noise.
    assert!((most(SlowPlace::Request) / 10_000.0 - 1.0).abs() < 0.1, "{}", most(SlowPlace::Request));
    assert!((most(SlowPlace::Send) / 5_000.0 - 1.0).abs() < 0.1, "{}", most(SlowPlace::Send));
    assert_eq!(most(SlowPlace::WakeUp), 0.0);
    for repeat in 1..=5 {
        let of_repeat = points.iter().filter(|point| point.repeat == repeat);
        assert_eq!(of_repeat.count(), 2 * 3 + 2, "two places with three delays, and twice none");
    }
    let found = found(&points);
    let wake_up = found.iter().find(|axis| axis.slowed == Some(SlowPlace::WakeUp)).expect("it was tried");
    assert_eq!(wake_up.effect, None);
    assert!(wake_up.doubts.iter().any(|doubt| doubt.what.contains("0.001 times")), "{:?}", wake_up.doubts);
}

#[test]
fn the_limiting_place_has_a_slope_of_one_and_the_others_of_zero() {
    let found = found(&measured(&[], &[SlowPlace::Receive, SlowPlace::Request, SlowPlace::Send]));
    for (place, truth) in [(SlowPlace::Request, 1.0), (SlowPlace::Send, 1.0), (SlowPlace::Receive, 0.0)] {
        let effect = effect(&found, place);
        let time = effect.time.expect("a closed loop");
        // The drift of a repeat affects its slope.
        assert!((time.value - truth).abs() < 0.12, "{place:?}: {time:?}");
        assert!(time.low.expect("repeats") - 0.12 < truth && truth < time.high.expect("repeats") + 0.12, "{time:?}");
        let cpu = effect.cpu.expect("timed").value;
        assert!((cpu - 1.0).abs() < 0.12, "all that is added is CPU time of the server: {cpu}");
        let gain = effect.gain_ratio.expect("a forecast").value;
        assert!((gain / (1.0 / (1.0 - 0.2 * truth)) - 1.0).abs() < 0.05, "{place:?}: {gain}");
        assert_eq!((effect.is_linear, effect.is_shown()), (Some(true), truth > 0.0), "{place:?}: {effect:?}");
    }
    // The place with the largest gain comes first.
    assert_eq!(found.last().and_then(|axis| axis.slowed), Some(SlowPlace::Receive));
    assert!(effect_words(found.last().and_then(|axis| axis.effect.as_ref())).starts_with("no measurable effect"));
    let words = headline(&found[0]).expect("words");
    assert!(words.contains("20 % of a request's CPU time less: 1.2"), "{words}");
}

#[test]
fn a_wide_interval_is_not_reported_as_no_effect() {
    let found = found(&measured(&[], &[SlowPlace::Receive]));
    let mut effect = effect(&found, SlowPlace::Receive).clone();
    let gain = |low, high| Some(record::Estimate { low: Some(low), high: Some(high), ..effect.gain_ratio.unwrap() });
    let gains = [(gain(0.97, 1.06), "no measurable effect"), (gain(0.71, 1.71), "undecided (0.71 to 1.71")];
    for (gain, words) in gains {
        effect.gain_ratio = gain;
        assert!(effect_words(Some(&effect)).starts_with(words), "{}", effect_words(Some(&effect)));
    }
}

#[test]
fn a_nonlinear_effect_raises_a_doubt() {
    let found = found(&measured(&[2e3, 5e3, 10e3], &[SlowPlace::FileRead]));
    assert_eq!(effect(&found, SlowPlace::FileRead).is_linear, Some(false));
    assert!(found[0].doubts.iter().any(|doubt| doubt.what.contains("is not proportional")), "{:?}", found[0].doubts);
}

#[test]
fn open_loop_throughput_does_not_show_the_servers_capacity() {
    let mut points = measured(&[5e3, 10e3], &[SlowPlace::Request]);
    for point in &mut points {
        point.pace = Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Poisson };
    }
    let found = found(&points);
    let effect = effect(&found, SlowPlace::Request);
    assert_eq!((effect.time, effect.gain_ratio), (None, None));
    assert!(effect.p99.is_some() && effect.cpu.is_some(), "{effect:?}");
    assert!(effect_words(Some(effect)).starts_with("not measured"));
}

#[test]
fn a_saturated_client_hides_the_servers_limit() {
    let mut points = measured(&[5e3, 10e3], &[SlowPlace::Request]);
    for point in &mut points {
        point.figures.set(names::CLIENT_UTILISATION, Figure::new(0.99, "ratio", 1, Origin::Timed));
    }
    let found = found(&points);
    let effect = effect(&found, SlowPlace::Request);
    assert!(effect.is_client_limited && effect.gain_ratio.is_none() && effect.time.is_some(), "{effect:?}");
    assert!(effect_words(Some(effect)).contains("the client was saturated"));
}

#[test]
fn one_repeat_gives_no_forecast() {
    let mut points = measured(&[5e3, 10e3], &[SlowPlace::Request]);
    points.retain(|point| point.repeat == 1);
    let found = found(&points);
    assert!(effect_words(Some(effect(&found, SlowPlace::Request))).contains("too few repeats"));
}

#[test]
fn the_search_ends_if_the_server_reaches_no_place() {
    let points = measured(&[], &[SlowPlace::Accept]);
    assert!(points.iter().all(|point| point.repeat == 0), "nothing to vary");
    assert_eq!(found(&points)[0].effect, None);
}
