//! The monotonic clock, and the wall clock for dating runs.

/// Reads `CLOCK_MONOTONIC` in nanoseconds. It does not jump when the wall clock is set, and is slewed by NTP (at most
/// 500 ppm).
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid, writable timespec; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Milliseconds since the Unix epoch, for naming and dating runs; never for measuring.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map(|since| since.as_millis() as u64)
        .unwrap_or(0)
}

/// Formats Unix time as `YYYYMMDD-HHMMSS` in UTC, the prefix of a run directory's name.
pub fn utc_stamp(unix_ms: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_ms);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Formats Unix time as `YYYY-MM-DDTHH:MM:SSZ`.
pub fn utc_iso(unix_ms: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a date in UTC as Unix milliseconds: `2026-11-01`, `2026-11-01T14:30`, `2026-11-01 14:30:05`, with or
/// without `Z`.
pub fn parse_utc(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches('Z');
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "0:0:0"));
    let numbers = |text: &str, mark: char| -> Option<Vec<i32>> {
        text.split(mark)
            .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?)
            .collect()
    };
    let (date, clock) = (numbers(date, '-')?, numbers(clock, ':')?);
    let ([year, month, day], [hour, minute, ..]) = (date.as_slice(), clock.as_slice()) else { return None };
    let second = clock.get(2).copied().unwrap_or(0);
    if clock.len() > 3 || !(1970..=9999).contains(year) {
        return None;
    }
    // SAFETY: an all-zero `tm` is a valid value of that plain C struct.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (year - 1900, month.checked_sub(1)?, *day);
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (*hour, *minute, second);
    // SAFETY: `parts` is a live value of this frame; timegm writes only it.
    let seconds = u64::try_from(unsafe { libc::timegm(&mut parts) }).ok()?;
    let unix_ms = seconds.checked_mul(1000)?;
    // The C library turns the 31st of February into a day of March, so the result is compared.
    (civil(unix_ms) == (*year, *month, *day, *hour, *minute, second)).then_some(unix_ms)
}

// Uses the C library's calendar, because jiff would add 270 KB to the program.
fn civil(unix_ms: u64) -> (i32, i32, i32, i32, i32, i32) {
    // Limited so that the C library's year cannot overflow.
    let seconds = (unix_ms / 1000).min(253_402_300_799) as libc::time_t;
    // SAFETY: an all-zero `tm` is a valid value of that plain C struct.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of this frame; gmtime_r writes only `parts`.
    unsafe { libc::gmtime_r(&seconds, &mut parts) };
    (parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec)
}
