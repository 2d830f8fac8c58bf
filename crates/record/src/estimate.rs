use serde::{Deserialize, Serialize};

/// A number estimated from repeats, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Estimate {
    /// Value of the estimate.
    pub value: f64,
    /// Lower end of the interval; absent if too little was measured for one.
    pub low: Option<f64>,
    /// Upper end of the interval; absent if too little was measured for one.
    pub high: Option<f64>,
    /// Confidence of the interval as a share (0.95 = 95 %).
    pub confidence: f64,
    /// Number of repeats, pairs or points that the value is based on.
    pub n: u64,
    /// Points that did not count, because other work disturbed them.
    #[serde(default, skip_serializing_if = "crate::sum::is_zero")]
    pub left_out: u64,
}

impl Estimate {
    /// A value with its interval, if there is one.
    pub fn new(value: f64, interval: Option<(f64, f64)>, confidence: f64, n: usize) -> Estimate {
        let (low, high) = interval.unzip();
        Estimate { value, low, high, confidence, n: n as u64, left_out: 0 }
    }

    /// Both ends of the interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Whether the interval excludes a value. A missing interval excludes no value.
    pub fn excludes(&self, value: f64) -> bool {
        self.interval().is_some_and(|(low, high)| value < low || value > high)
    }

    /// Converts to another unit or another monotonic quantity; a falling one swaps the ends.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Estimate {
        let ends = self.interval().map(|(low, high)| (of(low), of(high)));
        let (low, high) = ends.map(|(a, b)| (a.min(b), a.max(b))).unzip();
        Estimate { value: of(self.value), low, high, ..self }
    }
}
