//! Formats loads and estimates.

use super::PointFinding;
use record::Sweep;
use record::units::{count, format_si, grouped};

/// Formats a load with its unit: `64 connections`, `81200/s`.
pub fn load_words(load: f64, sweep: Sweep) -> String {
    match sweep {
        Sweep::Rate => format!("{}/s", format_si(load)),
        _ => count(load.round() as u64, "connection"),
    }
}

/// Formats a load without its unit.
pub(crate) fn load_number(load: f64, sweep: Sweep) -> String {
    if sweep == Sweep::Rate { format_si(load) } else { grouped(load) }
}

fn number(load: f64, sweep: Sweep, has_decimal: bool) -> String {
    if has_decimal && sweep != Sweep::Rate { format!("{load:.1}") } else { load_number(load, sweep) }
}

/// Whether rounding would move the estimate out of its interval.
fn is_fraction(found: &PointFinding) -> bool {
    let (Some(estimate), Some(low), Some(high)) = (found.estimate, found.low, found.high) else { return false };
    !(low..=high).contains(&estimate.round())
}

/// Formats the estimate: `8`, `1.3`, `12.0k`.
pub fn estimate_number(found: &PointFinding, sweep: Sweep) -> Option<String> {
    found.estimate.map(|estimate| number(estimate, sweep, is_fraction(found)))
}

/// Formats the estimate with unit and interval: `8 connections (7.8 to 8.3)`.
pub fn estimate_words(found: &PointFinding, sweep: Sweep) -> Option<String> {
    let number = estimate_number(found, sweep)?;
    let unit = match sweep {
        Sweep::Rate => "/s",
        _ if number == "1" => " connection",
        _ => " connections",
    };
    Some(format!("{number}{unit}{}", interval(found, sweep)))
}

/// Formats the interval in brackets: ` (3 to 5)`, ` (3 or more)`.
pub fn interval(found: &PointFinding, sweep: Sweep) -> String {
    // Ends that would look equal get a decimal.
    let is_one_number = found.low.zip(found.high).is_some_and(|(low, high)| grouped(low) == grouped(high));
    let number = |load: f64| number(load, sweep, is_one_number || is_fraction(found));
    match (found.low, found.high) {
        (Some(low), Some(high)) => format!(" ({} to {})", number(low), number(high)),
        (Some(low), None) => format!(" ({} or more)", number(low)),
        (None, Some(high)) => format!(" (at most {})", number(high)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Criteria;

    fn shown(estimate: f64, low: f64, high: f64) -> String {
        let found = PointFinding {
            estimate: Some(estimate),
            low: Some(low),
            high: Some(high),
            ..PointFinding::none(&Criteria::default(), 3, "")
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
                let numbers: Vec<f64> = said
                    .split(|c: char| !c.is_ascii_digit() && c != '.')
                    .filter_map(|word| word.parse().ok())
                    .collect();
                assert!((numbers[1] - 0.051..=numbers[2] + 0.051).contains(&numbers[0]), "{said}");
            }
        }
    }
}
