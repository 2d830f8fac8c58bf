//! The Prometheus endpoint: answers `GET /metrics` in the format that the client requests (`report::metrics::text`).

use crate::serve::{HttpRequest, HttpServer, Response, Site, response};
use anyhow::{Context, Result};
use record::lock;
use report::metrics::Metrics;
use report::metrics::text::{MetricsFormat, page};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const MOST_CLIENTS: usize = 64;

#[derive(Default)]
struct NewestMetrics(Mutex<Arc<Metrics>>);

impl Site for NewestMetrics {
    fn answer(&self, request: &HttpRequest<'_>) -> Response {
        if request.target != "/metrics" && !request.target.starts_with("/metrics?") {
            return Response::Whole(response("404 Not Found", "text/plain; charset=utf-8", "", b"see /metrics\n"));
        }
        let metrics = Arc::clone(&lock(&self.0));
        let format = MetricsFormat::accepted(&request.accept);
        let body = page(&metrics, format);
        Response::Whole(response("200 OK", format.content_type(), "Vary: Accept\r\n", body.as_bytes()))
    }
}

/// The endpoint; its thread ends with the process.
pub struct Exporter {
    server: HttpServer,
    newest: Arc<NewestMetrics>,
}

impl Exporter {
    /// Listens. Connections wait until [`Exporter::serve`] is called.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let server =
            HttpServer::bind(address, MOST_CLIENTS).with_context(|| format!("cannot serve metrics on {address}"))?;
        eprintln!("metrics on http://{}/metrics", server.address());
        Ok(Exporter { server, newest: Arc::default() })
    }

    /// Starts answering. Called after privileges are dropped, because they belong to threads.
    pub fn serve(&mut self) -> Result<()> {
        self.server.serve("metrics", Arc::clone(&self.newest))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn publish(&self, metrics: Arc<Metrics>) {
        *lock(&self.newest.0) = metrics;
    }
}
