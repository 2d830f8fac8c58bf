//! The monotonic clock, as a port: the engine reads [`MonotonicClock`], tests step a [`FakeClock`].

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of monotonic nanoseconds. Two readings of one clock can be subtracted; readings of two clocks cannot.
pub trait Clock: Send + Sync {
    /// Nanoseconds since an arbitrary, fixed origin.
    fn now_ns(&self) -> u64;
}

/// `CLOCK_MONOTONIC`: does not jump when the wall clock is set, is slewed by NTP (at most 500 ppm).
#[derive(Debug, Default, Clone, Copy)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }
}

/// One reading of `CLOCK_MONOTONIC` in nanoseconds.
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

/// A point of Unix time as `YYYYMMDD-HHMMSS` in UTC, the prefix of a run directory's name.
pub fn utc_stamp(unix_ms: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_ms);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// A point of Unix time as `YYYY-MM-DDTHH:MM:SSZ`.
pub fn utc_iso(unix_ms: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(unix_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

// The C library's calendar, not jiff's, which would add 270 KB of program for these six numbers.
fn civil(unix_ms: u64) -> (i32, i32, i32, i32, i32, i32) {
    // A run dated past the year 9999 is nonsense; bound it so that the C library's year cannot overflow.
    let seconds = (unix_ms / 1000).min(253_402_300_799) as libc::time_t;
    // SAFETY: an all-zero `tm` is a valid value of that plain C struct.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of this frame; gmtime_r writes only `parts`.
    unsafe { libc::gmtime_r(&seconds, &mut parts) };
    (parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec)
}

/// A clock that moves only when it is advanced, so that schedules and timeouts are tested without waiting.
#[derive(Debug, Default)]
pub struct FakeClock {
    now: AtomicU64,
}

impl FakeClock {
    /// A clock that reads `start_ns`.
    pub fn starting_at(start_ns: u64) -> Self {
        FakeClock { now: AtomicU64::new(start_ns) }
    }

    /// Moves the clock forward.
    pub fn advance_ns(&self, by_ns: u64) {
        self.now.fetch_add(by_ns, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_clock_does_not_go_back() {
        let first = monotonic_ns();
        let second = monotonic_ns();
        assert!(second >= first);
    }

    #[test]
    fn stamps_are_utc() {
        assert_eq!(utc_stamp(0), "19700101-000000");
        assert_eq!(utc_iso(1_763_757_412_000), "2025-11-21T20:36:52Z");
        assert_eq!(utc_stamp(u64::MAX), "99991231-235959");
    }

    #[test]
    fn fake_clock_moves_only_when_told() {
        let clock = FakeClock::starting_at(5);
        assert_eq!(clock.now_ns(), 5);
        clock.advance_ns(10);
        assert_eq!(clock.now_ns(), 15);
    }
}
