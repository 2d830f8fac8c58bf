//! A measured sweep: nginx with one worker, a 1 KiB file, keep-alive, on a machine whose speed drifts by about 20 %
//! between repeats. (Each repeat here is the median of five, times a drift.)

use crate::server::plan;
use analyze::zones::{self, Zone};
use record::{Figure, Origin, Outcomes, Pace, Point, Sweep, names};

/// Connections, requests per second, CPU microseconds per request, idle share of the server's CPU, p99 milliseconds.
const MEASURED: &[(u64, f64, f64, f64, f64)] = &[
    (1, 31_490.0, 16.2, 0.43, 0.3),
    (2, 58_925.0, 12.8, 0.18, 0.2),
    (4, 76_116.0, 13.7, 0.01, 0.35),
    (8, 80_376.0, 13.0, 0.0, 0.4),
    (16, 74_661.0, 13.4, 0.0, 1.3),
    (64, 81_355.0, 12.2, 0.0, 4.0),
    (256, 80_247.0, 12.5, 0.02, 8.0),
    (1024, 61_186.0, 16.5, 0.02, 40.0),
    (4096, 52_620.0, 17.8, 0.06, 110.0),
];

pub fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (repeat, drift) in [1.0, 0.8, 1.2, 0.9, 1.1].into_iter().enumerate() {
        for (connections, rate, cpu_us, idle, p99_ms) in MEASURED {
            let mut point = Point {
                index: points.len() as u32,
                duration_ns: 2_000_000_000,
                outcomes: Outcomes { sent: 100_000, ok: 100_000, ..Default::default() },
                doubts: vec![],
                ..Point::new(Sweep::Connections, repeat as u32, *connections, Pace::Closed)
            };
            let mut set = |name, value, unit| point.figures.set(name, Figure::new(value, unit, 1, Origin::Counted));
            set(names::THROUGHPUT, rate * drift, "1/s");
            set(names::SERVER_CPU, cpu_us / drift, "us");
            set(names::SERVER_CPU_BUSY, 1.0 - idle, "ratio");
            set(names::RESPONSE_P99, p99_ms * 1000.0, "us");
            points.push(point);
        }
    }
    points
}

#[test]
fn the_measured_nginx_sweep_is_elastic_up_to_about_three_and_loses_efficiency_after_256() {
    let found = zones::find(&points(), &plan(90).criteria).connections.unwrap();
    let zone = |load: f64| found.levels.iter().find(|level| level.load == load).unwrap().zone;
    assert_eq!((zone(1.0), zone(2.0), zone(4.0)), (Zone::Elastic, Zone::Elastic, Zone::Plastic));
    assert_eq!((zone(8.0), zone(256.0), zone(1024.0)), (Zone::Plastic, Zone::Plastic, Zone::Plastic));
    assert_eq!(zone(4096.0), Zone::Failure, "p99 was 110 ms, the limit is 100 ms");
    let estimate = found.yield_point.estimate.unwrap();
    assert!((2.2..3.5).contains(&estimate), "80k/s over 30k/s for each connection: {:?}", found.yield_point);
    let efficiency = found.efficiency_point.estimate.unwrap();
    assert!((256.0..1024.0).contains(&efficiency), "{:?}", found.efficiency_point);
    let failure = &found.failure_point;
    assert_eq!((failure.held, failure.failed), (Some(1024.0), Some(4096.0)));
    let cpu = found.cpu.unwrap();
    assert!((cpu.ratio - 17.8 / 12.2).abs() < 0.03, "{cpu:?}");
}
