//! Metrics for OpenTelemetry: a request of OTLP in protobuf, as it is posted to `/v1/metrics` of a collector. The messages
//! are those of the crate `opentelemetry-proto`.

use super::{Family, Kind, Label, Metrics, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

/// Type of the body.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// The body of a request.
pub fn request(metrics: &Metrics) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let product = [("service.name", "straingauge".to_string()), ("service.version", version.to_string())];
    let scope = InstrumentationScope { name: "straingauge".into(), version: version.into(), ..Default::default() };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes: attributes(&product), ..Default::default() }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics: metrics.families.iter().map(|family| one(metrics, family)).collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    request.encode_to_vec()
}

fn one(metrics: &Metrics, family: &Family) -> Metric {
    let numbers = || {
        let numbers = family.samples.iter().filter_map(|sample| match sample.value {
            Value::Number(number) => Some((&sample.labels, number)),
            Value::Buckets(_) => None,
        });
        let point = |(labels, number): (&Vec<Label>, f64)| NumberDataPoint {
            attributes: attributes(metrics.labels.iter().chain(labels)),
            start_time_unix_nano: metrics.since_unix_ns,
            time_unix_nano: metrics.at_unix_ns,
            value: Some(number_data_point::Value::AsDouble(number)),
            ..Default::default()
        };
        numbers.map(point).collect()
    };
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let sum = |is_monotonic| metric::Data::Sum(Sum { data_points: numbers(), aggregation_temporality, is_monotonic });
    let data = match family.kind {
        Kind::Counter => sum(true),
        Kind::UpDown => sum(false),
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points: numbers() }),
        Kind::Histogram => {
            metric::Data::Histogram(Histogram { data_points: histograms(metrics, family), aggregation_temporality })
        }
    };
    Metric {
        name: family.name.clone(),
        description: family.help.clone(),
        unit: family.unit.into(),
        data: Some(data),
        ..Default::default()
    }
}

fn histograms(metrics: &Metrics, family: &Family) -> Vec<HistogramDataPoint> {
    let buckets = family.samples.iter().filter_map(|sample| match &sample.value {
        Value::Buckets(buckets) => Some((&sample.labels, buckets)),
        Value::Number(_) => None,
    });
    let point = |(labels, buckets): (&Vec<Label>, &super::Buckets)| HistogramDataPoint {
        attributes: attributes(metrics.labels.iter().chain(labels)),
        start_time_unix_nano: metrics.since_unix_ns,
        time_unix_nano: metrics.at_unix_ns,
        count: buckets.counts.iter().sum(),
        sum: Some(buckets.sum),
        bucket_counts: buckets.counts.clone(),
        explicit_bounds: buckets.bounds.clone(),
        ..Default::default()
    };
    buckets.map(point).collect()
}

fn attributes<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Vec<KeyValue> {
    // The conventions want a number there.
    let value = |(name, value): &Label| match value.parse() {
        Ok(port) if *name == "server.port" => any_value::Value::IntValue(port),
        _ => any_value::Value::StringValue(value.clone()),
    };
    let attribute = |label: &Label| KeyValue {
        key: label.0.into(),
        value: Some(AnyValue { value: Some(value(label)) }),
        ..Default::default()
    };
    labels.into_iter().map(attribute).collect()
}
