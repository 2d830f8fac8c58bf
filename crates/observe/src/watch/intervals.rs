//! The intervals at which the machine's counters are read. Each kind has its own, because some counters change slowly
//! or are expensive to read.

use record::PlainText;
use record::units::{UnitError, parse_duration};
use record::watch::system::{KINDS, SystemKind};
use std::time::Duration;

/// The default interval.
pub const DEFAULT: Duration = Duration::from_secs(1);

/// The interval of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals([Duration; KINDS]);

/// The reason why intervals are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// A value is not a time.
    #[error("{0}")]
    NotATime(#[from] UnitError),
    /// A kind of counter that does not exist.
    #[error("'{0}' is not a kind of counter; the kinds are cpu, interrupts, disk, paging, memory, server")]
    UnknownKind(PlainText),
    /// A kind is named twice.
    #[error("{0} has two intervals: give one")]
    Twice(&'static str),
    /// The interval for all kinds is not the first, so it would override those before it.
    #[error("an interval for all kinds must come first, as in 5s,disk=30s")]
    AllNotFirst,
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals::all(DEFAULT)
    }
}

impl Intervals {
    /// The same interval for all kinds; zero = at each reading.
    pub fn all(interval: Duration) -> Self {
        Intervals([interval; KINDS])
    }

    /// The interval of a kind.
    pub fn get(&self, kind: SystemKind) -> Duration {
        self.0[kind as usize]
    }

    /// Parses `5s`, `disk=10s,memory=30s` (the others every second) or `5s,disk=30s`.
    pub fn parse(text: &str) -> Result<Self, IntervalError> {
        let mut intervals = Intervals::default();
        let mut is_given = [false; KINDS];
        for (place, part) in text.split(',').enumerate() {
            let Some((word, time)) = part.split_once('=') else {
                if place > 0 {
                    return Err(IntervalError::AllNotFirst);
                }
                intervals = Intervals::all(parse_duration(part.trim())?);
                continue;
            };
            let word = word.trim();
            let Some(kind) = SystemKind::ALL.into_iter().find(|kind| kind.word() == word) else {
                return Err(IntervalError::UnknownKind(PlainText::new(word, 40)));
            };
            if std::mem::replace(&mut is_given[kind as usize], true) {
                return Err(IntervalError::Twice(kind.word()));
            }
            intervals.0[kind as usize] = parse_duration(time.trim())?;
        }
        Ok(intervals)
    }
}

/// When each kind is due.
#[derive(Debug, Clone, Default)]
pub struct DueKinds([u64; KINDS]);

impl DueKinds {
    /// The kinds that are due now; each is due again after its interval.
    pub fn at(&mut self, now_ns: u64, intervals: &Intervals) -> Vec<SystemKind> {
        let mut due = Vec::new();
        for (kind, next_ns) in SystemKind::ALL.into_iter().zip(&mut self.0) {
            if now_ns >= *next_ns {
                // Slightly early counts as due; otherwise a watch with this interval would skip every second reading.
                *next_ns = now_ns + (intervals.get(kind).as_nanos() as u64) / 10 * 9;
                due.push(kind);
            }
        }
        due
    }
}
