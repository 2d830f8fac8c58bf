//! The server as a closed network of one class: a station with the server's CPUs, and a delay for the path and the
//! client. The demand changes with the load:
//!
//! ```text
//! demand(N, U) = base + wake (1 - U) + growth N + doubling log2(N) + cold_growth C
//! ```
//!
//! - `wake`: a request that finds the CPU idle pays for waking it. If caches and the CPU's clock cool down meanwhile,
//!   it pays `wake / (1 + X cooling)` at the rate X instead (time constant `cooling`, exponential gaps).
//! - `growth`: work that grows with connections (the plastic zone). `doubling`: cache misses on the connections'
//!   state, which grow by steps, one level of the cache after the other.
//! - `background`: work that does not follow the rate (timers, ticks), the intercept of Banga and Mogul's lines. It
//!   makes requests look expensive at low rates and reduces the capacity.
//!
//! The queue is solved by Schweitzer's approximation with the residual service of Pollaczek and Khinchine
//! (`cv_squared` 1 is the exponential case), a quadratic equation for the throughput; several CPUs are modelled as by
//! Seidmann.

use crate::queue::{Queue, general_service};
use crate::regression::minimise;
use crate::usl::{self, Usl};
use serde::Serialize;

record::worded! {
    /// The parameters of a model, simplest first.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Form {
        /// Constant demand at every load, exponential service times.
        #[default]
        Constant = "queue, constant demand",
        /// Constant demand at every load, measured variance of service times.
        Variance = "queue, fitted variance",
        /// Demand that includes the cost of waking an idle CPU.
        Waking = "queue, idle wake-ups",
        /// CPU time that does not depend on the rate of requests, e.g. of other work.
        Background = "queue, background work",
        /// Demand that grows with connections.
        Growing = "queue, growing demand",
        /// Demand that includes the cost of waking an idle CPU and grows with connections.
        WakingGrowing = "queue, wake-ups and growth",
        /// Demand that grows with connections, and CPU time that does not depend on the rate of requests.
        BackgroundGrowing = "queue, background and growth",
        /// Wake-ups, and demand that grows by the same amount with each doubling of the connections.
        WakingDoubling = "queue, wake-ups and doublings",
        /// Demand that grows by the same amount with each doubling of the connections, and CPU time that does not
        /// depend on the rate of requests.
        BackgroundDoubling = "queue, background and doublings",
        /// Wake-ups that cost more the longer the CPU was idle.
        Cooling = "queue, cooling while idle",
        /// Wake-ups that cost more the longer the CPU was idle, and demand that grows with each doubling of the
        /// connections.
        CoolingDoubling = "queue, cooling and doublings",
        /// The Universal Scalability Law, which describes only throughput.
        Usl = "Universal Scalability Law",
    }
}

/// A parameter of a queue in addition to demand and path.
#[derive(Clone, Copy, PartialEq)]
enum Parameter {
    Variance,
    Wake,
    Cooling,
    Growth,
    Doubling,
    Background,
}

impl Form {
    fn more(self) -> &'static [Parameter] {
        use Parameter::*;
        match self {
            Form::Constant | Form::Usl => &[],
            Form::Variance => &[Variance],
            Form::Waking => &[Variance, Wake],
            Form::Background => &[Variance, Background],
            Form::Growing => &[Variance, Growth],
            Form::WakingGrowing => &[Variance, Wake, Growth],
            Form::BackgroundGrowing => &[Variance, Growth, Background],
            Form::WakingDoubling => &[Variance, Wake, Doubling],
            Form::BackgroundDoubling => &[Variance, Doubling, Background],
            Form::Cooling => &[Variance, Wake, Cooling],
            Form::CoolingDoubling => &[Variance, Wake, Cooling, Doubling],
        }
    }

    /// Fitted parameters.
    pub fn parameters(self) -> usize {
        if self == Form::Usl { 3 } else { 2 + self.more().len() }
    }
}

/// A measured load in the models' form.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelPoint {
    /// Connections (closed loop) or offered requests per second (open loop).
    pub load: f64,
    /// Requests in flight on each connection.
    pub in_flight: f64,
    /// Whether the requests on a connection are answered in order.
    pub is_in_order: bool,
    /// Cold connections during the load.
    pub cold: f64,
    /// Good answers per second; may be 0 in the open loop.
    pub throughput_per_sec: f64,
    /// Server CPU time per good answer, seconds.
    pub demand_s: f64,
    /// Number of busy CPUs of the server.
    pub busy_cpus: f64,
    /// User part of the busy CPUs.
    pub user_cpus: Option<f64>,
    /// Kernel part (system and softirq) of the busy CPUs.
    pub kernel_cpus: Option<f64>,
    /// Mean response time, seconds.
    pub mean_s: Option<f64>,
    /// Median response time, seconds.
    pub p50_s: Option<f64>,
    /// 99th percentile of the response time, seconds.
    pub p99_s: Option<f64>,
    /// Threads of the server.
    pub threads: Option<f64>,
    /// Whether a criterion of failure was crossed.
    pub failed: bool,
}

impl ModelPoint {
    /// Time from one request to the next in the same place of a closed loop, seconds (Little's law): the response
    /// time, and the client's time until it sends again (connecting).
    pub fn cycle_s(&self) -> f64 {
        self.load * self.in_flight / self.throughput_per_sec
    }
}

/// A fitted server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Server {
    /// Model that was fitted.
    pub form: Form,
    /// CPU time of a request on a busy CPU with few connections, seconds.
    pub base_s: f64,
    /// Additional CPU time of a request that finds the CPU idle, seconds.
    pub wake_s: f64,
    /// Idle time of the CPU after which a request pays most of `wake_s`, seconds; 0 = any idle time is enough.
    pub cooling_s: f64,
    /// Additional CPU time of a request for each connection, seconds.
    pub growth_s: f64,
    /// Additional CPU time of a request for each doubling of the connections, seconds.
    pub doubling_s: f64,
    /// Additional CPU time of a request for each cold connection, seconds.
    pub cold_growth_s: f64,
    /// CPUs that are busy with other work than requests, at any rate.
    pub background_cpus: f64,
    /// Time of a request outside the server's CPU, seconds.
    pub path_s: f64,
    /// Requests in flight on each connection.
    pub in_flight: f64,
    /// Whether requests on a connection are answered in order, so that a connection uses at most one CPU.
    pub is_in_order: bool,
    /// Squared coefficient of variation of the service time.
    pub cv_squared: f64,
    /// Number of CPUs that work at once.
    pub cpus: f64,
    /// Measured limit of something other than the CPU (threads, a pool, a lock, a rate limit), requests per second;
    /// see [`limit`].
    pub limit_per_sec: Option<f64>,
    /// Parameters of the law, for [`Form::Usl`].
    pub usl: Option<Usl>,
}

/// A server under a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadedServer {
    /// Requests per second.
    pub throughput_per_sec: f64,
    /// CPU time of a request, seconds.
    pub demand_s: f64,
    /// Busy share of the CPUs, at most 1.
    pub utilisation: f64,
}

impl Server {
    /// A closed loop with `connections` (any positive real number) and `cold` idle connections.
    pub fn closed(&self, connections: f64, cold: f64) -> LoadedServer {
        if let Some(law) = self.usl {
            let demand_s = self.base_s;
            // The law does not include CPUs, but they limit every server.
            let most = self.cpus_for(connections) / demand_s;
            let rate = law.throughput(connections).min(most).min(self.limit());
            return LoadedServer {
                throughput_per_sec: rate,
                demand_s,
                utilisation: (rate * demand_s / self.cpus).min(1.0),
            };
        }
        let lasting = self.lasting_s(connections, cold);
        // The share of `wake_s` that a request pays depends on the state and vice versa. It lies between 0 and 1;
        // secants, with bisection as fallback, find it in some six steps.
        let (mut low, mut high, mut paid): (f64, f64, f64) = (0.0, 1.0, 0.5);
        let mut before: Option<(f64, f64)> = None;
        let mut state = LoadedServer { throughput_per_sec: 0.0, demand_s: lasting, utilisation: 0.0 };
        for _ in 0..40 {
            let own_s = lasting + self.wake_s * paid;
            let throughput_per_sec = self.rate(connections, own_s / self.free_ratio());
            let demand_s = own_s + self.background_cpus / throughput_per_sec;
            let utilisation = (throughput_per_sec * demand_s / self.cpus).min(1.0);
            state = LoadedServer { throughput_per_sec, demand_s, utilisation };
            let next = self.paid_ratio(throughput_per_sec, utilisation * self.cpus / self.cpus_for(connections));
            let lacks = next - paid;
            if lacks.abs() < 1e-10 || self.wake_s == 0.0 {
                break;
            }
            if lacks > 0.0 {
                low = paid
            } else {
                high = paid
            }
            let secant = before.map_or(next, |(then, lacked)| paid - lacks * (paid - then) / (lacks - lacked));
            before = Some((paid, lacks));
            // Often a bound itself is the solution: full CPUs pay nothing.
            paid = if (low..=high).contains(&secant) { secant } else { 0.5 * (low + high) };
        }
        state
    }

    /// Like [`Self::closed`], with the time from one request to the next in the same place, seconds (Little's law).
    pub fn cycle(&self, connections: f64, cold: f64) -> (LoadedServer, f64) {
        let state = self.closed(connections, cold);
        (state, connections * self.in_flight / state.throughput_per_sec)
    }

    fn cpus_for(&self, connections: f64) -> f64 {
        cpus_for(self.cpus, connections, self.in_flight, self.is_in_order)
    }

    fn rate(&self, connections: f64, demand_s: f64) -> f64 {
        let (n, cpus) = (connections * self.in_flight, self.cpus_for(connections));
        let queued = demand_s / cpus;
        let path = self.path_s + demand_s * (cpus - 1.0) / cpus;
        let others = ((n - 1.0) / n).max(0.0);
        let square = queued * others * (path + queued * (1.0 - self.cv_squared) / 2.0);
        let linear = path + queued * (1.0 + others * n);
        let root = (linear * linear - 4.0 * square * n).max(0.0).sqrt();
        // The smaller root, in the form that keeps its digits if `square` is near 0.
        let rate = 2.0 * n / (linear + root);
        rate.min(1.0 / queued).min(n / (path + queued)).min(self.limit())
    }

    /// CPU time of a request on a busy CPU, seconds.
    fn lasting_s(&self, connections: f64, cold: f64) -> f64 {
        self.base_s
            + self.growth_s * connections
            + self.doubling_s * connections.max(1.0).log2()
            + self.cold_growth_s * cold
    }

    /// The share of `wake_s` that a request pays.
    fn paid_ratio(&self, rate_per_sec: f64, utilisation: f64) -> f64 {
        if self.cooling_s > 0.0 { 1.0 / (1.0 + rate_per_sec * self.cooling_s) } else { 1.0 - utilisation }
    }

    fn limit(&self) -> f64 {
        self.limit_per_sec.unwrap_or(f64::INFINITY)
    }

    /// Whether this rate uses at least this share of the CPUs or of another limit.
    pub fn is_full(&self, rate_per_sec: f64, busy_cpus: f64, ratio: f64) -> bool {
        busy_cpus >= ratio * self.cpus || rate_per_sec >= ratio * self.limit()
    }

    /// Whether something other than the CPU limits the server.
    pub fn is_limited(&self, cold: f64) -> bool {
        self.limit() < self.cpu_capacity_per_sec(cold)
    }

    /// The highest rate that the server can serve: of its CPUs, or of another measured limit.
    pub fn capacity_per_sec(&self, cold: f64) -> f64 {
        self.cpu_capacity_per_sec(cold).min(self.limit())
    }

    /// The highest rate that the CPUs can serve: full CPUs, or the peak of the closed loop if the cost grows with
    /// connections.
    pub fn cpu_capacity_per_sec(&self, cold: f64) -> f64 {
        if self.is_growing() { self.peak(cold).1 } else { self.full_rate(cold) }
    }

    /// Whether a request costs more with more connections.
    fn is_growing(&self) -> bool {
        self.growth_s > 0.0 || self.doubling_s > 0.0
    }

    /// The rate on full CPUs at the cost of a request with one connection.
    fn full_rate(&self, cold: f64) -> f64 {
        self.cpus * self.free_ratio() / self.lasting_s(1.0, cold)
    }

    /// The connections at which the closed loop is fastest, and its rate there, ignoring limits other than the CPUs.
    fn peak(&self, cold: f64) -> (f64, f64) {
        /// Maximum queue before the CPUs, as a multiple of the connections that keep them busy.
        const QUEUED: f64 = 30.0;
        let cpus_alone = Server { limit_per_sec: None, ..*self };
        let rate = |log: f64| cpus_alone.closed(log.exp(), cold).throughput_per_sec;
        let busy = self.full_rate(cold) * self.path_s + self.cpus;
        let (mut low, mut high) = (0.0, (QUEUED * busy).ln().max(1.0));
        for _ in 0..50 {
            let third = (high - low) / 3.0;
            if rate(low + third) < rate(high - third) { low += third } else { high -= third }
        }
        let log = 0.5 * (low + high);
        (log.exp(), rate(log))
    }

    /// Connections with which the closed loop reaches this rate, at most those of its peak.
    fn busy_connections(&self, rate_per_sec: f64, cold: f64) -> f64 {
        let (peak, most) = self.peak(cold);
        if rate_per_sec >= most {
            return peak;
        }
        let cpus_alone = Server { limit_per_sec: None, ..*self };
        let (mut low, mut high) = (0.0, peak.ln());
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            let reached = cpus_alone.closed(middle.exp(), cold).throughput_per_sec;
            if reached < rate_per_sec { low = middle } else { high = middle }
        }
        high.exp()
    }

    /// The share of the CPUs that remains for requests.
    fn free_ratio(&self) -> f64 {
        (1.0 - self.background_cpus / self.cpus).max(0.01)
    }

    /// The queue in an open loop at this rate; `None` beyond the capacity.
    pub fn open_queue(&self, rate_per_sec: f64, cold: f64) -> Option<Queue> {
        let service_s = self.service_s(rate_per_sec, cold);
        let is_possible = rate_per_sec * service_s < self.cpus && rate_per_sec < self.limit();
        // The number of servers must be whole; a fraction of a CPU slows all of them down in the wait. Service is at
        // full speed.
        let servers = self.cpus.round().max(1.0);
        let slower_s = service_s * servers / self.cpus;
        let queue =
            is_possible.then(|| general_service(rate_per_sec, slower_s, self.cv_squared, servers as u32)).flatten();
        queue.map(|queue| Queue { response_s: queue.wait_s + service_s, ..queue })
    }

    /// Busy share of the CPUs in an open loop at this rate, or at the capacity if the rate is above it.
    pub fn open_utilisation(&self, rate_per_sec: f64, cold: f64) -> f64 {
        let rate = rate_per_sec.min(self.capacity_per_sec(cold));
        (rate * self.service_s(rate, cold) / self.cpus).min(1.0)
    }

    fn service_s(&self, rate_per_sec: f64, cold: f64) -> f64 {
        // Solves demand = lasting + wake (1 - rate demand / cpus) for the demand.
        let connections = if self.is_growing() { self.busy_connections(rate_per_sec, cold) } else { 1.0 };
        let lasting = self.lasting_s(connections, cold);
        let demand = if self.cooling_s > 0.0 {
            lasting + self.wake_s * self.paid_ratio(rate_per_sec, 0.0)
        } else {
            (lasting + self.wake_s) / (1.0 + self.wake_s * rate_per_sec / self.cpus)
        };
        demand / self.free_ratio()
    }

    /// The knee that the sweep over connections would find; `gain` is the criterion of the yield point.
    pub fn yield_connections(&self, gain: f64, cold: f64) -> Option<f64> {
        crate::knee::knee_of(|n| self.closed(n, cold).throughput_per_sec, gain)
    }
}

fn cpus_for(cpus: f64, connections: f64, in_flight: f64, is_in_order: bool) -> f64 {
    if is_in_order && in_flight > 1.0 { cpus.min(connections.max(1.0)) } else { cpus }
}

/// The first x from `low` on for which `crossed` is true, by steps of 3 % and bisection; `None` up to `high`.
pub fn first(low: f64, high: f64, crossed: impl Fn(f64) -> bool) -> Option<f64> {
    let mut before = low;
    if crossed(low) {
        return Some(low);
    }
    loop {
        let next = before * 1.03;
        if next > high {
            return None;
        }
        if crossed(next) {
            let (mut low, mut high) = (before, next);
            for _ in 0..30 {
                let middle = (low * high).sqrt();
                if crossed(middle) { high = middle } else { low = middle }
            }
            return Some(high);
        }
        before = next;
    }
}

/// Penalty per unit of variance above that of exponential service, because loads far below saturation do not
/// determine it.
const VARIANCE_PRIOR: f64 = 0.02;
/// Typical background work in CPUs, the unit of its parameter.
const BACKGROUND_SCALE: f64 = 0.05;
/// Typical number of doublings in a sweep, the unit of its parameter.
const DOUBLINGS: f64 = 10.0;
/// More than this share of the CPUs cannot be background.
const MOST_BACKGROUND: f64 = 0.5;

/// A busy CPU needs at least this share of the lowest measured demand; all of it if the CPU was full then.
const LEAST_SHARE: f64 = 0.25;
/// Penalty per e-fold of a demand below all measured ones, because measurements on idle CPUs hardly determine it.
const BASE_PRIOR: f64 = 0.02;
/// Busy share above which the CPUs may be the server's limit.
pub const FULL: f64 = 0.9;

/// The throughput that does not grow with more connections although CPUs are idle: a limit other than the CPU.
/// Requests wait longer than if all others were ahead of them in the CPU's queue (pessimistic bound of operational
/// analysis: Lazowska and others, 1984, section 5.2). `None` if none was measured.
pub fn limit(levels: &[ModelPoint], cpus: f64) -> Option<f64> {
    /// A wait that exceeds the bound by this factor is not scatter.
    const LONGER: f64 = 1.25;
    const PLATEAU: f64 = 0.9;
    if levels.iter().any(|level| level.busy_cpus >= FULL * cpus) {
        return None;
    }
    let most = levels.iter().map(|level| level.throughput_per_sec).fold(0.0, f64::max);
    let shortest = levels.iter().map(ModelPoint::cycle_s).fold(f64::INFINITY, f64::min);
    let cpus_of = |level: &ModelPoint| cpus_for(cpus, level.load, level.in_flight, level.is_in_order);
    let waits = |level: &&ModelPoint| {
        level.throughput_per_sec >= PLATEAU * most
            && level.cycle_s() > LONGER * (shortest + level.load * level.in_flight * level.demand_s / cpus_of(level))
    };
    crate::median(levels.iter().filter(waits).map(|level| level.throughput_per_sec))
}

/// Fits a form to one reading per level. `None` if there are fewer levels than parameters.
pub fn fit(form: Form, levels: &[ModelPoint], cpus: f64, evaluations: usize) -> Option<Server> {
    let mut loads: Vec<f64> = levels.iter().map(|level| level.load).collect();
    loads.dedup();
    let lowest = levels.iter().map(|level| level.demand_s).fold(f64::INFINITY, f64::min);
    let first = *levels.first()?;
    let server = Server {
        form,
        base_s: lowest,
        in_flight: first.in_flight,
        is_in_order: first.is_in_order,
        cv_squared: 1.0,
        cpus,
        ..Server::default()
    };
    if form == Form::Usl {
        if loads.len() <= form.parameters() {
            return None;
        }
        let points: Vec<(f64, f64)> = levels.iter().map(|level| (level.load, level.throughput_per_sec)).collect();
        return Some(Server { usl: Some(usl::fit(&points)?), ..server });
    }
    // Each level has two numbers, throughput and demand.
    if loads.len() < 2 || 2 * loads.len() < form.parameters() + 1 {
        return None;
    }
    let cheapest = levels.iter().min_by(|a, b| a.demand_s.total_cmp(&b.demand_s))?;
    let least_s = cheapest.demand_s * (LEAST_SHARE + (1.0 - LEAST_SHARE) * (cheapest.busy_cpus / cpus).clamp(0.0, 1.0));
    let highest = loads[loads.len() - 1];
    let path = (first.cycle_s() - first.demand_s).max(0.05 * first.demand_s);
    // Cooling matters at the lowest rate, so its gaps are the unit of the time constant.
    let cooling_scale = 1.0 / first.throughput_per_sec;
    let server = Server { limit_per_sec: limit(levels, cpus), ..server };
    // The parameters after the first two, with their starts.
    let has = |parameter| form.more().contains(&parameter);
    let others = [
        (has(Parameter::Variance), 0.7),
        (has(Parameter::Wake), if has(Parameter::Cooling) { 1.5 } else { 0.5 }),
        (has(Parameter::Cooling), 0.7),
        (has(Parameter::Growth), 0.4),
        (has(Parameter::Doubling), 0.4),
        (has(Parameter::Background), 0.7),
        (levels.iter().any(|level| level.cold != first.cold), 0.3),
    ];
    let of = |p: &[f64]| {
        let mut rest = p[2..].iter().map(|root| root * root);
        let others = others.map(|(is_used, _)| if is_used { rest.next() } else { None });
        let [_, wake, cooling, growth, doubling, background, cold] = others.map(|value| value.unwrap_or(0.0));
        let more = p[0] * p[0] * lowest;
        let mut server = Server {
            path_s: p[1].exp(),
            cv_squared: others[0].unwrap_or(1.0),
            wake_s: wake * lowest,
            cooling_s: cooling * cooling_scale,
            growth_s: growth * lowest / highest,
            doubling_s: doubling * lowest / DOUBLINGS,
            background_cpus: (background * BACKGROUND_SCALE).min(MOST_BACKGROUND * cpus),
            cold_growth_s: cold * lowest / 1000.0,
            ..server
        };
        // The cost of the cheapest level includes growth with the connections.
        let grown = Server { base_s: 0.0, ..server }.lasting_s(cheapest.load, cheapest.cold);
        server.base_s = (least_s - grown).max(LEAST_SHARE * lowest) + more;
        server
    };
    let residuals = |p: &[f64]| {
        let server = of(p);
        let of_level = |level: &ModelPoint| {
            let state = server.closed(level.load, level.cold);
            let rate = (state.throughput_per_sec / level.throughput_per_sec).ln();
            [rate, (state.demand_s / level.demand_s).ln() * 0.7]
        };
        let mut all: Vec<f64> = levels.iter().flat_map(of_level).collect();
        all.push(VARIANCE_PRIOR * (server.cv_squared - 1.0).max(0.0));
        all.push(BASE_PRIOR * (lowest / server.lasting_s(highest, 0.0)).ln().max(0.0));
        all
    };
    let mut start = vec![(1.0 - least_s / lowest).max(0.1).sqrt(), path.ln()];
    start.extend(others.iter().filter(|(is_used, _)| *is_used).map(|(_, start)| *start));
    let scales = vec![1.0; start.len()];
    let (found, _) = minimise(&residuals, &start, &scales, evaluations)?;
    let server = of(&found);
    let sane =
        [server.base_s, server.path_s, server.cv_squared].iter().all(|v| v.is_finite()) && server.cv_squared < 1e4;
    sane.then_some(server)
}
