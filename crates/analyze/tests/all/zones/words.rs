//! Estimates in words.

use analyze::zones::{PointFinding, PointPlace, estimate_words};
use record::Sweep;

fn shown(estimate: f64, low: f64, high: f64) -> String {
    let found = PointFinding {
        place: PointPlace::Within,
        estimate: Some(estimate),
        low: Some(low),
        high: Some(high),
        held: None,
        failed: None,
        confidence: 0.95,
        n_repeats: 3,
        reason: String::new(),
    };
    estimate_words(&found, Sweep::Connections).expect("an estimate")
}

#[test]
fn the_printed_value_lies_in_the_printed_interval() {
    assert_eq!(shown(8.02, 7.8, 8.3), "8 connections (7.8 to 8.3)");
    assert_eq!(shown(1.0, 1.0, 2.4), "1 connection (1 to 2)");
    assert_eq!(shown(1.35, 1.3, 1.4), "1.4 connections (1.3 to 1.4)", "uvicorn");
    assert_eq!(shown(1500.4, 1448.0, 4096.0), "1,500 connections (1,448 to 4,096)");
    for tenths in 10..200 {
        for (below, above) in [(0.05, 0.05), (0.3, 0.1), (0.04, 2.0), (3.0, 0.02)] {
            let at = f64::from(tenths) / 10.0;
            let said = shown(at, (at - below).max(1.0), at + above);
            let numbers: Vec<f64> =
                said.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect();
            assert!((numbers[1] - 0.051..=numbers[2] + 0.051).contains(&numbers[0]), "{said}");
        }
    }
}
