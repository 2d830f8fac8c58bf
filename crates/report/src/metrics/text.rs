//! Metrics as text in Prometheus' format 0.0.4 or OpenMetrics 1.0.0; the client chooses (`Accept`).

use super::{Buckets, Family, Label, MetricKind, MetricValue, Metrics};
use std::fmt::Write as _;

/// A format that Prometheus can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The format for the value of `Accept`: OpenMetrics 1.0.0 if the client accepts it, else text, which every
    /// client can read.
    pub fn accepted(accept: &str) -> MetricsFormat {
        let is_it = |range: &str| {
            let range = range.trim().to_ascii_lowercase().replace(['"', ' '], "");
            let with = range.strip_prefix("application/openmetrics-text");
            with.is_some_and(|with| !with.contains(";version=") || with.contains(";version=1.0.0"))
        };
        if accept.split(',').any(is_it) { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics as text.
pub fn page(metrics: &Metrics, format: MetricsFormat) -> String {
    let mut page = Exposition { text: String::new(), labels: &metrics.labels, format };
    metrics.families.iter().for_each(|family| page.family(family));
    if format == MetricsFormat::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

struct Exposition<'a> {
    text: String,
    labels: &'a [Label],
    format: MetricsFormat,
}

impl Exposition<'_> {
    fn family(&mut self, family: &Family) {
        let name = family.prometheus_name();
        let total = if family.kind == MetricKind::Counter { "_total" } else { "" };
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::UpDown | MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // In OpenMetrics, the name of a counter's family lacks the suffix of its samples.
        let (shown, help) = match self.format {
            MetricsFormat::Prometheus => (format!("{name}{total}"), escaped(&family.help, false)),
            MetricsFormat::OpenMetrics => (name.clone(), escaped(&family.help, true)),
        };
        let _ = writeln!(self.text, "# HELP {shown} {help}\n# TYPE {shown} {kind}");
        if let (MetricsFormat::OpenMetrics, Some(unit)) = (self.format, family.prometheus_unit()) {
            let _ = writeln!(self.text, "# UNIT {shown} {unit}");
        }
        for sample in &family.samples {
            match &sample.value {
                MetricValue::Number(number) => self.sample(&format!("{name}{total}"), &sample.labels, None, *number),
                MetricValue::Buckets(buckets) => self.histogram(&name, &sample.labels, buckets),
            }
        }
    }

    fn histogram(&mut self, name: &str, labels: &[Label], buckets: &Buckets) {
        let mut seen = 0;
        let ends = buckets.bounds.iter().map(Some).chain([None]);
        for (end, count) in ends.zip(&buckets.counts) {
            seen += count;
            let end = end.map_or("+Inf".to_string(), |end| match self.format {
                MetricsFormat::Prometheus => end.to_string(),
                MetricsFormat::OpenMetrics => format!("{end:?}"),
            });
            self.sample(&format!("{name}_bucket"), labels, Some(end), seen as f64);
        }
        self.sample(&format!("{name}_sum"), labels, None, buckets.sum);
        self.sample(&format!("{name}_count"), labels, None, seen as f64);
    }

    fn sample(&mut self, name: &str, labels: &[Label], end: Option<String>, value: f64) {
        let end = end.map(|end| ("le", end));
        let labels = self.labels.iter().chain(labels).chain(&end);
        let labels: Vec<String> =
            labels.map(|(label, value)| format!("{}=\"{}\"", label.replace('.', "_"), escaped(value, true))).collect();
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }
}

fn escaped(text: &str, is_quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_quoted { text.replace('"', "\\\"") } else { text }
}
