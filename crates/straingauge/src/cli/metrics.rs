//! Metrics for other programs: the same words in `watch`, `load` and `find`.

use clap::Args;

/// Where metrics go.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct MetricsOptions {
    /// Serve metrics here, as 127.0.0.1:9100
    ///
    /// For Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Send metrics to this OpenTelemetry collector, as http://127.0.0.1:4318
    ///
    /// OTLP over HTTP, every 5 seconds and at the end.
    #[arg(long, value_name = "ENDPOINT")]
    pub otlp: Option<String>,
}

impl MetricsOptions {
    /// Whether they go anywhere.
    pub fn is_any(&self) -> bool {
        self.prometheus.is_some() || self.otlp.is_some()
    }
}
