//! Properties of findings for arbitrary points.

use crate::fixture::any_point;
use crate::reference;
use analyze::zones;
use proptest::prelude::*;
use record::{Criteria, Figure, Origin, Point, names};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if crate::long_run() { 1024 } else { 24 }))]

    #[test]
    fn any_points_give_findings_without_panic_or_nan(mut points in prop::collection::vec(any_point(), 0..40)) {
        for (index, point) in points.iter_mut().enumerate() {
            point.index = index as u32;
        }
        let findings = zones::find(&points, &Criteria::default());
        // Only optional numbers may be infinite: JSON has null for them, as for absent ones.
        let shown = format!("{findings:?}").replace(",", " ").replace("}", " ");
        prop_assert!(![": NaN ", ": inf ", ": -inf "].iter().any(|word| shown.contains(word)), "{shown}");
    }

    #[test]
    fn the_order_of_points_does_not_matter(order in Just((0..45usize).collect::<Vec<_>>()).prop_shuffle()) {
        let points = reference::points();
        let shuffled: Vec<Point> = order.iter().map(|at| points[*at].clone()).collect();
        prop_assert_eq!(zones::find(&shuffled, &Criteria::default()), zones::find(&points, &Criteria::default()));
    }

    #[test]
    fn a_machine_of_another_speed_has_the_same_zones(scale in 0.01f64..100.0) {
        let points = reference::points();
        let mut scaled = points.clone();
        for point in &mut scaled {
            let figure = |name| point.figures.value(name).unwrap();
            let (rate, cpu) = (figure(names::THROUGHPUT) * scale, figure(names::SERVER_CPU) / scale);
            point.figures.set(names::THROUGHPUT, Figure::new(rate, "1/s", 1, Origin::Counted));
            point.figures.set(names::SERVER_CPU, Figure::new(cpu, "us", 1, Origin::Counted));
        }
        let found = |points: &[Point]| zones::find(points, &Criteria::default()).connections.unwrap();
        let (one, other) = (found(&points), found(&scaled));
        for (a, b) in [(&one.yield_point, &other.yield_point), (&one.efficiency_point, &other.efficiency_point)] {
            for (a, b) in [(a.estimate, b.estimate), (a.low, b.low), (a.high, b.high)] {
                prop_assert_eq!(a.is_some(), b.is_some());
                let (a, b) = (a.unwrap_or(1.0), b.unwrap_or(1.0));
                prop_assert!((a / b - 1.0).abs() < 1e-6, "{} {}", a, b);
            }
        }
        let zones = |found: &zones::SweepFindings| found.levels.iter().map(|level| level.zone).collect::<Vec<_>>();
        prop_assert_eq!(zones(&one), zones(&other));
    }
}
