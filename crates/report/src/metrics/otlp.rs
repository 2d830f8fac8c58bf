//! Metrics for OpenTelemetry: the body for `/v1/metrics` of a collector, in OTLP's JSON encoding (OTLP specification,
//! "JSON Protobuf Encoding": lowerCamelCase names, 64-bit integers as strings).

use super::{Family, Label, MetricKind, MetricSample, MetricValue, Metrics};
use serde_json::{Map, Value, json};

/// Type of the body.
pub const CONTENT_TYPE: &str = "application/json";

const CUMULATIVE: u8 = 2;

/// The body of a request.
pub fn request(metrics: &Metrics) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let product = [("service.name", "straingauge".to_string()), ("service.version", version.to_string())];
    let families: Vec<Value> = metrics.families.iter().map(|family| one(metrics, family)).collect();
    let request = json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(&product) },
        "scopeMetrics": [{ "scope": { "name": "straingauge", "version": version }, "metrics": families }],
    }] });
    request.to_string().into_bytes()
}

fn one(metrics: &Metrics, family: &Family) -> Value {
    let points: Vec<Value> = family.samples.iter().map(|sample| point(metrics, sample)).collect();
    let (kind, data) = match family.kind {
        MetricKind::Gauge => ("gauge", json!({ "dataPoints": points })),
        MetricKind::Histogram => ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE })),
        MetricKind::Counter | MetricKind::UpDown => {
            let is_monotonic = family.kind == MetricKind::Counter;
            let sum = json!({
                "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": is_monotonic,
            });
            ("sum", sum)
        }
    };
    json!({ "name": family.name, "description": family.help, "unit": family.unit, kind: data })
}

fn point(metrics: &Metrics, sample: &MetricSample) -> Value {
    let mut point = Map::new();
    point.insert("attributes".into(), attributes(metrics.labels.iter().chain(&sample.labels)).into());
    point.insert("startTimeUnixNano".into(), metrics.since_unix_ns.to_string().into());
    point.insert("timeUnixNano".into(), metrics.at_unix_ns.to_string().into());
    match &sample.value {
        MetricValue::Number(number) => {
            point.insert("asDouble".into(), double(*number));
        }
        MetricValue::Buckets(buckets) => {
            let counts: Vec<String> = buckets.counts.iter().map(u64::to_string).collect();
            point.insert("count".into(), buckets.counts.iter().sum::<u64>().to_string().into());
            point.insert("sum".into(), double(buckets.sum));
            point.insert("bucketCounts".into(), counts.into());
            point.insert("explicitBounds".into(), buckets.bounds.iter().copied().map(double).collect());
        }
    }
    Value::Object(point)
}

/// A number in protobuf's JSON encoding, which has names for numbers that JSON lacks.
fn double(number: f64) -> Value {
    match number {
        _ if number.is_finite() => number.into(),
        _ if number.is_nan() => "NaN".into(),
        _ if number > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}

fn attributes<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Vec<Value> {
    // The semantic conventions require a number for the port.
    let value = |(name, value): &Label| match value.parse::<u16>() {
        Ok(port) if *name == "server.port" => json!({ "intValue": port.to_string() }),
        _ => json!({ "stringValue": value }),
    };
    labels.into_iter().map(|label| json!({ "key": label.0, "value": value(label) })).collect()
}
