//! Posts metrics to an OpenTelemetry collector (OTLP over HTTP). A separate thread sends, so a slow collector does
//! not delay measurements; newer metrics replace those not sent in time.

use crate::failure::wrong_usage;
use anyhow::{Context, Result};
use record::lock;
use report::metrics::{Metrics, otlp};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of a request, and so of the wait at the end of a command.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Desk {
    newest: Option<Arc<Metrics>>,
    is_closed: bool,
}

type SharedDesk = Arc<(Mutex<Desk>, Condvar)>;

/// Sends metrics until it is dropped; always the newest.
pub struct Otlp {
    url: String,
    desk: SharedDesk,
    thread: Option<JoinHandle<()>>,
}

impl Otlp {
    /// Checks the endpoint. A URL without a path gets the path that OTLP prescribes.
    pub fn new(endpoint: &str) -> Result<Otlp> {
        let wrong = |why: &str| {
            let endpoint = record::text::plain(endpoint, 100);
            wrong_usage(format!("--metrics '{endpoint}' {why}: write it as http://127.0.0.1:4318"))
        };
        let url: http::Uri = endpoint.parse().map_err(|_| wrong("is not a URL"))?;
        match url.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("needs TLS, which is not supported (use a collector on this machine)")),
            _ => return Err(wrong("does not begin with http://")),
        }
        let authority = url.authority().ok_or_else(|| wrong("names no host"))?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let path = if path == "/" { "/v1/metrics" } else { path };
        Ok(Otlp { url: format!("http://{authority}{path}"), desk: SharedDesk::default(), thread: None })
    }

    pub fn serve(&mut self) -> Result<()> {
        let (url, desk) = (self.url.clone(), Arc::clone(&self.desk));
        let thread = std::thread::Builder::new().name("otlp".into()).spawn(move || send_all(&url, &desk));
        self.thread = Some(thread.context("cannot start a thread for --metrics")?);
        Ok(())
    }

    pub fn publish(&self, metrics: Arc<Metrics>) {
        lock(&self.desk.0).newest = Some(metrics);
        self.desk.1.notify_one();
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        lock(&self.desk.0).is_closed = true;
        self.desk.1.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_all(url: &str, desk: &SharedDesk) {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(true).build().into();
    let mut has_complained = false;
    loop {
        let held = lock(&desk.0);
        let waited = desk.1.wait_while(held, |desk| desk.newest.is_none() && !desk.is_closed);
        let mut now = waited.unwrap_or_else(PoisonError::into_inner);
        let (newest, is_closed) = (now.newest.take(), now.is_closed);
        drop(now);
        if let Some(metrics) = newest {
            let sent = agent.post(url).header("Content-Type", otlp::CONTENT_TYPE).send(&otlp::request(&metrics)[..]);
            if let (Err(why), false) = (&sent, has_complained) {
                eprintln!(
                    "straingauge: metrics cannot be sent to {url}: {why}; measuring continues, and sending is \
                    retried"
                );
                has_complained = true;
            }
        }
        if is_closed {
            return;
        }
        let held = lock(&desk.0);
        drop(desk.1.wait_timeout_while(held, INTERVAL, |desk| !desk.is_closed));
    }
}
