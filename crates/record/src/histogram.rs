//! Latency histograms: HdrHistogram with three significant digits, merged losslessly, written as `.hlog`.
//!
//! Values are nanoseconds. A value above [`MAX_NS`] is recorded at the limit and counted in [`Latency::clamped`], so
//! that no sample disappears.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::time::Duration;

/// The largest distinguishable value: one hour.
pub const MAX_NS: u64 = 3_600_000_000_000;

/// Maximum size of an `.hlog`, far more than a point writes.
const MAX_LOG_BYTES: usize = 64 << 20;
/// Maximum size of a histogram, encoded or not: more than ten bytes for each of its counts.
const MAX_BYTES: usize = 4 << 20;
/// The first word of HdrHistogram's V2 encoding, and of its compressed form.
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;
const HEADER_BYTES: usize = 40;

/// A histogram in JSON: HdrHistogram's V2 compressed encoding in base64.
#[derive(Serialize, Deserialize)]
pub(crate) struct Encoded {
    v2: String,
    #[serde(default)]
    clamped: u64,
}

impl Encoded {
    pub(crate) fn decoded(&self) -> Result<Latency, LogError> {
        Ok(Latency { clamped: self.clamped, ..decode_payload(&self.v2)? })
    }
}

impl Serialize for Latency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = Vec::new();
        let encoded = V2DeflateSerializer::new().serialize(&self.histogram, &mut raw);
        encoded.map_err(|error| S::Error::custom(encode(error)))?;
        Encoded { v2: BASE64_STANDARD.encode(&raw), clamped: self.clamped }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Encoded::deserialize(deserializer)?.decoded().map_err(D::Error::custom)
    }
}

/// Counts of nanosecond values with a relative error of at most 0.1 %.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    histogram: Histogram<u64>,
    clamped: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Latency {
    /// An empty histogram over 1 ns to one hour (about 300 kB).
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_NS, 3).expect("constant bounds are valid");
        Latency { histogram, clamped: 0 }
    }

    /// Records one value. Never fails: 0 counts as 1 ns, and more than [`MAX_NS`] as [`MAX_NS`].
    #[inline]
    pub fn record_ns(&mut self, nanos: u64) {
        self.record_many_ns(nanos, 1);
    }

    /// Records a value several times.
    #[inline]
    pub fn record_many_ns(&mut self, nanos: u64, count: u64) {
        if nanos > MAX_NS {
            self.clamped += count;
        }
        self.histogram.saturating_record_n(nanos.clamp(1, MAX_NS), count);
    }

    /// Adds another histogram's counts; all have the same buckets.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("all latency histograms have the same bounds");
        self.clamped = self.clamped.saturating_add(other.clamped);
    }

    /// The number of values.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Number of values above the range; they are counted at its end.
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// The value at a quantile between 0 and 1 in nanoseconds (upper end of its bucket); `None` when empty.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        if self.is_empty() { None } else { Some(self.histogram.value_at_quantile(quantile)) }
    }

    /// The mean in nanoseconds; `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        if self.is_empty() { None } else { Some(self.histogram.mean()) }
    }

    /// The largest value in nanoseconds; `None` when empty.
    pub fn max_ns(&self) -> Option<u64> {
        if self.is_empty() { None } else { Some(self.histogram.max()) }
    }

    /// Number of values of at most `nanos`.
    pub fn count_at_most(&self, nanos: u64) -> u64 {
        self.histogram
            .iter_recorded()
            .take_while(|step| step.value_iterated_to() <= nanos)
            .map(|step| step.count_since_last_iteration())
            .sum()
    }

    /// The recorded buckets in order, as (upper end in nanoseconds, count).
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .collect()
    }
}

/// The reason why an `.hlog` could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The library could not encode the histogram.
    #[error("the latency histogram could not be encoded: {0}")]
    Encode(String),
    /// The text is not an HdrHistogram log, or was not written by straingauge.
    #[error("not an HdrHistogram log: {0}")]
    Decode(String),
    /// The log is larger than any that a point writes.
    #[error("the latency log has {0} bytes, more than the maximum of {MAX_LOG_BYTES}")]
    TooLarge(usize),
}

/// Writes histograms as an HdrHistogram interval log (format 1.3, V2 deflate payloads), one tagged line each. Other
/// tools (HdrHistogram's plotters, hdr-plot) can read it. Empty histograms are written, too, because absence is
/// information.
pub fn write_log(start_unix_ms: u64, duration: Duration, tagged: &[(&str, &Latency)]) -> Result<Vec<u8>, LogError> {
    let mut out = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let start = std::time::UNIX_EPOCH + Duration::from_millis(start_unix_ms);
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment("straingauge: values in nanoseconds")
        .with_start_time(start)
        .with_base_time(start)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(encode)?;
    for (tag, latency) in tagged {
        let tag = Tag::new(tag).ok_or_else(|| LogError::Encode(format!("'{tag}' cannot be a tag")))?;
        writer.write_histogram(&latency.histogram, Duration::ZERO, duration, Some(tag)).map_err(encode)?;
    }
    Ok(out)
}

/// Reads the histograms of an interval log by tag, in file order. Lines of the same tag are merged.
pub fn read_log(bytes: &[u8]) -> Result<Vec<(String, Latency)>, LogError> {
    if bytes.len() > MAX_LOG_BYTES {
        return Err(LogError::TooLarge(bytes.len()));
    }
    let mut found: Vec<(String, Latency)> = Vec::new();
    for entry in IntervalLogIterator::new(bytes) {
        let entry = entry.map_err(decode)?;
        if let LogEntry::Interval(interval) = entry {
            let latency = decode_payload(interval.encoded_histogram())?;
            let tag = interval.tag().map(|tag| tag.as_str().to_string()).unwrap_or_default();
            match found.iter_mut().find(|(known, _)| *known == tag) {
                Some((_, merged)) => merged.merge(&latency),
                None => found.push((tag, latency)),
            }
        }
    }
    Ok(found)
}

fn encode(error: impl std::fmt::Debug) -> LogError {
    LogError::Encode(format!("{error:?}"))
}

fn decode(error: impl std::fmt::Debug) -> LogError {
    LogError::Decode(format!("{error:?}"))
}

/// Any text is safe.
fn decode_payload(encoded: &str) -> Result<Latency, LogError> {
    if encoded.len() > MAX_BYTES {
        return Err(LogError::TooLarge(encoded.len()));
    }
    let raw = BASE64_STANDARD
        .decode(encoded)
        .map_err(|error| LogError::Decode(format!("a histogram is not base64: {error}")))?;
    let plain = inflated(&raw)?;
    let decoded: Histogram<u64> = Deserializer::new().deserialize(&mut plain.as_slice()).map_err(decode)?;
    let mut latency = Latency::new();
    if decoded.high() > MAX_NS.next_power_of_two() * 2 || decoded.sigfig() != 3 {
        return Err(LogError::Decode("a histogram has a range that straingauge does not write".into()));
    }
    latency.histogram.add(&decoded).map_err(decode)?;
    Ok(latency)
}

/// Decompresses the encoding and checks what the library does not check: it reserves the size in the header, up to 4
/// GiB, and negates any number of zeros.
fn inflated(raw: &[u8]) -> Result<Vec<u8>, LogError> {
    let broken = LogError::Decode;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map(u32::from_be_bytes).ok_or_else(|| broken("a histogram ends in its header".into()))
    };
    let mut plain = Vec::new();
    if word(raw, 0)? == COMPRESSED {
        let coded = raw.get(8..).unwrap_or_default();
        let mut reader = ZlibDecoder::new(coded).take(MAX_BYTES as u64 + 1);
        reader
            .read_to_end(&mut plain)
            .map_err(|error| broken(format!("a histogram's compression is broken: {error}")))?;
    } else {
        plain.extend_from_slice(raw);
    }
    if plain.len() > MAX_BYTES {
        return Err(LogError::TooLarge(plain.len()));
    }
    if word(&plain, 0)? != PLAIN {
        return Err(broken("a histogram is not in HdrHistogram's V2 encoding".into()));
    }
    let (claimed, there) = (word(&plain, 4)?, plain.len().saturating_sub(HEADER_BYTES));
    if claimed as usize > there {
        return Err(broken(format!("a histogram announces {claimed} bytes of counts but has {there}")));
    }
    // Numbers have seven bits per byte, and eight in the ninth. Nine bytes of ones are a number of zeros that cannot
    // be negated.
    let mut ones = 0;
    for byte in plain.iter().skip(HEADER_BYTES) {
        ones = if *byte == 0xff { ones + 1 } else { 0 };
        if ones == 9 {
            return Err(broken("a histogram has more zeros than can be counted".into()));
        }
    }
    Ok(plain)
}
