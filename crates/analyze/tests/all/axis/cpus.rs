//! Scaling over CPUs by the Universal Scalability Law.

use crate::fixture;
use analyze::axis::cpus::Scaling;
use analyze::axis::{of_points, sentences as of_axis};
use analyze::predict::usl::Usl;
use record::{Axis, AxisPlace, Criteria, Estimate, Point, Sweep, names};

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
