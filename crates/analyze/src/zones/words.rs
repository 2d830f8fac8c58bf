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
