//! Layers and functions that grew between two loads.

use crate::fixture;
use analyze::growth::{functions, layers};
use record::point::FunctionCost;
use record::{Point, Sweep, names};

fn point(repeat: u32, tcp_us: f64, lookup_us: f64) -> Point {
    let figures = [(names::LAYER_TCP, tcp_us), (names::LAYER_USER, 2.0)];
    let cost = |function: &str, us_per_request| FunctionCost {
        function: function.into(),
        module: None,
        layer: None,
        us_per_request,
        samples: 50,
    };
    Point {
        functions: vec![cost("tcp_ack", 1.0), cost("__inet_lookup_established", lookup_us)],
        ..fixture::point(Sweep::Connections, repeat, 1, &figures)
    }
}

#[test]
fn only_growing_figures_are_named() {
    let low: Vec<Point> = (0..4).map(|repeat| point(repeat, 3.0 + f64::from(repeat) * 0.1, 0.2)).collect();
    let high: Vec<Point> = (0..4).map(|repeat| point(repeat, 4.0 + f64::from(repeat) * 0.1, 0.9)).collect();
    let (low, high): (Vec<&Point>, Vec<&Point>) = (low.iter().collect(), high.iter().collect());
    let layers = layers(&low, &high, 0.95);
    assert_eq!(layers.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["TCP"]);
    assert!((layers[0].difference_us.value - 1.0).abs() < 1e-9 && layers[0].difference_us.n == 4, "{:?}", layers[0]);
    let functions = functions(&low, &high, 0.95);
    assert_eq!(functions.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["__inet_lookup_established"]);
}

#[test]
fn two_repeats_prove_nothing() {
    let (low, high) = ([point(0, 1.0, 0.0), point(1, 1.0, 0.0)], [point(0, 9.0, 5.0), point(1, 9.0, 5.0)]);
    assert!(layers(&low.each_ref(), &high.each_ref(), 0.95).is_empty());
}
