//! Metrics independent of their encoding: [`text`] for Prometheus, [`otlp`] for OpenTelemetry.
//!
//! A family has a UCUM unit and a name from OpenTelemetry's semantic conventions (`http.server.request.duration`) or
//! of our own (`straingauge.requests`). OpenTelemetry's rules determine the name in Prometheus
//! (`http_server_request_duration_seconds`).

pub mod client;
pub mod otlp;
pub mod text;

/// How a family's values behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that grows from 0.
    Counter,
    /// A current number of things, which can be added over sources.
    UpDown,
    /// A current value.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A distribution, by buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Upper ends, ascending. Larger values are in one further bucket.
    pub bounds: Vec<f64>,
    /// Values in each bucket.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// The value of all kinds except histograms.
    Number(f64),
    /// The value of a histogram.
    Buckets(Buckets),
}

/// A label and its value.
pub type Label = (&'static str, String);

/// One time series of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// Labels that distinguish the series within the family.
    pub labels: Vec<Label>,
    /// The value.
    pub value: MetricValue,
}

/// A metric with all its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name in OpenTelemetry.
    pub name: String,
    /// Unit in UCUM: `s`, `By`, or `{request}` for a count of something.
    pub unit: &'static str,
    /// Description in one sentence.
    pub help: String,
    /// Kind of the family.
    pub kind: MetricKind,
    /// Its series.
    pub samples: Vec<MetricSample>,
}

/// Metrics at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Start of the counters, Unix nanoseconds.
    pub since_unix_ns: u64,
    /// The instant, Unix nanoseconds.
    pub at_unix_ns: u64,
    /// Labels of every series.
    pub labels: Vec<Label>,
    /// The families, each once.
    pub families: Vec<Family>,
}

impl Family {
    /// A family without series.
    pub fn new(kind: MetricKind, name: &str, unit: &'static str, help: &str) -> Family {
        Family { name: name.into(), unit, help: help.into(), kind, samples: Vec::new() }
    }

    /// Adds a series with a number.
    pub fn with(mut self, labels: &[(&'static str, &str)], number: f64) -> Family {
        self.add(labels, MetricValue::Number(number));
        self
    }

    /// Adds a series.
    pub fn add(&mut self, labels: &[(&'static str, &str)], value: MetricValue) {
        let labels = labels.iter().map(|(label, value)| (*label, (*value).to_string())).collect();
        self.samples.push(MetricSample { labels, value });
    }

    /// Name in Prometheus without the suffixes of samples (`_total`, `_bucket`): underscores for dots, and the unit at
    /// the end.
    pub fn prometheus_name(&self) -> String {
        let name = self.name.replace('.', "_");
        match self.prometheus_unit() {
            Some(unit) if !name.ends_with(&format!("_{unit}")) => format!("{name}_{unit}"),
            _ => name,
        }
    }

    /// Unit in Prometheus; a count of things has none.
    pub fn prometheus_unit(&self) -> Option<&'static str> {
        match (self.unit, self.kind) {
            ("s", _) => Some("seconds"),
            ("By", _) => Some("bytes"),
            ("1", MetricKind::Gauge) => Some("ratio"),
            (unit, _) if unit.ends_with("/s") => Some("per_second"),
            _ => None,
        }
    }
}

impl Metrics {
    /// Adds a family, unless it has no series.
    pub fn add(&mut self, family: Family) {
        if !family.samples.is_empty() {
            self.families.push(family);
        }
    }

    /// Adds a family whose only series is this number, if it is known.
    pub fn number(
        &mut self,
        kind: MetricKind,
        name: &str,
        unit: &'static str,
        help: &str,
        number: impl Into<Option<f64>>,
    ) {
        self.families.extend(number.into().map(|number| Family::new(kind, name, unit, help).with(&[], number)));
    }
}
