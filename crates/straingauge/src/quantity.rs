//! Quantities in options: read from the command line and from scenario files.

use record::units;
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;

/// Implements reading from a scenario file: a number, or text as typed.
macro_rules! read_as_typed {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let typed = <$crate::quantity::NumberOrText as serde::Deserialize>::deserialize(deserializer)?;
                typed.text().parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use read_as_typed;

macro_rules! quantity {
    ($(#[doc = $doc:literal])+ $name:ident($inner:ty) = $parse:path) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = units::UnitError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $parse(text).map($name)
            }
        }

        read_as_typed!($name);
    };
}

/// A scenario file may write `connections = 100` or `connections = "10k"`.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum NumberOrText {
    /// `100`
    Whole(i64),
    /// `0.5`
    Fraction(f64),
    /// `"10k"`
    Text(String),
}

impl NumberOrText {
    /// The text as the user would type it.
    pub fn text(self) -> String {
        match self {
            NumberOrText::Whole(number) => number.to_string(),
            NumberOrText::Fraction(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        }
    }
}

quantity! {
    /// A whole number: `100`, `10k`.
    Count(u64) = units::parse_count
}
quantity! {
    /// Events per second: `250`, `10k`, `0.5`.
    Rate(f64) = units::parse_rate
}
/// Speed of a log or series: `10`, `0.5`, `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// This many times faster than recorded.
    Times(f64),
    /// As fast as the server answers.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("max") {
            return Ok(Speed::Max);
        }
        match text.trim_end_matches('x').parse::<f64>() {
            Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(Speed::Times(speed)),
            _ => Err(format!(
                "'{}' is not a speed: give a positive number, e.g. 10 or 0.5, or max",
                text.escape_debug().take(40).collect::<String>()
            )),
        }
    }
}

read_as_typed!(Speed);

quantity! {
    /// Bytes, or bytes per second: `64KiB`, `10k`.
    Bytes(u64) = parse_bytes_per_sec
}
quantity! {
    /// Bits per second: `400k`, `1.5Mbit/s`.
    Bits(f64) = parse_bits
}
quantity! {
    /// A duration: `500ms`, `2s`.
    Time(Duration) = units::parse_duration
}
quantity! {
    /// A duration; a bare number is seconds, as in wrk, hey and k6.
    Seconds(Duration) = parse_seconds
}

fn parse_seconds(text: &str) -> Result<Duration, units::UnitError> {
    let text = text.trim();
    let is_bare = text.parse::<f64>().is_ok();
    units::parse_duration(&if is_bare { format!("{text}s") } else { text.into() })
}

fn parse_bytes_per_sec(text: &str) -> Result<u64, units::UnitError> {
    let trimmed = text.trim();
    units::parse_bytes(trimmed.strip_suffix("/s").unwrap_or(trimmed))
}

fn parse_bits(text: &str) -> Result<f64, units::UnitError> {
    let trimmed = text.trim();
    let number = ["bit/s", "bps", "bit"].iter().find_map(|unit| trimmed.strip_suffix(unit)).unwrap_or(trimmed);
    units::parse_rate(number.trim_end())
}

quantity! {
    /// Bits per second: `100Mbit`, `64kbit`.
    Bandwidth(u64) = units::parse_bits_per_sec
}

macro_rules! nanoseconds {
    ($($name:ident),+) => {$(
        impl $name {
            pub fn nanos_or(typed: Option<$name>, default: Duration) -> u64 {
                typed.unwrap_or($name(default)).nanos()
            }

            /// The duration in nanoseconds. The maximum, 365 days, fits.
            pub fn nanos(self) -> u64 {
                self.0.as_nanos() as u64
            }
        }
    )+};
}
nanoseconds!(Time, Seconds);

/// A share: `5%` or `0.05`, at most 100 %. A bare 5 would be 500 %, so it is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let (digits, scale) = trimmed.strip_suffix('%').map_or((trimmed, 1.0), |percent| (percent.trim(), 0.01));
        match digits.parse::<f64>().map(|number| number * scale) {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Share(share)),
            Ok(share) if share > 1.0 && share.is_finite() => {
                Err(format!("'{text}' is {:.0}%, more than 100%: write e.g. 5% or 0.05", share * 100.0))
            }
            _ => Err(format!("'{text}' is not a share: write e.g. 5% or 0.05")),
        }
    }
}

read_as_typed!(Share);
