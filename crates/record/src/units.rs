//! Numbers as users type and read them: `10k`, `64KiB`, `2s`, `40ms`, `1.5M`.
//!
//! Counts and rates take SI suffixes (`k` = 1,000, `M`, `G`); sizes also binary ones (`KiB` = 1,024, `MiB`, `GiB`);
//! durations take `ns`, `us`, `ms`, `s`, `m`, `h`. A duration without a unit is refused, because `--duration 10` is
//! ambiguous.

use crate::PlainText;
use std::time::Duration;

/// The reason why typed text is not a number of the expected kind. The message tells what to type instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text has no digits at its start, or characters after the unit.
    #[error("'{text}' is not a {kind}: write it as {example}")]
    NotANumber {
        /// The text as typed.
        text: PlainText,
        /// The kind of quantity that was expected ("count", "size", "duration", "rate").
        kind: &'static str,
        /// One or two forms that would have been accepted.
        example: &'static str,
    },
    /// The number is larger than the quantity can hold.
    #[error("'{text}' is too large for a {kind}")]
    TooLarge {
        /// The text as typed.
        text: PlainText,
        /// The kind of quantity that was expected.
        kind: &'static str,
    },
}

const COUNT_EXAMPLE: &str = "1000, 10k or 1.5M";
const SIZE_EXAMPLE: &str = "512, 64KiB or 10MB";
const BANDWIDTH_EXAMPLE: &str = "100Mbit, 1Gbit or 64kbit (bits per second)";
const DURATION_EXAMPLE: &str = "500ms, 2s or 1m";

/// Parses `1.5KiB`: 1.5 times the factor of `KiB`. The number must be finite and not negative. `factor` gets the unit,
/// and whether the number is zero, which needs none.
fn parse(
    text: &str,
    kind: &'static str,
    example: &'static str,
    factor: impl FnOnce(&str, bool) -> Option<f64>,
) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let digits: String = trimmed[..end].chars().filter(|c| *c != '_').collect();
    let number: f64 = digits.parse().map_err(|_| wrong(text, kind, example))?;
    if !number.is_finite() {
        return Err(too_large(text, kind));
    }
    Ok(number * factor(trimmed[end..].trim(), number == 0.0).ok_or_else(|| wrong(text, kind, example))?)
}

fn whole(number: f64, text: &str, kind: &'static str) -> Result<u64, UnitError> {
    if number > 9e15 { Err(too_large(text, kind)) } else { Ok(number.round() as u64) }
}

/// The number of decimals for three significant digits.
fn decimals(size: f64) -> usize {
    match size {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    }
}

fn wrong(text: &str, kind: &'static str, example: &'static str) -> UnitError {
    UnitError::NotANumber { text: PlainText::new(text, 40), kind, example }
}

fn too_large(text: &str, kind: &'static str) -> UnitError {
    UnitError::TooLarge { text: PlainText::new(text, 40), kind }
}

/// Parses a count such as `1000`, `10k`, `1.5M`. Fractional results (`0.5`) are refused.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let scaled = parse(text, "count", COUNT_EXAMPLE, |unit, _| si_factor(unit))?;
    let count = whole(scaled, text, "count")?;
    if (scaled - scaled.round()).abs() > 1e-6 { Err(wrong(text, "count", COUNT_EXAMPLE)) } else { Ok(count) }
}

/// Parses a rate per second such as `250`, `10k`, `0.5`, with or without `/s`.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    parse(text, "rate", COUNT_EXAMPLE, |unit, _| si_factor(unit.trim_end_matches("/s").trim_end()))
}

/// Parses a size in bytes such as `512`, `64KiB`, `10MB`, `1k`.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let factor = |unit: &str, _| match unit.to_ascii_lowercase().as_str() {
        "kib" => Some(1024.0),
        "mib" => Some(1024.0 * 1024.0),
        "gib" => Some(1024.0 * 1024.0 * 1024.0),
        unit => si_factor(unit.strip_suffix('b').unwrap_or(unit)),
    };
    whole(parse(text, "size", SIZE_EXAMPLE, factor)?, text, "size")
}

/// Parses a bandwidth in bits per second such as `100Mbit`, `1.5Gbit/s`, `64kbps`. The unit is required, because a
/// bare number could mean bytes.
pub fn parse_bits_per_sec(text: &str) -> Result<u64, UnitError> {
    // A capital B usually means bytes, so it is refused.
    let factor = |unit: &str, is_zero| {
        let unit = unit.trim_end_matches("/s");
        let prefix = unit.strip_suffix("bit").or(unit.strip_suffix("bps"));
        if is_zero && unit.is_empty() { Some(1.0) } else { si_factor(prefix?) }
    };
    whole(parse(text, "bandwidth", BANDWIDTH_EXAMPLE, factor)?, text, "bandwidth")
}

/// Parses a duration such as `500ms`, `2s`, `1m`; the unit is required. At most 365 days.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let seconds = parse(text, "duration", DURATION_EXAMPLE, |unit, is_zero| match unit {
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        "" if is_zero => Some(1.0),
        _ => None,
    })?;
    if seconds > 365.0 * 86400.0 {
        return Err(too_large(text, "duration"));
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn si_factor(unit: &str) -> Option<f64> {
    match unit {
        "" => Some(1.0),
        "k" | "K" => Some(1e3),
        "m" | "M" => Some(1e6),
        "g" | "G" => Some(1e9),
        _ => None,
    }
}

/// Formats a bandwidth with three significant digits: `100 Mbit/s`, `1.50 Gbit/s`, `64.0 kbit/s`.
pub fn format_bits_per_sec(bits: f64) -> String {
    let text = format_si(bits);
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}bit/s", &text[..at], &text[at..])
}

/// Formats a count or rate with three significant digits and an SI suffix: `812`, `31.5k`, `1.20M`.
pub fn format_si(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let (scaled, suffix) = scaled(value, [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (9999.5, 1e3, "k")], "");
    let is_whole = suffix.is_empty() && scaled.fract() == 0.0;
    let decimals = if is_whole { 0 } else { decimals(scaled.abs()) };
    without_negative_zero(format!("{scaled:.decimals$}{suffix}"))
}

/// The value in the unit of the first step (least size, divisor, unit) that it reaches.
fn scaled(value: f64, steps: [(f64, f64, &'static str); 3], least: &'static str) -> (f64, &'static str) {
    let step = steps.into_iter().find(|(from, ..)| value.abs() >= *from);
    step.map_or((value, least), |(_, divisor, unit)| (value / divisor, unit))
}

/// A sum of no numbers is -0.0, to which small negative numbers are also rounded.
fn without_negative_zero(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if !rest.contains(|c: char| c.is_ascii_digit() && c != '0') => rest.into(),
        _ => text,
    }
}

/// Formats a whole number with separated thousands: `4,096`.
pub fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < -0.5 { format!("-{text}") } else { text }
}

/// Formats a number of things: `1 point`, `4,096 points`, `2 processes`.
pub fn count(n: impl TryInto<u64>, what: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    let plural = if n == 1 {
        ""
    } else if what.ends_with('s') {
        "es"
    } else {
        "s"
    };
    format!("{} {what}{plural}", grouped(n as f64))
}

/// Formats a share as it was typed, with at most six decimals and no trailing zeros: `98.5 %`, `0.1 %`.
pub fn exact_percent(ratio: f64) -> String {
    let text = format!("{:.6}", ratio * 100.0);
    without_negative_zero(format!("{} %", text.trim_end_matches('0').trim_end_matches('.')))
}

/// Formats a share as a percentage, with decimals if it is small: `98 %`, `1.5 %`, `0.05 %`. A share above 0 never
/// looks like 0 %, nor one below 1 like 100 %.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let size = percent.abs();
    let decimals = match size {
        0.0 => 0,
        size if size < 0.095 => 2,
        size if size < 9.95 && percent.fract().abs() > 1e-9 => 1,
        _ => 0,
    };
    // A half is rounded up.
    let rounded = |decimals: usize| (percent * 10f64.powi(decimals as i32)).round() / 10f64.powi(decimals as i32);
    let is_like_all = |decimals: usize| size < 100.0 - 1e-9 && rounded(decimals).abs() >= 100.0;
    match (decimals..=2).find(|decimals| !is_like_all(*decimals)) {
        None => ">99.99 %".into(),
        Some(2) if percent > 0.0 && rounded(2) == 0.0 => "<0.01 %".into(),
        Some(decimals) => without_negative_zero(format!("{:.decimals$} %", rounded(decimals))),
    }
}

/// Formats nanoseconds in a suitable unit: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub fn format_nanos(nanos: f64) -> String {
    if !nanos.is_finite() {
        return "-".into();
    }
    let (scaled, unit) = scaled(nanos, [(999.5e6, 1e9, "s"), (999.5e3, 1e6, "ms"), (999.5, 1e3, "us")], "ns");
    let decimals = if unit == "ns" { 0 } else { decimals(scaled.abs()) };
    without_negative_zero(format!("{scaled:.decimals$} {unit}"))
}

/// Formats bytes with a binary suffix: `512 B`, `64.0 KiB`, `1.50 GiB`.
pub fn format_bytes(bytes: f64) -> String {
    if !bytes.is_finite() {
        return "-".into();
    }
    let mut scaled = bytes;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled.abs() < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    let decimals = if unit == "B" { 0 } else { decimals(scaled.abs()) };
    without_negative_zero(format!("{scaled:.decimals$} {unit}"))
}
