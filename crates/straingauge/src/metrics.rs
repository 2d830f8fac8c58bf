//! Metrics for other programs while a command runs: where they go, for `watch`, `load` and `find`.

mod exporter;
mod otlp;

use crate::cli::{MetricsOptions, MetricsPlace};
use crate::failure::wrong_usage;
use crate::measured::Measured;
use crate::url::Target;
use anyhow::Result;
use exporter::Exporter;
use otlp::Otlp;
use record::LoadPlan;
use record::time::unix_ms;
use report::metrics::Metrics;
use report::metrics::client::{Client, Live};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Where metrics go.
#[derive(Default)]
pub struct Outlets {
    exporter: Option<Exporter>,
    otlp: Option<Otlp>,
}

impl Outlets {
    /// Those of the options. A place that cannot be had is refused here, before anything is measured.
    pub fn open(options: &MetricsOptions) -> Result<Outlets> {
        let mut outlets = Outlets::default();
        for place in &options.metrics {
            let is_second = match place {
                MetricsPlace::Served(address) => outlets.exporter.replace(Exporter::bind(*address)?).is_some(),
                MetricsPlace::Sent(collector) => outlets.otlp.replace(Otlp::new(collector)?).is_some(),
            };
            if is_second {
                return Err(wrong_usage("--metrics takes one address and one collector: leave the others out"));
            }
        }
        Ok(outlets)
    }

    /// Begins to answer and to send: privileges belong to threads, so this is called when they are given up.
    pub fn serve(&mut self) -> Result<()> {
        self.exporter.as_mut().map_or(Ok(()), Exporter::serve)?;
        self.otlp.as_mut().map_or(Ok(()), Otlp::serve)
    }

    /// Replaces what is served; metrics are made only where they go somewhere.
    pub fn publish(&self, metrics: impl FnOnce() -> Metrics) {
        if self.exporter.is_none() && self.otlp.is_none() {
            return;
        }
        let metrics = Arc::new(metrics());
        if let Some(exporter) = &self.exporter {
            exporter.publish(Arc::clone(&metrics));
        }
        if let Some(otlp) = &self.otlp {
            otlp.publish(metrics);
        }
    }
}

fn unix_ns() -> u64 {
    unix_ms().saturating_mul(1_000_000)
}

/// The metrics of a command's loads, one after another.
#[derive(Clone)]
pub struct Loads(Rc<RefCell<(Client, Outlets)>>);

impl Loads {
    /// Of a command with these options, which sends to this server; `None` if metrics go nowhere.
    pub fn open(options: &MetricsOptions, server: &Target) -> Result<Option<Loads>> {
        let mut outlets = Outlets::open(options)?;
        outlets.serve()?;
        let loads = Loads(Rc::new(RefCell::new((Client::new(&server.name, server.port, unix_ns()), outlets))));
        loads.change(|_| ());
        Ok((!options.metrics.is_empty()).then_some(loads))
    }

    /// A load begins.
    pub fn begins(&self, plan: &LoadPlan) {
        self.change(|client| client.begins(plan));
    }

    /// It goes on.
    pub fn goes_on(&self, now: &load::Progress) {
        let load::Progress { connected, completed, failed, throughput_per_sec, .. } = *now;
        self.change(|client| client.goes_on(Live { connected, completed, failed, throughput_per_sec }));
    }

    /// It is over, or has failed.
    pub fn ends(&self, measured: Option<&Measured>) {
        self.change(|client| client.ends(measured.map(|one| (&one.point, &one.result.counts.times.response))));
    }

    fn change(&self, change: impl FnOnce(&mut Client)) {
        let (client, outlets) = &mut *self.0.borrow_mut();
        change(client);
        outlets.publish(|| client.metrics(unix_ns()));
    }
}
