//! Compares regressions and the Universal Scalability Law with published fits.

use statistics::server::{Form, Server};
use statistics::{regression, usl};

/// SPEC SDM91 on a Sun SPARCcenter 2000, October 1994; in Gunther, Guerrilla Capacity Planning, 2007.
const SPECSDM91: [(f64, f64); 7] =
    [(1.0, 64.9), (18.0, 995.9), (36.0, 1652.4), (72.0, 1853.2), (108.0, 1828.9), (144.0, 1775.0), (216.0, 1702.2)];
/// A ray tracer on an SGI Origin 2000; in the same book.
const RAYTRACER: [(f64, f64); 11] = [
    (1.0, 20.0),
    (4.0, 78.0),
    (8.0, 130.0),
    (12.0, 170.0),
    (16.0, 190.0),
    (20.0, 200.0),
    (24.0, 210.0),
    (28.0, 230.0),
    (32.0, 260.0),
    (48.0, 280.0),
    (64.0, 310.0),
];

#[track_caller]
fn prints_as(found: f64, decimals: usize, expected: &str) {
    assert_eq!(format!("{found:.decimals$}"), expected);
}

#[test]
fn the_fit_of_sdm91_equals_that_of_the_r_package() {
    // Moeding and Gunther: R package usl 3.0.4, README and tests.
    let fit = usl::fit(&SPECSDM91).unwrap();
    prints_as(fit.alpha, 7, "0.0277285");
    prints_as(fit.beta, 7, "0.0001044");
    prints_as(fit.gamma, 5, "89.99523");
    let fitted: Vec<String> = SPECSDM91.iter().map(|(load, _)| format!("{:.0}", fit.throughput(*load))).collect();
    assert_eq!(fitted, ["90", "1078", "1541", "1850", "1879", "1822", "1646"]);
    let fit = usl::fit(&RAYTRACER[..6]).unwrap();
    prints_as(fit.alpha, 5, "0.02444");
    prints_as(fit.beta, 5, "0.00163");
    prints_as(fit.gamma, 5, "20.85605");
}

#[test]
fn a_server_without_coherency_cost_stays_at_its_bound() {
    // The package's vignette: beta = 0 for all of the ray tracer's data.
    let fit = usl::fit(&RAYTRACER).unwrap();
    assert_eq!(fit.beta, 0.0);
    assert!((0.04..0.06).contains(&fit.alpha), "{fit:?}");
    let law = usl::Usl { alpha: 0.02, beta: 0.02, gamma: 1.0 };
    let exact: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0].map(|n| (n, law.throughput(n))).to_vec();
    let fit = usl::fit(&exact).unwrap();
    assert!((fit.alpha - 0.02).abs() < 1e-6 && (fit.beta - 0.02).abs() < 1e-6, "{fit:?}");
}

#[test]
fn one_load_is_not_fitted_and_two_show_no_coherency() {
    assert_eq!(usl::fit(&SPECSDM91[..1]), None);
    assert_eq!(usl::fit(&SPECSDM91[..2]).map(|fit| fit.beta), Some(0.0));
    assert_eq!(usl::fit(&[(8.0, 1.0); 9]), None);
}

#[test]
fn the_line_through_norris_data_has_the_certified_digits() {
    // NIST Statistical Reference Datasets, Norris (calibration of ozone monitors): certified slope, intercept, errors.
    let points = [
        (0.2, 0.1),
        (337.4, 338.8),
        (118.2, 118.1),
        (884.6, 888.0),
        (10.1, 9.2),
        (226.5, 228.1),
        (666.3, 668.5),
        (996.3, 998.5),
        (448.6, 449.1),
        (777.0, 778.9),
        (558.2, 559.2),
        (0.4, 0.3),
        (0.6, 0.1),
        (775.5, 778.1),
        (666.9, 668.8),
        (338.0, 339.3),
        (447.5, 448.9),
        (11.6, 10.8),
        (556.0, 557.7),
        (228.1, 228.3),
        (995.8, 998.0),
        (887.6, 888.8),
        (120.2, 119.6),
        (0.3, 0.3),
        (0.3, 0.6),
        (556.8, 557.6),
        (339.1, 339.3),
        (887.2, 888.0),
        (999.0, 998.5),
        (779.0, 778.9),
        (11.1, 10.2),
        (118.3, 117.6),
        (229.2, 228.9),
        (669.1, 668.4),
        (448.9, 449.2),
        (0.5, 0.2),
    ];
    let line = regression::line(&points, 0.95).unwrap();
    prints_as(line.slope.value, 9, "1.002116818");
    prints_as(line.intercept.value, 9, "-0.262323074");
    let quantile = statistics::student(0.95, points.len() as f64 - 2.0).unwrap();
    let standard_error = |estimate: record::Estimate| (estimate.high.unwrap() - estimate.value) / quantile;
    prints_as(standard_error(line.slope), 12, "0.000429796848");
    prints_as(standard_error(line.intercept), 9, "0.232818234");
    let at = line.x_intercept.unwrap();
    let (low, high) = at.interval().unwrap();
    assert!(low < at.value && at.value < high && high - low < 1.0, "{line:?}");
    assert!(regression::line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], 0.95).is_none(), "all at one load");
    assert!(regression::line(&points[..2], 0.95).is_none());
}

#[test]
fn the_price_of_waking_a_cpu_matches_the_solved_state() {
    let plain = Server {
        form: Form::Waking,
        base_s: 10e-6,
        wake_s: 0.0,
        cooling_s: 0.0,
        growth_s: 0.0,
        doubling_s: 0.0,
        cold_growth_s: 0.0,
        background_cpus: 0.0,
        path_s: 1e-3,
        in_flight: 1.0,
        is_in_order: true,
        cv_squared: 1.0,
        cpus: 1.0,
        usl: None,
        limit_per_sec: None,
    };
    for wake_s in [0.0, 1e-7, 1e-5, 1e-3, 1.0] {
        for cooling_s in [0.0, 1e-6, 1e-3, 10.0] {
            for connections in [1.0, 1.5, 10.0, 99.0, 100.0, 101.0, 1e4, 1e6] {
                let server = Server { wake_s, cooling_s, ..plain };
                let state = server.closed(connections, 0.0);
                let share = match cooling_s {
                    0.0 => 1.0 - state.utilisation,
                    _ => 1.0 / (1.0 + state.throughput_per_sec * cooling_s),
                };
                let asked = server.base_s + wake_s * share;
                let off = (state.demand_s / asked - 1.0).abs();
                assert!(off < 1e-4, "{off} at {connections} connections: {state:?} of {server:?}");
            }
        }
    }
}
