//! Parses times in logs to nanoseconds since the Unix epoch. Each parser takes bytes that start with the time.

/// A parsed time: nanoseconds, resolution, length in bytes.
pub type Parsed = (i64, u64, usize);

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Years whose nanoseconds fit an `i64` with room to spare.
const YEARS: std::ops::RangeInclusive<u32> = 1970..=2200;

/// Parses `17/May/2015:10:05:03 +0000`.
#[inline]
pub fn clf(text: &[u8]) -> Option<Parsed> {
    let text: &[u8; 26] = text.first_chunk()?;
    if [text[2], text[6], text[11], text[14], text[17], text[20]] != *b"//::: " {
        return None;
    }
    let month = month(&[text[3], text[4], text[5]])?;
    let year = two(text[7], text[8])? * 100 + two(text[9], text[10])?;
    let seconds = civil(
        year,
        month,
        two(text[0], text[1])?,
        [two(text[12], text[13])?, two(text[15], text[16])?, two(text[18], text[19])?],
    )?;
    let offset = zone(&[text[21], text[22], text[23], text[24], text[25]])?;
    Some(((seconds - offset) * SECOND_NS as i64, SECOND_NS, 26))
}

/// Parses `2015-05-17T10:05:03Z`, with or without a fraction and an offset.
pub fn iso(text: &[u8]) -> Option<Parsed> {
    let day = date(text)?;
    if !matches!(text.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let (within_ns, resolution_ns, length) = time_of_day(&text[11..])?;
    let mut at = 11 + length;
    let offset = match text.get(at) {
        Some(b'Z' | b'z') => {
            at += 1;
            0
        }
        Some(b'+' | b'-') => {
            let rest = &text[at..];
            if let Some(&[sign, h1, h2, b':', m1, m2]) = rest.first_chunk::<6>() {
                at += 6;
                zone(&[sign, h1, h2, m1, m2])?
            } else {
                at += 5;
                zone(rest.first_chunk::<5>()?)?
            }
        }
        _ => 0,
    };
    Some((day + within_ns - offset * SECOND_NS as i64, resolution_ns, at))
}

pub(super) fn date(text: &[u8]) -> Option<i64> {
    let text: &[u8; 10] = text.first_chunk()?;
    if text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let year = two(text[0], text[1])? * 100 + two(text[2], text[3])?;
    let seconds = civil(year, two(text[5], text[6])?, two(text[8], text[9])?, [0; 3])?;
    Some(seconds * SECOND_NS as i64)
}

/// Parses `10:05:03` or `10:05:03.123` to nanoseconds within the day.
pub(super) fn time_of_day(text: &[u8]) -> Option<Parsed> {
    let clock: &[u8; 8] = text.first_chunk()?;
    if clock[2] != b':' || clock[5] != b':' {
        return None;
    }
    let clock = [two(clock[0], clock[1])?, two(clock[3], clock[4])?, two(clock[6], clock[7])?];
    if clock[0] > 23 || clock[1] > 59 || clock[2] > 60 {
        return None;
    }
    let seconds = i64::from(clock[0] * 3600 + clock[1] * 60 + clock[2]);
    let (fraction_ns, resolution_ns, digits) = match text.get(8) {
        Some(b'.' | b',') => fraction(&text[9..])?,
        _ => return Some((seconds * SECOND_NS as i64, SECOND_NS, 8)),
    };
    Some((seconds * SECOND_NS as i64 + fraction_ns, resolution_ns, 9 + digits))
}

/// Parses a whole Unix time in units of `unit_ns`, such as `1431857103`.
pub fn epoch(text: &[u8], unit_ns: u64) -> Option<Parsed> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 18 {
        return None;
    }
    let whole = text[..digits].iter().fold(0i64, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    let whole_ns = whole.checked_mul(unit_ns as i64).filter(|ns| *ns < 7_000_000_000 * SECOND_NS as i64)?;
    Some((whole_ns, unit_ns, digits))
}

/// Parses a Unix time in seconds with or without a fraction, such as `1431857103.123`.
pub fn epoch_seconds(text: &[u8]) -> Option<Parsed> {
    let (whole_ns, _, digits) = epoch(text, SECOND_NS)?;
    if text.get(digits) != Some(&b'.') {
        return Some((whole_ns, SECOND_NS, digits));
    }
    let (fraction_ns, resolution_ns, length) = fraction(&text[digits + 1..])?;
    Some((whole_ns + fraction_ns, resolution_ns, digits + 1 + length))
}

/// Parses the digits after a decimal point; returns nanoseconds, the value of the last digit, and the number of
/// digits. Digits beyond the ninth are skipped.
pub(super) fn fraction(text: &[u8]) -> Option<Parsed> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut scale = SECOND_NS;
    let mut ns = 0;
    for byte in &text[..digits.min(9)] {
        scale /= 10;
        ns += u64::from(byte - b'0') * scale;
    }
    Some((ns as i64, scale, digits))
}

/// Unix time in seconds of a date and time in UTC; `None` for a date that does not exist.
#[inline]
pub(super) fn civil(year: u32, month: u32, day: u32, [hour, minute, second]: [u32; 3]) -> Option<i64> {
    const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = *LENGTHS.get((month as usize).wrapping_sub(1))?;
    let is_real = day >= 1 && day <= length && (month != 2 || day < 29 || is_leap);
    // A leap second is written as :60 and counts as the next second.
    if !is_real || !YEARS.contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years start in March here, so that the leap day is the last day of its year.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    const EPOCH_DAYS: i64 = 719_468;
    Some((i64::from(days) - EPOCH_DAYS) * 86_400 + i64::from(hour * 3600 + minute * 60 + second))
}

/// Parses a zone such as `+0130` to seconds east of UTC.
#[inline]
pub(super) fn zone(text: &[u8; 5]) -> Option<i64> {
    let (hours, minutes) = (two(text[1], text[2])?, two(text[3], text[4])?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = i64::from(hours * 3600 + minutes * 60);
    match text[0] {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Number of a month, from 1, by its English abbreviation.
#[inline]
pub(super) fn month(name: &[u8; 3]) -> Option<u32> {
    Some(match name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

#[inline]
pub(super) fn two(tens: u8, ones: u8) -> Option<u32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| u32::from(tens) * 10 + u32::from(ones))
}
