//! Compares a simulated queue with Poisson arrivals with the textbooks' formulas.

use proptest::prelude::*;
use statistics::queue;

#[track_caller]
fn near(found: f64, expected: f64, digits: i32) {
    let slack = 0.6 * 10f64.powi(expected.abs().log10().floor() as i32 + 1 - digits);
    assert!((found - expected).abs() <= slack, "{found} is not {expected} to {digits} digits");
}

#[test]
fn single_stations_follow_erlang_and_pollaczek_khinchine() {
    let four = queue::general_service(3.0, 1.0, 1.0, 4).unwrap();
    near(four.waits_ratio, 27.0 / 53.0, 12);
    near(four.response_s, 1.509433962264, 12);
    // Mean wait: rate E[S^2] / (2 (1 - utilisation)); constant service halves that of exponential service.
    for (cv_squared, second_moment) in [(0.0, 1.0), (1.0, 2.0), (9.0, 10.0)] {
        let queue = queue::general_service(0.8, 1.0, cv_squared, 1).unwrap();
        near(queue.wait_s, 0.8 * second_moment / (2.0 * 0.2), 12);
    }
    let queue = queue::general_service(0.8, 1.0, 1.0, 1).unwrap();
    // M/M/1: P(W > t) = utilisation exp(-t (1 - utilisation) / service).
    near(0.8 * (-queue.wait_quantile_s(0.99) * 0.2).exp(), 0.01, 12);
    assert_eq!(queue.wait_quantile_s(0.1), 0.0, "20 % do not wait at all");
}

#[test]
fn an_overloaded_queue_has_no_answer() {
    for (rate, service_s, cv_squared, servers) in [
        (1.0, 1.0, 1.0, 1),
        (1.0, -1.0, 1.0, 1),
        (f64::NAN, 1.0, 1.0, 4),
        (1.0, 0.1, f64::INFINITY, 1),
        (1.0, 0.1, 1.0, 0),
    ] {
        assert_eq!(
            queue::general_service(rate, service_s, cv_squared, servers),
            None,
            "{rate} {service_s} {cv_squared}"
        );
    }
    assert_eq!(queue::general_service(0.0, 1.0, 1.0, 0), None, "nobody serves nobody");
}

proptest! {
    #[test]
    fn no_numbers_panic(
        rate in any::<f64>(),
        service_s in any::<f64>(),
        cv_squared in any::<f64>(),
        servers in 0u32..4,
    ) {
        let _ = queue::general_service(rate, service_s, cv_squared, servers);
    }
}
