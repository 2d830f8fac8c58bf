use crate::TlsTally;
use crate::classes::{self, ClassCounts};
use crate::cost::EngineCost;
use record::figure::{Figures, Origin};
use record::workload::ReplayResult;
use record::{Doubt, Latency, LoadCounts, LoadPlan, Pace, WorkloadResult, names};
use serde::{Deserialize, Serialize};

/// The result of one load: its measured window. A worker sends it as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadResult {
    /// When the window began, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Length of the window. Shorter than planned if interrupted, 0 if the load ended before it.
    pub window_ns: u64,
    /// Duration of the warm-up.
    pub warmup_ns: u64,
    /// Counts and times.
    #[serde(flatten)]
    pub counts: LoadCounts,
    /// Complete responses since the load began, including those of the warm-up and after the window. `None` if other
    /// machines sent the load.
    #[serde(skip)]
    pub answered_in_all: Option<u64>,
    /// Time series of the window, as CSV with a header line.
    pub series_csv: String,
    /// The longest time in the window in which requests were in flight, or had timed out, and no response came. `None`
    /// if there was none, or if other machines sent the load: their clocks cannot show whether all waited at once.
    #[serde(skip)]
    pub stall_ns: Option<u64>,
    /// The longest time in the window in which this process did not run; 0 if other machines sent the load.
    #[serde(skip)]
    pub stood_ns: u64,
    /// The engine's own cost.
    pub engine: EngineCost,
    /// An example of each kind of failure, in words; at most eight.
    pub first_errors: Vec<String>,
    /// The rate at which each connection of a paced client received in the window, whole bits per second; empty for
    /// other clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bits_per_sec: Vec<f64>,
    /// TLS handshakes; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsTally>,
    /// Why the client's kernel does not report when responses arrived; `None` also if other machines sent the load.
    #[serde(skip)]
    pub no_arrivals: Option<String>,
    /// Whether the caller stopped the run early.
    pub interrupted: bool,
    /// Counts by class of request, in the order of the plan's classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassCounts>,
    /// Result of replaying a log; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayResult>,
    /// Reasons to doubt the figures.
    pub doubts: Vec<Doubt>,
}

impl LoadResult {
    /// The window's length in seconds.
    pub fn window_s(&self) -> f64 {
        self.window_ns as f64 / 1e9
    }

    pub(crate) fn dated_ratio(&self) -> f64 {
        self.counts.dated_ns as f64 / (self.engine.threads.max(1) as f64 * self.window_ns as f64)
    }

    /// The results of the plan's workload.
    pub fn workload(&self, plan: &LoadPlan) -> WorkloadResult {
        WorkloadResult { classes: classes::results(plan, &self.classes), replay: self.replay.clone() }
    }

    /// The histograms by name, as they are written to an `.hlog`.
    pub fn latencies(&self) -> Vec<(&str, &Latency)> {
        let mut all: Vec<_> = self.counts.times.tagged().into_iter().filter(|(tag, _)| *tag != "own-lag").collect();
        all.extend(self.tls.iter().map(|tls| ("tls-handshake", &tls.times)));
        all
    }

    /// All figures of the client's side, by the names in [`record::names`].
    pub fn figures(&self, plan: &LoadPlan) -> Figures {
        let mut figures = Figures::default();
        self.rates(plan, &mut figures);
        let times = &self.counts.times;
        for (name, latency, quantile) in [
            (names::SERVICE_P50, &times.service, 0.5),
            (names::SERVICE_P99, &times.service, 0.99),
            (names::FIRST_BYTE_P50, &times.first_byte, 0.5),
            (names::FIRST_BYTE_P99, &times.first_byte, 0.99),
            (names::CONNECT_P50, &times.connect, 0.5),
            (names::CONNECT_P99, &times.connect, 0.99),
        ] {
            timed(&mut figures, name, latency.quantile_ns(quantile), latency);
        }
        if plan.clients.times_parts {
            let whole = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64);
            for (name, nanos) in [
                (names::PART_GAP_MEAN, times.part_gap.mean_ns()),
                (names::PART_GAP_P50, whole(times.part_gap.quantile_ns(0.5))),
                (names::PART_GAP_P99, whole(times.part_gap.quantile_ns(0.99))),
                (names::PART_GAP_MAX, whole(times.part_gap.max_ns())),
            ] {
                let nanos_us = nanos.map(|nanos| nanos / 1e3);
                let why_not = "no response came in several parts";
                figures.found(name, nanos_us, (times.part_gap.len(), Origin::Timed), why_not);
            }
        }
        response_times(&mut figures, &times.response);
        timed(&mut figures, names::SERVICE_MAX, times.service.max_ns(), &times.service);
        let stall_us = self.stall_ns.map(|nanos| nanos as f64 / 1e3);
        let responses = self.counts.completed_in_window;
        let why_no_stall = if responses == 0 { NOTHING } else { "clients on other machines sent the load" };
        figures.found(names::STALL_MAX, stall_us, (responses, Origin::Timed), why_no_stall);
        let outcomes = &self.counts.outcomes;
        match outcomes.connections_used {
            0 => figures.not_measured(names::SILENT, "no connection had a request in the window"),
            used => figures.measured(names::SILENT, outcomes.connections_silent as f64, used, Origin::Counted),
        }
        for (name, nanos, latency) in [
            (names::LAG_P50, times.lag.quantile_ns(0.5), &times.lag),
            (names::LAG_P99, times.lag.quantile_ns(0.99), &times.lag),
            (names::LAG_MAX, times.lag.max_ns(), &times.lag),
            (names::CONNECTION_WAIT_P99, times.connection_wait.quantile_ns(0.99), &times.connection_wait),
        ] {
            match plan.pace {
                Pace::Closed => figures.not_measured(name, "a closed loop has no schedule"),
                Pace::Open { .. } => timed(&mut figures, name, nanos, latency),
            }
        }
        for (name, quantile) in names::CENSORED {
            if let Some(figure) = figures.0.get_mut(*name) {
                figure.at_least = figure.value.is_some() && outcomes.is_lower_bound(*quantile);
            }
        }
        self.reaping(plan, &mut figures);
        self.costs(&mut figures);
        self.bandwidths(plan, &mut figures);
        self.handshakes(&mut figures);
        if self.tls.is_some() {
            figures.not_measured(names::CLIENT_MEMORY, "TLS sessions keep buffers that are not counted");
        }
        figures
    }

    fn reaping(&self, plan: &LoadPlan, figures: &mut Figures) {
        let times = &self.counts.times;
        let why = if plan.clients.pace_bytes_per_sec().is_some() {
            "the clients leave responses unread on purpose"
        } else if let Some(why) = &self.no_arrivals {
            why
        } else if self.counts.arrivals_unknown > 0 {
            "the kernel did not report when the sampled responses arrived"
        } else {
            "no response came while arrivals were recorded"
        };
        // All threads record arrivals at the same time.
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
            figures.found(name, us, (latency.len(), Origin::Sampled), why);
        }
    }

    fn bandwidths(&self, plan: &LoadPlan, figures: &mut Figures) {
        let n = self.bits_per_sec.len();
        if n == 0 {
            return;
        }
        let mut sorted = self.bits_per_sec.clone();
        sorted.sort_by(f64::total_cmp);
        figures.measured(names::CONNECTION_BITS, sorted[n / 2], n as u64, Origin::Counted);
        if let Some(bandwidth) = plan.clients.bandwidth {
            let conforming = sorted.iter().filter(|bits| **bits >= bandwidth.demanded_bits_per_sec).count();
            let ratio = conforming as f64 / n as f64;
            figures.measured(names::CONFORMING, ratio, n as u64, Origin::Counted);
        }
    }

    fn handshakes(&self, figures: &mut Figures) {
        let Some(tls) = &self.tls else { return };
        let (seconds, all) = (self.window_s(), tls.times.len());
        let count = tls.completed_in_window;
        figures.measured(names::TLS_HANDSHAKES, count as f64 / seconds, count, Origin::Counted);
        timed(figures, names::TLS_HANDSHAKE_P50, tls.times.quantile_ns(0.5), &tls.times);
        timed(figures, names::TLS_HANDSHAKE_P99, tls.times.quantile_ns(0.99), &tls.times);
        figures.measured(names::TLS_RESUMED, tls.resumed as f64 / all as f64, all, Origin::Counted);
    }

    fn rates(&self, plan: &LoadPlan, figures: &mut Figures) {
        let (seconds, counts) = (self.window_s(), &self.counts);
        let (sent, responses) = (counts.outcomes.sent, counts.outcomes.completed());
        for (name, count) in [
            (names::THROUGHPUT, counts.completed_in_window),
            (names::GOODPUT, counts.ok_in_window),
            (names::RECEIVED, counts.received_in_window_bytes),
        ] {
            figures.measured(name, count as f64 / seconds, count, Origin::Counted);
        }
        match plan.pace {
            // A Poisson schedule varies, so this is its actual rate, not the planned one.
            Pace::Open { .. } => figures.measured(names::OFFERED, sent as f64 / seconds, sent, Origin::Counted),
            Pace::Closed => figures.not_measured(names::OFFERED, "a closed loop offers only what the server answers"),
        }
        for (name, bytes, n) in [
            (names::BODY_BYTES, counts.body_bytes, responses),
            (names::RECEIVED_BYTES, counts.received_bytes, responses),
            (names::SENT_BYTES, counts.sent_bytes, sent),
        ] {
            figures.measured(name, bytes as f64, n, Origin::Counted);
        }
    }

    fn costs(&self, figures: &mut Figures) {
        let (done, engine) = (self.counts.completed_in_window, &self.engine);
        let cpu_us = engine.cpu_ns as f64 / 1e3;
        figures.measured(names::CLIENT_CPU, cpu_us / done as f64, done, Origin::Timed);
        let busy = (self.window_ns > 0).then_some(engine.busiest_thread_ratio);
        let threads = (engine.threads as u64, Origin::Timed);
        figures.found(names::CLIENT_UTILISATION, busy, threads, "the run ended before its window began");
        let each = engine.memory_bytes_per_connection;
        figures.measured(names::CLIENT_MEMORY, each, self.counts.outcomes.connects, Origin::Counted);
    }
}

const NOTHING: &str = "nothing completed";

/// Adds the figures of response times.
pub fn response_times(figures: &mut Figures, times: &Latency) {
    let mean_us = times.mean_ns().map(|nanos| nanos / 1e3);
    figures.found(names::RESPONSE_MEAN, mean_us, (times.len(), Origin::Timed), NOTHING);
    for (name, nanos) in [
        (names::RESPONSE_P50, times.quantile_ns(0.5)),
        (names::RESPONSE_P90, times.quantile_ns(0.9)),
        (names::RESPONSE_P95, times.quantile_ns(0.95)),
        (names::RESPONSE_P99, times.quantile_ns(0.99)),
        (names::RESPONSE_P999, times.quantile_ns(0.999)),
        (names::RESPONSE_MAX, times.max_ns()),
    ] {
        timed(figures, name, nanos, times);
    }
}

fn timed(figures: &mut Figures, name: &str, nanos: Option<u64>, latency: &Latency) {
    figures.found(name, nanos.map(|nanos| nanos as f64 / 1e3), (latency.len(), Origin::Timed), NOTHING);
}
