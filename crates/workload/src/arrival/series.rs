use crate::{BYTE_ORDER_MARK, WorkloadError, wrong};
use flate2::bufread::MultiGzDecoder;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Maximum number of intervals: six months of seconds (64 MiB).
pub const INTERVALS_LIMIT: usize = 16 << 20;

/// Maximum gap in the times of a CSV, in intervals. A longer one is an error instead of a gap of zeros.
const GAP_LIMIT: i64 = 1 << 20;

/// Requests in each of equal intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateSeries {
    /// Length of an interval.
    pub interval_ns: u64,
    /// Requests in each interval, in order. Not empty, and not all 0.
    pub counts: Vec<u32>,
}

impl RateSeries {
    /// Reads a series in one of two forms, plain or gzip:
    ///
    /// - one count per line; `plain_interval_ns` is the length of an interval (one second in the NASA-HTTP series);
    /// - CSV with a time (`1998-04-30 21:30:00`) and a count, with or without a header. The interval is the most
    ///   frequent step between times, missing intervals count 0, and the counts of equal times are added up.
    pub fn open(path: &Path, plain_interval_ns: u64) -> Result<Self, WorkloadError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(unreadable(&name))?;
        Self::from_reader(&name, file, plain_interval_ns)
    }

    /// Reads a series from any stream; `name` is used in messages.
    pub fn from_reader(name: &str, source: impl Read, plain_interval_ns: u64) -> Result<Self, WorkloadError> {
        let mut source = BufReader::with_capacity(64 * 1024, source);
        if source.fill_buf().map_err(unreadable(name))?.starts_with(&[0x1f, 0x8b]) {
            Self::parse(name, BufReader::new(MultiGzDecoder::new(source)), plain_interval_ns)
        } else {
            Self::parse(name, source, plain_interval_ns)
        }
    }

    fn parse(name: &str, mut source: impl BufRead, plain_interval_ns: u64) -> Result<Self, WorkloadError> {
        // Longer than any line with a count, or with a time and a count. It bounds the memory for a file without line
        // ends.
        const LINE_LIMIT: u64 = 256;
        let mut line = Vec::new();
        let mut number: u32 = 0;
        let mut timed: Vec<TimedCount> = Vec::new();
        let mut plain: Vec<u32> = Vec::new();
        loop {
            line.clear();
            let read = (&mut source).take(LINE_LIMIT).read_until(b'\n', &mut line);
            if read.map_err(unreadable(name))? == 0 {
                break;
            }
            number += 1;
            let text = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line).trim_ascii();
            if text.is_empty() {
                continue;
            }
            let wrong = |reason| wrong_line(name, number, reason, text[..text.len().min(80)].escape_ascii());
            match text.iter().rposition(|byte| matches!(byte, b',' | b';' | b'\t')) {
                Some(comma) => {
                    let (time, count) = (text[..comma].trim_ascii(), text[comma + 1..].trim_ascii());
                    match (crate::trace::unix_second(time), count_of(count)) {
                        (Some(time), Some(count)) if plain.is_empty() => timed.push((time, number, count)),
                        _ if number == 1 && is_header(time, text) => {}
                        _ => return Err(wrong("expected a time such as 1998-04-30 21:30:00, a comma and a count")),
                    }
                }
                None => match count_of(text) {
                    Some(count) if timed.is_empty() => plain.push(count),
                    _ if number == 1 && is_header(text, text) => {}
                    _ => return Err(wrong("expected one count")),
                },
            }
            if timed.len().max(plain.len()) > INTERVALS_LIMIT {
                return Err(too_long(name));
            }
        }
        let (interval_ns, counts) =
            if timed.is_empty() { (plain_interval_ns.max(1), plain) } else { regular(name, timed)? };
        if counts.iter().all(|count| *count == 0) {
            return Err(wrong(format!(
                "{name} has no requests: a rate series needs at least one interval with a count above 0"
            )));
        }
        Ok(RateSeries { interval_ns, counts })
    }

    /// Requests of the whole series.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Length of the series in its original time.
    pub fn span_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(self.counts.len() as u64)
    }

    /// Largest count over the mean count.
    pub fn peak_ratio(&self) -> f64 {
        let peak = self.counts.iter().copied().max().unwrap_or(0);
        f64::from(peak) * self.counts.len() as f64 / self.total().max(1) as f64
    }
}

fn unreadable(name: &str) -> impl Fn(std::io::Error) -> WorkloadError {
    move |cause| wrong(format!("{name}: the rate series cannot be read: {cause}"))
}

fn wrong_line(name: &str, line: u32, reason: &str, excerpt: impl Display) -> WorkloadError {
    wrong(format!("{name}:{line}: {reason}: {excerpt}"))
}

fn too_long(name: &str) -> WorkloadError {
    wrong(format!("{name} has more than {INTERVALS_LIMIT} intervals: use a part of it, or longer intervals"))
}

fn count_of(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether a first line is a header instead of data in an unknown form.
fn is_header(time: &[u8], line: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
    line.iter().any(is_letter) && crate::trace::unix_second(time).is_none()
}

type TimedCount = (i64, u32, u32);

/// Puts times and counts on a regular grid. Its step is the most frequent one, or the smallest if all steps are
/// multiples of it.
fn regular(name: &str, mut timed: Vec<TimedCount>) -> Result<(u64, Vec<u32>), WorkloadError> {
    timed.sort();
    let steps = || timed.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|step| *step > 0);
    let mut frequency: BTreeMap<i64, usize> = BTreeMap::new();
    steps().for_each(|step| *frequency.entry(step).or_default() += 1);
    let smallest_s = frequency.keys().next().copied().unwrap_or(60);
    // Takes the smallest of equally frequent steps.
    let usual_s = frequency.iter().rev().max_by_key(|(_, count)| **count).map_or(60, |(step, _)| *step);
    let spaced = spaced(name, &timed, usual_s);
    let is_finer = spaced.is_err() && steps().all(|step| step % smallest_s == 0);
    if is_finer { self::spaced(name, &timed, smallest_s) } else { spaced }
}

/// Puts sorted times into intervals of `step_s`. Each interval begins at its first time, so that neither jitter nor
/// drift leaves one empty.
fn spaced(name: &str, timed: &[TimedCount], step_s: i64) -> Result<(u64, Vec<u32>), WorkloadError> {
    /// A time whose distance from a multiple of the step exceeds this share of the step is off the grid.
    const OFF_RATIO: f64 = 0.25;
    // This many times off the grid are tolerated as strays.
    let strays = (timed.len() / 100).max(2);
    let mut counts: Vec<u32> = Vec::with_capacity(timed.len());
    let (mut begin, mut position) = (timed[0].0, 0);
    // The number of times off the grid, and the line and distance of the first.
    let (mut off, mut first_off) = (0, None);
    for (time, line, count) in timed {
        let steps = (time - begin) as f64 / step_s as f64;
        if (steps - steps.round()).abs() > OFF_RATIO {
            off += 1;
            first_off.get_or_insert((*line, time - begin));
        }
        if let Some((line, distance_s)) = first_off.filter(|_| off > strays) {
            let how = format!("it is {distance_s} s after the time before, and the most frequent step is {step_s} s");
            return Err(wrong_line(name, line, "this time does not fit the interval of the others", how));
        }
        let steps = steps.round() as i64;
        if steps > GAP_LIMIT || position + steps as usize >= INTERVALS_LIMIT {
            return Err(too_long(name));
        }
        if steps > 0 {
            position += steps as usize;
            begin = *time;
        }
        if counts.len() <= position {
            counts.resize(position + 1, 0);
        }
        counts[position] = counts[position].saturating_add(*count);
    }
    Ok((step_s as u64 * 1_000_000_000, counts))
}
