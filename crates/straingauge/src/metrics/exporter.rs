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

    pub fn publish(&self, metrics: Arc<Metrics>) {
        *lock(&self.newest.0) = metrics;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::IO_TIMEOUT;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    /// Only a response ends the waits in this test: the idle connections neither send nor close.
    #[test]
    fn idle_connections_do_not_delay_a_scrape() {
        let mut exporter = Exporter::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = exporter.server.address();
        exporter.serve().expect("a thread");
        let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let began = Instant::now();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            assert!(began.elapsed() < IO_TIMEOUT, "it did not wait for the idle ones to be given up");
        }
        drop(idle);
    }
}
