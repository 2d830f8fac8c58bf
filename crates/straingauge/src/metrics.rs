//! Metrics of `watch`, `load` and `find` for other programs, and their destinations.

pub mod exporter;
mod otlp;

use crate::cli::{MetricsOptions, MetricsPlace};
use crate::failure::refuse_if;
use crate::measured::MeasuredPoint;
use crate::url::Target;
use anyhow::Result;
use exporter::Exporter;
use otlp::Otlp;
use record::LoadPlan;
use record::time::unix_ms;
use report::metrics::Metrics;
use report::metrics::client::{Client, LiveCounts};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Default)]
pub struct Outlets {
    exporter: Option<Exporter>,
    otlp: Option<Otlp>,
}

impl Outlets {
    /// Opens the destinations of the options. An unusable one is refused here, before measuring.
    pub fn open(options: &MetricsOptions) -> Result<Outlets> {
        let mut outlets = Outlets::default();
        for place in &options.metrics {
            let is_second = match place {
                MetricsPlace::Served(address) => outlets.exporter.replace(Exporter::bind(*address)?).is_some(),
                MetricsPlace::Sent(collector) => outlets.otlp.replace(Otlp::new(collector)?).is_some(),
            };
            refuse_if(is_second, "--metrics takes at most one address and one collector")?;
        }
        Ok(outlets)
    }

    /// Starts serving and sending. Called after privileges are dropped, because they belong to threads.
    pub fn serve(&mut self) -> Result<()> {
        self.exporter.as_mut().map_or(Ok(()), Exporter::serve)?;
        self.otlp.as_mut().map_or(Ok(()), Otlp::serve)
    }

    /// Replaces the published metrics; they are made only if there is a destination.
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
    /// The metrics of loads with these options to this server; `None` without a destination.
    pub fn open(options: &MetricsOptions, server: &Target) -> Result<Option<Loads>> {
        let mut outlets = Outlets::open(options)?;
        outlets.serve()?;
        let loads = Loads(Rc::new(RefCell::new((Client::new(&server.name, server.port, unix_ns()), outlets))));
        loads.change(|_| ());
        Ok((!options.metrics.is_empty()).then_some(loads))
    }

    pub fn begins(&self, plan: &LoadPlan) {
        self.change(|client| client.begins(plan));
    }

    pub fn update(&self, now: &load::LoadProgress) {
        let load::LoadProgress { connected, completed, failed, throughput_per_sec, .. } = *now;
        self.change(|client| client.update(LiveCounts { connected, completed, failed, throughput_per_sec }));
    }

    /// Publishes the end of a load, or its failure (`None`).
    pub fn ends(&self, measured: Option<&MeasuredPoint>) {
        self.change(|client| client.ends(measured.map(|one| (&one.point, &one.result.counts.times.response))));
    }

    fn change(&self, change: impl FnOnce(&mut Client)) {
        let (client, outlets) = &mut *self.0.borrow_mut();
        change(client);
        outlets.publish(|| client.metrics(unix_ns()));
    }
}
