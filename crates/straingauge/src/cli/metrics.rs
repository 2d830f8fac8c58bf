//! Export of metrics: the same option in `watch`, `load` and `find`.

use clap::Args;
use std::net::SocketAddr;
use std::str::FromStr;

/// Destinations of metrics.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct MetricsOptions {
    /// Export metrics: 127.0.0.1:9100 serves Prometheus, a URL is an OTLP collector
    ///
    /// A collector, e.g. http://127.0.0.1:4318, gets OTLP over HTTP every 5 seconds and at the end. Repeatable: once
    /// for each kind.
    #[arg(long, value_name = "WHERE")]
    pub metrics: Vec<MetricsPlace>,
}

/// A destination of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsPlace {
    /// Address at which Prometheus can read metrics.
    Served(SocketAddr),
    /// URL of an OpenTelemetry collector.
    Sent(String),
}

impl FromStr for MetricsPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Ok(MetricsPlace::Sent(text.into()));
        }
        let address =
            text.parse().map_err(|_| "write an address, as 127.0.0.1:9100, or a URL, as http://127.0.0.1:4318")?;
        Ok(MetricsPlace::Served(address))
    }
}
