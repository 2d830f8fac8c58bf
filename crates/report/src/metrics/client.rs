//! Metrics of the client while `load` and `find` run: live counts of the current load, and figures and response times
//! of finished points.

use super::MetricKind::{Counter, Gauge, Histogram, UpDown};
use super::{Buckets, Family, MetricValue, Metrics};
use record::{Latency, LoadPlan, Pace, Point, names};

/// Upper ends of the buckets of response times, in seconds: 1, 2.5 and 5 of each power of ten.
const ENDS_S: [f64; 19] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Counts of the current load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveCounts {
    /// Established connections.
    pub connected: u64,
    /// Complete responses in the window.
    pub completed: u64,
    /// Failed requests in the window, including error statuses.
    pub failed: u64,
    /// Recent complete responses per second.
    pub throughput_per_sec: f64,
}

/// State of the client so far.
#[derive(Debug, Clone)]
pub struct Client {
    since_unix_ns: u64,
    server: (String, String),
    asked: Option<(u64, Pace)>,
    live: LiveCounts,
    /// Completed requests of finished loads.
    completed: u64,
    failed: u64,
    points: u64,
    times: Buckets,
    last: Option<Point>,
}

impl Client {
    /// A client without a load on this server yet.
    pub fn new(name: &str, port: u16, unix_ns: u64) -> Client {
        Client {
            since_unix_ns: unix_ns,
            server: (name.into(), port.to_string()),
            asked: None,
            live: LiveCounts::default(),
            completed: 0,
            failed: 0,
            points: 0,
            times: Buckets { bounds: ENDS_S.to_vec(), counts: vec![0; ENDS_S.len() + 1], sum: 0.0 },
            last: None,
        }
    }

    /// Begins a load.
    pub fn begins(&mut self, plan: &LoadPlan) {
        self.asked = Some((plan.connections, plan.pace));
        self.live = LiveCounts::default();
    }

    /// Updates the current load.
    pub fn update(&mut self, live: LiveCounts) {
        let (completed, failed) = (live.completed.max(self.live.completed), live.failed.max(self.live.failed));
        self.live = LiveCounts { completed, failed, ..live };
    }

    /// Ends the current load; a load that failed has no result.
    pub fn ends(&mut self, result: Option<(&Point, &Latency)>) {
        if let Some((point, _)) = result {
            // The last update was before the end of the load.
            let completed = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(0);
            self.update(LiveCounts { completed, failed: point.outcomes.failed(), ..self.live });
        }
        let live = std::mem::take(&mut self.live);
        self.completed = self.completed.saturating_add(live.completed);
        self.failed = self.failed.saturating_add(live.failed);
        self.asked = None;
        let Some((point, response)) = result else { return };
        self.points += 1;
        self.last = Some(point.clone());
        let mut below = 0;
        for (count, end) in self.times.counts.iter_mut().zip(ENDS_S) {
            let at_most = response.count_at_most((end * 1e9).round() as u64);
            *count += at_most - below;
            below = at_most;
        }
        self.times.counts[ENDS_S.len()] += response.len() - below;
        self.times.sum += response.mean_ns().unwrap_or(0.0) * response.len() as f64 / 1e9;
    }

    /// The current metrics.
    pub fn metrics(&self, at_unix_ns: u64) -> Metrics {
        let mut metrics = Metrics {
            since_unix_ns: self.since_unix_ns,
            at_unix_ns,
            labels: vec![("server.address", self.server.0.clone()), ("server.port", self.server.1.clone())],
            families: Vec::new(),
        };
        let help = "Response times from the intended send, over the completed points.";
        let mut times = Family::new(Histogram, "http.client.request.duration", "s", help);
        times.add(&[], MetricValue::Buckets(self.times.clone()));
        metrics.add(times);
        let (live, sum) = (&self.live, |of_points: u64, live: u64| of_points.saturating_add(live) as f64);
        let help = "Established connections.";
        metrics.number(UpDown, "http.client.open_connections", "{connection}", help, live.connected as f64);
        let help = "Complete responses within windows.";
        let responses = sum(self.completed, live.completed);
        metrics.number(Counter, "straingauge.load.responses", "{response}", help, responses);
        let help = "Failed requests within windows, including responses with an error status.";
        metrics.number(Counter, "straingauge.load.failures", "{request}", help, sum(self.failed, live.failed));
        let help = "Recent complete responses per second.";
        metrics.number(Gauge, "straingauge.load.throughput", "{response}/s", help, live.throughput_per_sec);
        let help = "Connections of the running load.";
        let connections = self.asked.map(|(connections, _)| connections as f64);
        metrics.number(Gauge, "straingauge.load.connections", "{connection}", help, connections);
        let help = "Requests per second of the running load, if it is an open loop.";
        let offered = self.asked.and_then(|(_, pace)| match pace {
            Pace::Open { rate_per_sec, .. } => Some(rate_per_sec),
            Pace::Closed => None,
        });
        metrics.number(Gauge, "straingauge.load.offered", "{request}/s", help, offered);
        metrics.number(Counter, "straingauge.load.points", "{point}", "Completed points.", self.points as f64);
        if let Some(point) = &self.last {
            let help = "The figures of the last point; docs/run-directory.md explains their names.";
            let measured =
                point.figures.0.iter().filter_map(|(name, figure)| Some((name, &figure.unit, figure.value?)));
            let family = Family::new(Gauge, "straingauge.figure", "", help);
            metrics.add(measured.fold(family, |family, (name, unit, value)| {
                family.with(&[("name", name.as_str()), ("unit", unit.as_str())], value)
            }));
            let help = "Reasons not to trust the last point.";
            metrics.number(Gauge, "straingauge.doubts", "{doubt}", help, point.doubts.len() as f64);
        }
        metrics
    }
}
