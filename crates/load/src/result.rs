//! The result of a load, and its figures by name.

use crate::TlsTally;
use crate::cost::EngineCost;
use record::figure::{Figure, Figures, Origin};
use record::{Doubt, Latency, LoadCounts, LoadPlan, Pace, names};
use serde::{Deserialize, Serialize};

/// The measured window of one load. A worker sends it as JSON, without results by class, bandwidths and handshakes,
/// which are not split over machines.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadResult {
    /// When the window began, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Length of the window; shorter than planned if interrupted, 0 if it was never reached.
    pub window_ns: u64,
    /// Load before the window.
    pub warmup_ns: u64,
    /// Counts and times.
    #[serde(flatten)]
    pub counts: LoadCounts,
    /// Complete responses since the load began, warm-up and last answers included; `None` if other machines sent it.
    #[serde(skip)]
    pub answered_in_all: Option<u64>,
    /// The course of the window, as CSV with a header line.
    pub series_csv: String,
    /// The engine's own cost.
    pub engine: EngineCost,
    /// An example of each kind of failure, in words; at most eight.
    pub first_errors: Vec<String>,
    /// The rate that each connection of a paced client received in the window, bits per second; empty for other
    /// clients.
    #[serde(skip)]
    pub bits_per_sec: Vec<f64>,
    /// TLS handshakes; absent without TLS.
    #[serde(skip)]
    pub tls: Option<TlsTally>,
    /// Why the client's kernel would not say when responses came in; `None` also where other machines sent the load.
    #[serde(skip)]
    pub no_arrivals: Option<String>,
    /// Whether the caller stopped the run early.
    pub interrupted: bool,
    /// Results by class of request, and of a replay.
    #[serde(skip)]
    pub workload: record::WorkloadResult,
    /// Reasons not to trust the figures.
    pub doubts: Vec<Doubt>,
}

impl LoadResult {
    /// The window's length in seconds.
    pub fn window_s(&self) -> f64 {
        self.window_ns as f64 / 1e9
    }

    /// The share of the window in which arrivals were dated.
    pub(crate) fn dated_ratio(&self) -> f64 {
        self.counts.dated_ns as f64 / (self.engine.threads.max(1) as f64 * self.window_ns as f64)
    }

    /// The histograms by name, as they are written to an `.hlog`.
    pub fn latencies(&self) -> Vec<(&str, &Latency)> {
        let mut all: Vec<_> = self.counts.times.tagged().into_iter().filter(|(tag, _)| *tag != "own-lag").collect();
        all.extend(self.tls.iter().map(|tls| ("tls-handshake", &tls.times)));
        all
    }

    /// Every figure of the client's side, by the names in [`record::names`].
    pub fn figures(&self, plan: &LoadPlan) -> Figures {
        let mut figures = Figures::default();
        self.rates(plan, &mut figures);
        let times = &self.counts.times;
        for (name, latency, quantile) in [
            (names::RESPONSE_P50, &times.response, 0.5),
            (names::RESPONSE_P90, &times.response, 0.9),
            (names::RESPONSE_P99, &times.response, 0.99),
            (names::RESPONSE_P999, &times.response, 0.999),
            (names::SERVICE_P50, &times.service, 0.5),
            (names::SERVICE_P99, &times.service, 0.99),
            (names::FIRST_BYTE_P50, &times.first_byte, 0.5),
            (names::FIRST_BYTE_P99, &times.first_byte, 0.99),
            (names::CONNECT_P50, &times.connect, 0.5),
            (names::CONNECT_P99, &times.connect, 0.99),
        ] {
            figures.set(name, quantile_us(latency, quantile));
        }
        figures.set(names::RESPONSE_MEAN, timed_us(times.response.mean_ns(), &times.response));
        figures.set(names::RESPONSE_MAX, max_us(&times.response));
        figures.set(names::SERVICE_MAX, max_us(&times.service));
        figures.set(
            names::SILENT,
            match self.counts.outcomes.connections_used {
                0 => Figure::not_measured("connections", "no connection had a request in the window"),
                used => {
                    Figure::new(self.counts.outcomes.connections_silent as f64, "connections", used, Origin::Counted)
                }
            },
        );
        let lag = [
            (names::LAG_P50, quantile_us(&self.counts.times.lag, 0.5)),
            (names::LAG_P99, quantile_us(&self.counts.times.lag, 0.99)),
            (names::LAG_MAX, max_us(&self.counts.times.lag)),
            (names::CONNECTION_WAIT_P99, quantile_us(&self.counts.times.connection_wait, 0.99)),
        ];
        let is_closed = plan.pace == Pace::Closed;
        for (name, figure) in lag {
            let none = || Figure::not_measured("us", "a closed loop has no schedule");
            figures.set(name, if is_closed { none() } else { figure });
        }
        self.reaping(plan, &mut figures);
        self.costs(&mut figures);
        self.bandwidths(plan, &mut figures);
        self.handshakes(&mut figures);
        if self.tls.is_some() {
            let why = "TLS sessions keep buffers that are not counted";
            figures.set(names::CLIENT_MEMORY, Figure::not_measured("bytes", why));
        }
        figures
    }

    /// The client's own part of response times, from its sample.
    fn reaping(&self, plan: &LoadPlan, figures: &mut Figures) {
        let times = &self.counts.times;
        let why = if plan.clients.pace_bytes_per_sec().is_some() {
            "the clients leave responses unread on purpose"
        } else if let Some(why) = &self.no_arrivals {
            why
        } else if self.counts.arrivals_unknown > 0 {
            "the kernel did not say when the sampled responses came in"
        } else {
            "no response came in while arrivals were dated"
        };
        // The threads share their bursts.
        match self.counts.dated_times.div_ceil(self.engine.threads.max(1) as u64) {
            0 => figures.not_measured(names::REAP_DATED, why),
            bursts => figures.measured(names::REAP_DATED, self.dated_ratio(), bursts, Origin::Timed),
        }
        for (name, latency, quantile) in [
            (names::REAP_P50, &times.reap, 0.5),
            (names::REAP_P99, &times.reap, 0.99),
            (names::REAP_MAX, &times.reap, 1.0),
            (names::SAMPLED_P50, &times.sampled, 0.5),
            (names::SAMPLED_P99, &times.sampled, 0.99),
            (names::ARRIVED_P50, &times.arrived, 0.5),
            (names::ARRIVED_P99, &times.arrived, 0.99),
        ] {
            let us = latency.quantile_ns(quantile).map(|nanos| nanos as f64 / 1e3);
            match us {
                Some(us) => figures.measured(name, us, latency.len(), Origin::Sampled),
                None => figures.not_measured(name, why),
            }
        }
    }

    fn bandwidths(&self, plan: &LoadPlan, figures: &mut Figures) {
        let n = self.bits_per_sec.len();
        if n == 0 {
            return;
        }
        let mut sorted = self.bits_per_sec.clone();
        sorted.sort_by(f64::total_cmp);
        figures.set(names::CONNECTION_BITS, Figure::new(sorted[n / 2], "bit/s", n as u64, Origin::Counted));
        if let Some(bandwidth) = plan.clients.bandwidth {
            let conforming = sorted.iter().filter(|bits| **bits >= bandwidth.demanded_bits_per_sec).count();
            let ratio = conforming as f64 / n as f64;
            figures.set(names::CONFORMING, Figure::new(ratio, "ratio", n as u64, Origin::Counted));
        }
    }

    fn handshakes(&self, figures: &mut Figures) {
        let Some(tls) = &self.tls else { return };
        let (seconds, all) = (self.window_s(), tls.times.len());
        let count = tls.completed_in_window;
        figures.set(names::TLS_HANDSHAKES, Figure::new(count as f64 / seconds, "1/s", count, Origin::Counted));
        figures.set(names::TLS_HANDSHAKE_P50, quantile_us(&tls.times, 0.5));
        figures.set(names::TLS_HANDSHAKE_P99, quantile_us(&tls.times, 0.99));
        figures.set(names::TLS_RESUMED, Figure::new(tls.resumed as f64 / all as f64, "ratio", all, Origin::Counted));
    }

    fn rates(&self, plan: &LoadPlan, figures: &mut Figures) {
        let seconds = self.window_s();
        let per_sec = |count: u64, unit: &str| Figure::new(count as f64 / seconds, unit, count, Origin::Counted);
        figures.set(names::THROUGHPUT, per_sec(self.counts.completed_in_window, "1/s"));
        figures.set(names::GOODPUT, per_sec(self.counts.ok_in_window, "1/s"));
        figures.set(
            names::OFFERED,
            match plan.pace {
                // The schedule's actual rate, not the planned one: a Poisson schedule varies.
                Pace::Open { .. } => per_sec(self.counts.outcomes.sent, "1/s"),
                Pace::Closed => Figure::not_measured("1/s", "a closed loop offers what the server takes"),
            },
        );
        figures.set(names::RECEIVED, per_sec(self.counts.received_in_window_bytes, "bytes/s"));
        let responses = self.counts.outcomes.completed();
        let bytes = |count: u64, n: u64| Figure::new(count as f64, "bytes", n, Origin::Counted);
        figures.set(names::BODY_BYTES, bytes(self.counts.body_bytes, responses));
        figures.set(names::RECEIVED_BYTES, bytes(self.counts.received_bytes, responses));
        figures.set(names::SENT_BYTES, bytes(self.counts.sent_bytes, self.counts.outcomes.sent));
    }

    fn costs(&self, figures: &mut Figures) {
        let done = self.counts.completed_in_window;
        let cpu_us = (self.engine.cpu_user_ns + self.engine.cpu_system_ns) as f64 / 1e3;
        figures.set(names::CLIENT_CPU, Figure::new(cpu_us / done as f64, "us", done, Origin::Timed));
        figures.set(
            names::CLIENT_UTILISATION,
            if self.window_ns == 0 {
                Figure::not_measured("ratio", "the run ended before its window began")
            } else {
                Figure::new(self.engine.busiest_thread_ratio, "ratio", self.engine.threads as u64, Origin::Timed)
            },
        );
        figures.set(
            names::CLIENT_MEMORY,
            Figure::new(
                self.engine.memory_bytes_per_connection,
                "bytes",
                self.counts.outcomes.connects,
                Origin::Counted,
            ),
        );
    }
}

fn timed_us(nanos: Option<f64>, latency: &Latency) -> Figure {
    match nanos {
        Some(nanos) => Figure::new(nanos / 1e3, "us", latency.len(), Origin::Timed),
        None => Figure::not_measured("us", "nothing completed"),
    }
}

fn quantile_us(latency: &Latency, quantile: f64) -> Figure {
    timed_us(latency.quantile_ns(quantile).map(|nanos| nanos as f64), latency)
}

fn max_us(latency: &Latency) -> Figure {
    timed_us(latency.max_ns().map(|nanos| nanos as f64), latency)
}
