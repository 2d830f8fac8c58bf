//! Predictions from runs that are no plain closed loop of good answers from one server on whole CPUs.

use crate::prediction::{LOADS, asked, measured, quiet, value, within};
use crate::server::Server;
use analyze::predict::{Question, Rate};
use record::{Figure, Origin, Point, names};

fn set(point: &mut Point, name: &'static str, value: f64) {
    let unit = names::ALL.iter().find(|(known, ..)| *known == name).map_or("us", |(_, unit, _)| *unit);
    point.figures.set(name, Figure::new(value, unit, 1000, Origin::Counted));
}

#[test]
fn a_limit_of_cpu_time_is_raised_with_the_cpus_asked_for() {
    // Half a CPU of 100 us a request: 5,000 a second.
    let mut run = measured(&Server { demand: 200e-6, path: 5e-3, ..quiet() }, &LOADS, 3);
    for point in &mut run.points {
        let cpu_us = point.value(names::SERVER_CPU).unwrap() / 2.0;
        let busy = (point.value(names::THROUGHPUT).unwrap() * cpu_us * 1e-6).min(0.5);
        set(point, names::SERVER_QUOTA, 0.5);
        set(point, names::SERVER_CPU, cpu_us);
        set(point, names::SERVER_CPU_BUSY, busy);
        set(point, names::SERVER_QUOTA_USED, busy / 0.5);
    }
    within(value(&asked(&run, Question::default()), "capacity"), 5e3, 0.05);
    for cpus in [1.0, 2.0, 4.0] {
        let found = asked(&run, Question { cpus: Some(cpus), ..Question::default() });
        within(value(&found, "capacity"), cpus * 1e4, 0.05);
        let words = format!("limit of CPU time, 0.5 CPUs, is raised to {cpus}");
        assert!(found.answer.assumptions.iter().any(|assumed| assumed.contains(&words)), "{:?}", found.answer);
    }
    // The queue of an open loop is before half a CPU, too: it grows without end towards 5,000 a second.
    let wait = |rate: f64| {
        value(&asked(&run, Question { rate: Some(Rate::PerSec(rate)), ..Question::default() }), "response mean")
    };
    assert!(wait(4500.0) > wait(500.0) + 4.0 * 200e-6, "{} {}", wait(4500.0), wait(500.0));
}
