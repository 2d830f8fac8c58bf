//! Synthetic servers, with throughput, cost and latency by formulas, noise and drift; and a driver that lets the
//! planners sweep them.

use analyze::sweep::{ConnectionSweep, Load, Planner, RateSearch, SweepStep, Trial};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Arrival, Criteria, DoubtKind, Figure, Origin, Pace, Point, Sweep, names};

/// A server with one CPU: a queue before it, a think time (the path) after it, and a cost that grows with
/// connections.
#[derive(Debug, Clone)]
pub struct Server {
    /// CPU time of a request with few connections, seconds.
    pub demand: f64,
    /// Time of a request outside the CPU, seconds.
    pub path: f64,
    /// Number of connections at which the cost has doubled (infinite = never).
    pub doubles_at: f64,
    /// For a pool: each connection beyond the number of workers increases the cost of a request by this share.
    pub growth: f64,
    /// Relative scatter of a full-length point.
    pub noise: f64,
    /// Largest relative drift between repeats.
    pub drift: f64,
    /// Connections beyond this number are refused.
    pub refuses_beyond: f64,
    /// The client's own limit, requests per second.
    pub client_limit: f64,
    /// Maximum requests per second for a reason other than the CPU.
    pub hidden_limit: f64,
    /// Requests served at once, each by a worker that sleeps for the demand; 1: a queue before one CPU.
    pub workers: f64,
    /// Share of the points that other work disturbs: they answer 10 to 60 % less, and have a doubt.
    pub disturbed: f64,
    /// Metastable failure: the connections that bring the server down, and the lower number with which it recovers.
    pub metastable: Option<(f64, f64)>,
    /// For this long after its start, requests take over 100 ms.
    pub cold_s: f64,
    /// Each point slows the server down by this share.
    pub slows: f64,
    /// Whether service times are exponential, so that a window's count varies like that of a renewal process.
    pub is_exponential: bool,
    /// Whether the number of requests in an open-loop window varies like that of a Poisson schedule.
    pub is_poisson: bool,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            demand: 12e-6,
            path: 30e-6,
            doubles_at: f64::INFINITY,
            growth: 0.0,
            noise: 0.03,
            drift: 0.2,
            refuses_beyond: f64::INFINITY,
            client_limit: f64::INFINITY,
            hidden_limit: f64::INFINITY,
            workers: 1.0,
            disturbed: 0.0,
            metastable: None,
            cold_s: 0.0,
            slows: 0.0,
            is_exponential: false,
            is_poisson: false,
        }
    }
}

impl Server {
    /// A pool of sleeping workers; the path is short in comparison.
    pub fn pool(workers: f64, demand: f64) -> Server {
        Server { demand, path: demand / 100.0, workers, ..Server::default() }
    }

    fn demand_at(&self, connections: f64) -> f64 {
        self.demand * (1.0 + connections / self.doubles_at + self.growth * (connections - self.workers).max(0.0))
    }

    /// Closed-loop throughput by Schweitzer's approximate mean value analysis, for any real number of connections.
    pub fn throughput(&self, connections: f64) -> f64 {
        let demand = self.demand_at(connections);
        if self.workers > 1.0 {
            return (connections / (demand + self.path)).min(self.workers / demand).min(self.hidden_limit);
        }
        let mut queue = connections / 2.0;
        let mut rate = 0.0;
        for _ in 0..200 {
            let response = demand * (1.0 + queue * (connections - 1.0).max(0.0) / connections);
            rate = connections / (response + self.path);
            queue = rate * response;
        }
        rate.min(self.hidden_limit)
    }

    /// The knee by operational analysis: the number of connections that keep the bottleneck busy if none waits for
    /// another.
    pub fn true_yield(&self) -> f64 {
        self.workers * (self.demand + self.path) / self.demand
    }

    pub fn capacity(&self) -> f64 {
        (self.workers / self.demand).min(self.hidden_limit)
    }
}

pub struct Bench {
    pub server: Server,
    random: ChaCha8Rng,
    drifts: Vec<f64>,
    pub points: Vec<Point>,
    pub elapsed_ns: u64,
    /// Whether a metastable server is down.
    is_down: bool,
}

impl Bench {
    pub fn new(server: Server, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let drift = server.drift.max(1e-9);
        let drifts = (0..200).map(|_| 1.0 + random.random_range(-drift..drift)).collect();
        Bench { server, random, drifts, points: Vec::new(), elapsed_ns: 0, is_down: false }
    }

    /// The share of the server's speed that other work leaves for the next point.
    fn left_over(&mut self) -> f64 {
        let is_disturbed = self.server.disturbed > 0.0 && self.random.random_range(0.0..1.0) < self.server.disturbed;
        if is_disturbed { self.random.random_range(0.4..0.9) } else { 1.0 }
    }

    fn noisy(&mut self, value: f64, duration_ns: u64) -> f64 {
        let scatter = self.server.noise * (1e9 / duration_ns as f64).sqrt();
        value * (scatter * self.normal()).exp()
    }

    /// A sum of uniform numbers: nearly normal and bounded.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random_range(0.0..1.0)).sum::<f64>() - 6.0
    }

    fn push(&mut self, sweep: Sweep, repeat: u32, connections: u64, pace: Pace, duration_ns: u64) -> &mut Point {
        self.points.push(Point {
            index: self.points.len() as u32,
            started_unix_ms: 1_763_757_412_000 + self.elapsed_ns / 1_000_000,
            warmup_ns: duration_ns / 5,
            duration_ns,
            ..Point::new(sweep, repeat, connections, pace)
        });
        self.elapsed_ns += duration_ns + duration_ns / 5 + 60_000_000;
        self.points.last_mut().unwrap()
    }

    /// Measures a closed-loop point.
    pub fn closed(&mut self, connections: u64, repeat: u32, duration_ns: u64) {
        self.closed_on(Sweep::Connections, connections, repeat, duration_ns);
    }

    fn closed_on(&mut self, sweep: Sweep, connections: u64, repeat: u32, duration_ns: u64) {
        let drift = self.drifts[repeat as usize % 200];
        let load = connections as f64;
        let server = self.server.clone();
        let seconds = duration_ns as f64 / 1e9;
        let mut left = self.left_over();
        if let Some((down, back)) = server.metastable {
            self.is_down = load >= down || (self.is_down && load > back);
        }
        let is_disturbed = left < 1.0;
        left *= (1.0 - server.slows).powi(self.points.len() as i32) * if self.is_down { 0.3 } else { 1.0 };
        let mut rate = self.noisy(server.throughput(load) * drift * left, duration_ns).min(server.client_limit);
        if server.is_exponential {
            rate *= (self.normal() / (rate * seconds).sqrt()).exp();
        }
        let cpu_us = self.noisy(server.demand_at(load) * 1e6 / drift, duration_ns);
        let busy = (rate * cpu_us / 1e6).min(1.0);
        let response_us = load / rate * 1e6;
        let is_cold = (self.elapsed_ns as f64) < server.cold_s * 1e9;
        let p99_us = if is_cold { 120e3 } else { self.noisy(response_us * 2.0, duration_ns) };
        let refused = ((load - server.refuses_beyond) / load).max(0.0);
        let point = self.push(sweep, repeat, connections, Pace::Closed, duration_ns);
        fill(point, rate, seconds, cpu_us, busy, response_us, p99_us);
        if is_disturbed {
            disturb(point);
        }
        point.outcomes.refused = (refused * point.outcomes.sent as f64) as u64;
        point.outcomes.ok = point.outcomes.sent - point.outcomes.refused;
        if rate >= server.client_limit * 0.99 {
            point.figures.set(names::CLIENT_UTILISATION, Figure::new(0.99, "ratio", 10, Origin::Counted));
            point.doubts.push(DoubtKind::ClientSaturated.invalid("the client used 99 % of its CPU", "more CPUs"));
        }
    }

    /// Measures an open-loop point; above the capacity, a backlog grows during the window.
    pub fn open(&mut self, rate: f64, repeat: u32, duration_ns: u64) {
        let drift = self.drifts[repeat as usize % 200];
        let seconds = duration_ns as f64 / 1e9;
        let left = self.left_over();
        let capacity = self.noisy(self.server.capacity() * drift * left, duration_ns);
        let sent = if self.server.is_poisson { rate * (self.normal() / (rate * seconds).sqrt()).exp() } else { rate };
        let load = sent / capacity;
        let cpu_us = self.noisy(self.server.demand * 1e6 / drift, duration_ns);
        let service_us = 1e6 / capacity;
        let (done, p50_us, p99_us) = if load < 1.0 {
            let p99_us = (service_us * 4.6 / (1.0 - load)).min(seconds * 1e6);
            (sent, p99_us / 6.0, p99_us)
        } else {
            // The last request waits for all others in flight.
            let last_us = (load - 1.0) / load * seconds * 1e6;
            (capacity, service_us + last_us / 2.0, service_us + last_us)
        };
        let busy = (done * cpu_us / 1e6).min(1.0);
        let pace = Pace::Open { rate_per_sec: rate, arrival: Arrival::Poisson };
        let point = self.push(Sweep::Rate, repeat, 1024, pace, duration_ns);
        fill(point, done, seconds, cpu_us, busy, p50_us, p99_us);
        if left < 1.0 {
            disturb(point);
        }
        point.outcomes.sent = (sent * seconds) as u64;
        point.outcomes.unfinished = point.outcomes.sent.saturating_sub(point.outcomes.ok);
        point.figures.set(names::OFFERED, Figure::new(rate, "1/s", point.outcomes.sent, Origin::Counted));
    }

    pub fn yardstick(&mut self, repeat: u32) {
        let speed = self.noisy(1e8 * self.drifts[repeat as usize % 200], 1_000_000_000);
        let point = self.push(Sweep::Yardstick, repeat, 16, Pace::Closed, 300_000_000);
        point.figures.set(names::YARDSTICK_CPU, Figure::new(speed, "1/s", 30_000_000, Origin::Timed));
    }

    /// Measures a trial of a planner.
    pub fn measure(&mut self, trial: Trial) {
        match trial.load {
            Load::Connections(connections) => self.closed(connections, trial.repeat, trial.duration_ns),
            Load::Unloading(connections) => {
                self.closed_on(Sweep::Unloading, connections, trial.repeat, trial.duration_ns)
            }
            Load::Rate(rate_per_sec) => self.open(rate_per_sec, trial.repeat, trial.duration_ns),
            other => panic!("{other:?}"),
        }
    }

    /// Runs a planner to its end; returns why it stopped.
    pub fn run(&mut self, planner: &mut dyn Planner) -> String {
        let mut repeat_now = 0;
        for _ in 0..2000 {
            match planner.next(&self.points, self.elapsed_ns) {
                SweepStep::Measure(trial) => {
                    repeat_now = trial.repeat;
                    self.measure(trial);
                }
                SweepStep::Yardstick => self.yardstick(repeat_now),
                SweepStep::Done { reason } => return reason,
                SweepStep::Serve { .. } => panic!("there is one server"),
            }
        }
        panic!("it does not end");
    }

    /// Sweeps over connections; returns why it stopped.
    pub fn sweep_connections(&mut self, plan: &SweepPlan, seed: u64) -> String {
        self.run(&mut ConnectionSweep::new(plan, seed))
    }

    /// Searches over rate; returns why it stopped.
    pub fn search_rate(&mut self, plan: &SweepPlan, hint: Option<f64>, seed: u64) -> String {
        self.run(&mut RateSearch::new(plan, hint, seed))
    }
}

/// Marks a point as disturbed by other work.
pub fn disturb(point: &mut Point) {
    let what = "other work used 0.50 CPUs during the window";
    point.doubts.push(DoubtKind::NoisyNeighbour.warning(what, "stop it"));
}

fn fill(point: &mut Point, rate: f64, seconds: f64, cpu_us: f64, busy: f64, p50_us: f64, p99_us: f64) {
    let n = (rate * seconds).max(1.0) as u64;
    point.outcomes.sent = n;
    point.outcomes.ok = n;
    let mut set = |name, value, unit, origin| point.figures.set(name, Figure::new(value, unit, n, origin));
    set(names::THROUGHPUT, rate, "1/s", Origin::Counted);
    set(names::GOODPUT, rate, "1/s", Origin::Counted);
    set(names::RESPONSE_P50, p50_us, "us", Origin::Timed);
    set(names::RESPONSE_P90, (p50_us * p99_us).sqrt(), "us", Origin::Timed);
    set(names::RESPONSE_P999, p99_us * 1.8, "us", Origin::Timed);
    set(names::RESPONSE_P99, p99_us, "us", Origin::Timed);
    set(names::SERVER_CPU, cpu_us, "us", Origin::Counted);
    set(names::SERVER_CPU_USER, cpu_us * 0.3, "us", Origin::Counted);
    set(names::SERVER_CPU_SYSTEM, cpu_us * 0.7, "us", Origin::Counted);
    set(names::SERVER_SOFTIRQ, cpu_us * 0.15, "us", Origin::Counted);
    set(names::SERVER_CPU_BUSY, busy, "ratio", Origin::Counted);
    set(names::SERVER_BUSIEST_THREAD, busy, "CPUs", Origin::Counted);
    set(names::CLIENT_UTILISATION, 0.5, "ratio", Origin::Counted);
}

pub fn plan(budget_s: u64) -> SweepPlan {
    SweepPlan {
        connections_min: 1,
        connections_max: 4096,
        repeats: 5,
        point_duration_ns: 1_000_000_000,
        warmup_ns: None,
        budget_ns: budget_s * 1_000_000_000,
        open_connections: 1024,
        arrival: Arrival::Poisson,
        criteria: Criteria::default(),
        until_sure_ratio: None,
        unload: false,
        axis: None,
    }
}
