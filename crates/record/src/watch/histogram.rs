use serde::{Deserialize, Deserializer, Serialize};

/// The number of buckets of a histogram.
pub const BUCKETS: usize = 40;

/// Upper end (exclusive) of a histogram's bucket, nanoseconds: bucket b is `[2^(b+5), 2^(b+6))`, bucket 0 has all
/// below.
pub fn bucket_end_ns(bucket: usize) -> u64 {
    1 << (bucket.min(BUCKETS - 1) + 6)
}

/// Counts by powers of two of nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log2Histogram(pub [u64; BUCKETS]);

impl Default for Log2Histogram {
    fn default() -> Self {
        Log2Histogram([0; BUCKETS])
    }
}

impl Serialize for Log2Histogram {
    /// Pairs of (upper end in nanoseconds, count), without empty buckets.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        serializer.collect_seq(filled.map(|(bucket, count)| (bucket_end_ns(bucket), *count)))
    }
}

impl schemars::JsonSchema for Log2Histogram {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Log2Histogram".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = Vec::<(u64, u64)>::json_schema(generator);
        schema.insert("description".into(), "Pairs of upper end in nanoseconds and count; no empty buckets.".into());
        schema
    }
}

impl<'de> Deserialize<'de> for Log2Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Log2Histogram::default();
        for (end_ns, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            let bucket = (0..BUCKETS).find(|bucket| bucket_end_ns(*bucket) == end_ns);
            let bucket = bucket.ok_or_else(|| serde::de::Error::custom(format!("no bucket ends at {end_ns} ns")))?;
            histogram.0[bucket] = count;
        }
        Ok(histogram)
    }
}

impl crate::sum::Growing for Log2Histogram {
    fn since(&self, earlier: &Log2Histogram) -> Log2Histogram {
        Log2Histogram(self.0.since(&earlier.0))
    }
}

impl crate::sum::Summand for Log2Histogram {
    fn add(&mut self, other: &Log2Histogram) {
        Log2Histogram::add(self, &other.0);
    }
}

impl Log2Histogram {
    /// Adds another's counts.
    pub fn add(&mut self, other: &[u64; BUCKETS]) {
        for (mine, theirs) in self.0.iter_mut().zip(other) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    /// Upper end of a quantile's bucket: the value is at most this and more than half of it. `None` if empty.
    pub fn quantile_at_most_ns(&self, quantile: f64) -> Option<u64> {
        let total: u64 = self.0.iter().sum();
        let rank = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        self.0
            .iter()
            .position(|count| {
                seen += count;
                total > 0 && seen >= rank
            })
            .map(bucket_end_ns)
    }
}
