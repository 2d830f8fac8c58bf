//! Compiled patterns of times, such as `%d/%b/%Y:%H:%M:%S %z`.

use super::instant::{self, SECOND_NS};

#[derive(Debug, Clone, PartialEq, Eq)]
enum TimePart {
    Literal(u8),
    Year,
    Month,
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    Zone,
    Epoch,
    /// A weekday's name or number. It is skipped, because the date implies it.
    Weekday,
}

/// A compiled time pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimePattern(Vec<TimePart>);

/// The parts of a line's time that were read so far. Several fields may each hold a part of the time.
#[derive(Debug, Clone, Default)]
pub struct PartialTime {
    year: Option<u32>,
    month: Option<u32>,
    day: Option<u32>,
    clock: [u32; 3],
    zone_s: i64,
    /// Nanoseconds since the epoch and their resolution, if one field has the whole time.
    whole: Option<(i64, u64)>,
    fraction: Option<(i64, u64)>,
}

impl PartialTime {
    pub(super) fn set_whole(&mut self, time_ns: i64, resolution_ns: u64) {
        // If two fields have a whole time, the finer one counts.
        if self.whole.is_none_or(|(_, known)| resolution_ns < known) {
            self.whole = Some((time_ns, resolution_ns));
        }
    }

    /// Takes the part of a second that a field has. The finer of two counts.
    pub fn set_fraction(&mut self, fraction_ns: i64, resolution_ns: u64) {
        if self.fraction.is_none_or(|(_, known)| resolution_ns < known) {
            self.fraction = Some((fraction_ns, resolution_ns));
        }
    }

    /// The time in nanoseconds since the epoch and its resolution, if the parts are complete.
    pub fn resolve(&self) -> Option<(i64, u64)> {
        let (time_ns, resolution_ns) = match self.whole {
            Some(whole) => whole,
            None => {
                let seconds = instant::civil(self.year?, self.month?, self.day?, self.clock)? - self.zone_s;
                (seconds * SECOND_NS as i64, SECOND_NS)
            }
        };
        Some(match self.fraction {
            Some((fraction_ns, finer_ns)) if resolution_ns == SECOND_NS => (time_ns + fraction_ns, finer_ns),
            _ => (time_ns, resolution_ns),
        })
    }
}

impl TimePattern {
    /// Compiles a pattern. The error names the unknown conversion.
    pub fn compile(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            if char != '%' {
                let mut bytes = [0; 4];
                parts.extend(char.encode_utf8(&mut bytes).bytes().map(TimePart::Literal));
                continue;
            }
            match chars.next() {
                Some('Y') => parts.push(TimePart::Year),
                Some('m') => parts.push(TimePart::Month),
                Some('b' | 'h') => parts.push(TimePart::MonthName),
                Some('d' | 'e') => parts.push(TimePart::Day),
                Some('H') => parts.push(TimePart::Hour),
                Some('M') => parts.push(TimePart::Minute),
                Some('S') => parts.push(TimePart::Second),
                Some('z') => parts.push(TimePart::Zone),
                Some('s') => parts.push(TimePart::Epoch),
                Some('a' | 'u' | 'w') => parts.push(TimePart::Weekday),
                Some('F') => parts.extend(TimePattern::compile("%Y-%m-%d")?.0),
                Some('T') => parts.extend(TimePattern::compile("%H:%M:%S")?.0),
                Some('R') => parts.extend(TimePattern::compile("%H:%M")?.0),
                Some('%') => parts.push(TimePart::Literal(b'%')),
                other => {
                    let name = other.map_or("%".into(), |char| format!("%{char}"));
                    return Err(format!(
                        "the time pattern '{text}' has {name}, which is not read: use %Y %m %b %d %H %M %S %z %s %F %T"
                    ));
                }
            }
        }
        Ok(TimePattern(parts))
    }

    /// Reads the pattern at the beginning of `text` into `partial`; returns the length, or `None` where the text does
    /// not match.
    pub fn read(&self, text: &[u8], partial: &mut PartialTime) -> Option<usize> {
        let mut at = 0;
        for part in &self.0 {
            let rest = text.get(at..)?;
            at += match part {
                TimePart::Literal(byte) => rest.first().filter(|first| *first == byte).map(|_| 1)?,
                TimePart::Year => {
                    let digits: &[u8; 4] = rest.first_chunk()?;
                    let year = instant::two(digits[0], digits[1])? * 100 + instant::two(digits[2], digits[3])?;
                    partial.year = Some(year);
                    4
                }
                TimePart::Month => two_into(rest, partial.month.insert(0))?,
                // %e pads with a space.
                TimePart::Day if rest.first() == Some(&b' ') => {
                    partial.day = Some(instant::two(b'0', *rest.get(1)?)?);
                    2
                }
                TimePart::Day => two_into(rest, partial.day.insert(0))?,
                TimePart::MonthName => {
                    partial.month = Some(instant::month(rest.first_chunk()?)?);
                    3
                }
                TimePart::Hour => two_into(rest, &mut partial.clock[0])?,
                TimePart::Minute => two_into(rest, &mut partial.clock[1])?,
                TimePart::Second => two_into(rest, &mut partial.clock[2])?,
                TimePart::Zone => {
                    partial.zone_s = instant::zone(rest.first_chunk()?)?;
                    5
                }
                TimePart::Epoch => {
                    let (time_ns, resolution_ns, length) = instant::epoch(rest, SECOND_NS)?;
                    partial.set_whole(time_ns, resolution_ns);
                    length
                }
                TimePart::Weekday => rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count(),
            };
        }
        Some(at)
    }
}

fn two_into(text: &[u8], into: &mut u32) -> Option<usize> {
    *into = instant::two(*text.first()?, *text.get(1)?)?;
    Some(2)
}
