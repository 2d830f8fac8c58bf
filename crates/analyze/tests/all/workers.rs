//! A server whose threads are all in use.

use analyze::predict::check::Extrapolation;
use analyze::predict::readings::Readings;
use analyze::predict::validate::workers;
use statistics::server::ModelPoint;

/// (connections, requests per second, busy CPUs, threads) of a server with two CPUs.
fn readings(levels: &[(f64, f64, f64, f64)]) -> Readings {
    let reading = |&(load, throughput_per_sec, busy_cpus, threads): &(f64, f64, f64, f64)| ModelPoint {
        load,
        in_flight: 1.0,
        is_in_order: true,
        throughput_per_sec,
        demand_s: busy_cpus / throughput_per_sec,
        busy_cpus,
        threads: Some(threads),
        ..ModelPoint::default()
    };
    Readings { closed: levels.iter().map(reading).collect(), parallel_cpus: 2.0, ..Readings::default() }
}

fn said(levels: &[(f64, f64, f64, f64)]) -> Option<String> {
    let extrapolation = Extrapolation { up_to_load: 4.0, ..Extrapolation::default() };
    workers(&readings(levels), &extrapolation)
}

#[test]
fn throughput_that_ends_growing_at_the_number_of_threads_is_limited_by_threads() {
    let words = said(&[
        (1.0, 100.0, 0.1, 4.0),
        (4.0, 400.0, 0.4, 4.0),
        (8.0, 800.0, 0.8, 8.0),
        (16.0, 805.0, 0.8, 8.0),
        (64.0, 810.0, 0.8, 8.0),
    ]);
    let words = words.expect("eight threads serve eight connections");
    assert!(words.contains("8 threads (4 at the fitted loads, constant from 8 to 64 connections)"), "{words}");
    assert!(words.contains("40 % busy"), "{words}");
}

#[test]
fn an_event_loop_with_few_threads_is_not_limited_by_threads() {
    let follows = [(1.0, 100.0, 0.1, 2.0), (4.0, 400.0, 0.4, 2.0), (16.0, 1600.0, 1.6, 2.0)];
    assert_eq!(said(&follows), None, "its rate follows the connections");
    let saturated = [(1.0, 1000.0, 0.9, 2.0), (4.0, 2000.0, 1.99, 2.0), (64.0, 2000.0, 1.99, 2.0)];
    assert_eq!(said(&saturated), None, "its CPUs are full");
    assert_eq!(said(&[(1.0, 100.0, 0.2, 1.0), (64.0, 100.0, 0.2, 1.0)]), None, "one thread is a loop, not a pool");
    assert_eq!(said(&[]), None);
}
