//! Scales of axes: positions of values between 0 and 1, and ticks.

use crate::text::number;
use record::units::{format_nanos, format_si};

/// A scale over a range. Its constructors ensure low < high.
#[derive(Debug, Clone)]
pub enum Scale {
    /// Proportional, from zero.
    Linear {
        /// Upper end.
        high: f64,
        /// Format of the ticks.
        words: fn(f64) -> String,
    },
    /// Logarithmic.
    Log {
        /// Lower end, positive.
        low: f64,
        /// Upper end.
        high: f64,
        /// Ticks are at powers of this base: 2 or 10.
        base: u32,
        /// Format of the ticks.
        words: fn(f64) -> String,
    },
    /// Quantiles, with 90 %, 99 %, 99.9 % equally spaced.
    Nines {
        /// Number of nines at the last tick.
        nines: u32,
    },
}

impl Scale {
    /// A scale from zero to slightly above the largest value.
    pub fn linear(values: impl Iterator<Item = f64>, words: fn(f64) -> String) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if largest > 0.0 && largest < 1e300 { largest * 1.08 } else { 1.0 };
        Scale::Linear { high, words }
    }

    /// A scale in powers of two, with at least two of them in the range.
    pub fn doublings(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = positive_range(values, 1.6);
        let has_two = high.log2().floor() > low.log2().ceil();
        let (low, high) = if has_two { (low, high) } else { (low.min((low / 2.0).max(1.0)), high * 3.0) };
        Scale::Log { low, high, base: 2, words: number }
    }

    /// A scale for times in microseconds: powers of ten, with a margin.
    pub fn times_us(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = positive_range(values, 3.0);
        Scale::Log { low: low / 1.25, high: high * 1.4, base: 10, words: |us| format_nanos(us * 1e3) }
    }

    /// A scale for counts over several orders of magnitude.
    pub fn counts(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = positive_range(values, 3.0);
        Scale::Log { low: low / 1.2, high: high * 1.3, base: 10, words: format_si }
    }

    /// A scale for ratios: from zero, or logarithmic if they are far from 1.
    pub fn ratios(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = positive_range(values.chain([1.0]), 1.1);
        if low >= 0.25 && high <= 4.0 {
            Scale::Linear { high: high * 1.08, words: number }
        } else {
            Scale::Log { low: low / 1.25, high: high * 1.25, base: 10, words: number }
        }
    }

    /// The position of a value; `None` if the scale cannot show it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = match self {
            Scale::Linear { high, .. } => value / high,
            Scale::Log { low, high, .. } => {
                if value <= 0.0 {
                    return None;
                }
                (value / low).ln() / (high / low).ln()
            }
            Scale::Nines { nines } => {
                if !(0.0..1.0).contains(&value) {
                    return None;
                }
                -(1.0 - value).log10() / f64::from(*nines)
            }
        };
        place.is_finite().then_some(place)
    }

    /// A value moved into the scale's range.
    pub fn clamp(&self, value: f64) -> f64 {
        match self {
            Scale::Linear { high, .. } => value.clamp(0.0, *high),
            Scale::Log { low, high, .. } => value.clamp(*low, *high),
            Scale::Nines { nines } => value.clamp(0.0, 1.0 - 10f64.powi(-(*nines as i32))),
        }
    }

    /// Ticks with their labels, ascending; about `room` at most, at least two.
    pub fn ticks(&self, room: usize) -> Vec<(f64, String)> {
        let room = room.max(4);
        match self {
            Scale::Linear { high, words } => {
                let step = nice_step(high / room as f64);
                (0..=room * 3)
                    .map(|n| n as f64 * step)
                    .take_while(|value| value <= high)
                    .map(|value| (value, round_words(&words(value))))
                    .collect()
            }
            Scale::Log { low, high, base: 2, words } => {
                let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
                let every = (((last - first).max(0) as usize / room) + 1) as i32;
                (first..=last)
                    .filter(|power| power.rem_euclid(every) == 0)
                    .map(|power| 2f64.powi(power))
                    .map(|value| (value, round_words(&words(value))))
                    .collect()
            }
            Scale::Log { low, high, words, .. } => {
                let decades = (high / low).log10();
                let within: &[f64] = if decades < 1.2 {
                    &[1.0, 2.0, 3.0, 5.0]
                } else if decades * 2.0 < room as f64 {
                    &[1.0, 3.0]
                } else {
                    &[1.0]
                };
                let every = ((decades as usize / room) + 1) as i32;
                (low.log10().floor() as i32..=high.log10().ceil() as i32)
                    .filter(|power| power.rem_euclid(every) == 0)
                    .flat_map(|power| within.iter().map(move |digit| digit * 10f64.powi(power)))
                    .filter(|value| (*low..=*high).contains(value))
                    .map(|value| (value, round_words(&words(value))))
                    .collect()
            }
            Scale::Nines { nines } => std::iter::once((0.0, "0 %".to_string()))
                .chain((1..=*nines).map(|n| {
                    let share = 1.0 - 10f64.powi(-(n as i32));
                    (share, format!("{:.*} %", n.saturating_sub(2) as usize, share * 100.0))
                }))
                .collect(),
        }
    }
}

/// The range of the positive values, widened to a ratio of at least `least`.
fn positive_range(values: impl Iterator<Item = f64>, least: f64) -> (f64, f64) {
    let usable = values.filter(|value| (1e-9..1e18).contains(value));
    let (low, high) = usable.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)));
    if high <= 0.0 {
        return (1.0, 10.0);
    }
    if high / low >= least { (low, high) } else { (low / least.sqrt(), high * least.sqrt()) }
}

/// The next number from `rough` up that is 1, 2 or 5 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0)
}

/// Removes trailing zeros: `1.00 ms` becomes `1 ms`, `20.0k` becomes `20k`.
fn round_words(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.contains('.') {
        format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
    } else {
        text.to_string()
    }
}
