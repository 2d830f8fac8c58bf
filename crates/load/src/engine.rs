//! Connections are opened first, without requests. When every one is open, or has failed once, requests begin on all
//! threads at the same instant: the warm-up, then the window. So without a warm-up, every request that the server
//! sees is counted. With a warm-up, requests in flight at its end belong to the window, too.

use crate::check::{check, port_rules, sources};
use crate::control::{Control, LiveCounters};
use crate::cost::{self, EngineCost};
use crate::doubts::doubts;
use crate::error::{LoadError, machine, wrong};
use crate::poller::Poller;
use crate::ports::PortAllocator;
use crate::replay::feeder;
use crate::request::Requests;
use crate::result::LoadResult;
use crate::socket::Errno;
use crate::supply::{NoSupply, Supply};
use crate::tls::{TlsSetting, TlsTally, add_handshakes};
use crate::worker::{self, GRACE_NS, Task, WorkerReport};
use record::time::{monotonic_ns, unix_ms};
use record::workload::ReplayResult;
use record::{LoadPlan, LoadShare};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const CHECK_NS: u64 = 20_000_000;
const PROGRESS_NS: u64 = 200_000_000;
/// Time from the decision to begin until the first request. In it, every thread notices the decision.
const LEAD_NS: u64 = 5_000_000;

/// Events of a running load, on the thread that called [`run`].
///
/// A slow handler does not delay the engine threads, only the next event.
pub trait LoadEvents {
    /// All connections are open, or have failed once. Returns when requests begin, on the monotonic clock and not
    /// before `earliest_ns`. The handler may block, e.g. until other machines are ready; connections are idle
    /// meanwhile.
    fn starts_at(&mut self, earliest_ns: u64) -> u64 {
        earliest_ns
    }
    /// The measured window begins.
    fn window_begins(&mut self) {}
    /// About every 200 ms, from the first connection to the last response.
    fn progress(&mut self, _progress: &LoadProgress) {}
    /// The measured window is over; the last responses may still arrive.
    fn window_ends(&mut self) {}
    /// Whether to end the load early because its result would be useless. Polled together with the stop flag.
    fn should_abort(&mut self) -> bool {
        false
    }
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadProgress {
    /// Time since [`run`] began.
    #[serde(skip)]
    pub elapsed_ns: u64,
    /// Established connections.
    pub connected: u64,
    /// Complete responses in the window.
    pub completed: u64,
    /// Failed requests in the window, non-2xx included.
    pub failed: u64,
    /// Complete responses per second since the last progress.
    pub throughput_per_sec: f64,
    /// Whether the window has not begun yet.
    #[serde(skip)]
    pub in_warmup: bool,
    /// With several clients: number and throughput of the slowest and the fastest client.
    #[serde(skip)]
    pub apart: Option<[(usize, f64); 2]>,
}

/// Runs one load. Blocks until it is over, or at most 300 ms after `stop` was set, and keeps the measurements so far.
///
/// The engine threads inherit the calling thread's network namespace. Outcomes of requests are counted in the result;
/// an error means that no load was possible.
pub fn run(plan: &LoadPlan, stop: &AtomicBool, events: &mut dyn LoadEvents) -> Result<LoadResult, LoadError> {
    run_supplied(plan, &NoSupply, stop, events)
}

/// As [`run`], for a plan with a rate series or a log, which `supply` reads. The run ends with the log, or earlier with
/// the duration.
pub fn run_supplied(
    plan: &LoadPlan,
    supply: &dyn Supply,
    stop: &AtomicBool,
    events: &mut dyn LoadEvents,
) -> Result<LoadResult, LoadError> {
    check(plan)?;
    let address = choose_address(plan, stop);
    let requests = Requests::new(plan);
    let tls = TlsSetting::from_plan(plan)?;
    let rules = port_rules(plan);
    let threads = plan.threads.min(plan.connections as usize).max(1);
    let rules = crate::ports::PortRules { threads: threads as u64, ..rules };
    let sources = sources(plan, address, &rules);
    let control = Control::default();
    let lives: Vec<LiveCounters> = (0..threads).map(|_| LiveCounters::default()).collect();
    let now = monotonic_ns();
    let mut conductor = Conductor {
        plan,
        control: &control,
        lives: &lives,
        stop,
        events,
        began_ns: now,
        begin_ns: u64::MAX,
        end_ns: u64::MAX,
        started_unix_ms: unix_ms(),
        interrupted: false,
        reported_ns: now,
        reported_completed: 0,
        checked_ns: now,
        stood_ns: 0,
    };
    let (reports, logs) = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        let mut readers = Vec::new();
        for (index, live) in lives.iter().enumerate() {
            let thread = LoadShare::one(index as u32, threads as u32);
            let share = thread.within(plan.share);
            let mut feed = None;
            if plan.workload.trace.is_some()
                && let Some(source) = supply.replay(plan, share)
            {
                let source = source.map_err(wrong).inspect_err(|_| control.cut_at(1))?;
                let (reader, fed) = feeder(plan, source);
                let cpu = (!plan.cpus.is_empty()).then(|| plan.cpus[index % plan.cpus.len()]);
                let body = move || {
                    let _ = cpu.map(cost::pin_to);
                    reader.run()
                };
                let spawned = std::thread::Builder::new().name(format!("log-{index}")).spawn_scoped(scope, body);
                readers.push(spawned.map_err(machine("start a thread")).inspect_err(|_| control.cut_at(1))?);
                feed = Some(fed);
            }
            let task = Task {
                thread,
                share,
                plan,
                requests: &requests,
                control: &control,
                live,
                address,
                sources: &sources,
                port_range: (rules.low, rules.high),
                ports: PortAllocator::for_thread(rules, sources.len(), index as u64),
                connections: thread.part(plan.connections) as usize,
                supply,
                feed,
                tls: tls.as_ref(),
            };
            handles.push(start(scope, task).inspect_err(|_| control.cut_at(1))?);
        }
        conductor.conduct(&handles);
        let mut reports = Vec::with_capacity(threads);
        for handle in handles {
            // A panic of an engine thread is a bug; propagate it.
            reports.push(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        // The engine threads have dropped the receivers, so no reader blocks.
        let logs = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        Ok::<_, LoadError>((reports, logs))
    })?;
    Ok(conductor.result(reports, logs))
}

/// The first address in the source addresses' IP version that accepts a connection, otherwise the first one, so that
/// its failures are counted. Connects only if there is a choice. Returns early when `stop` is set.
pub fn choose_address(plan: &LoadPlan, stop: &AtomicBool) -> SocketAddr {
    let addresses: Vec<SocketAddr> = crate::check::reachable(plan).collect();
    let first = addresses.first().copied().unwrap_or(plan.addresses[0]);
    if addresses.len() <= 1 {
        return first;
    }
    let timeout = Duration::from_nanos(plan.connect_timeout_ns);
    let (found, receiver) = std::sync::mpsc::channel();
    // A separate thread connects, because several timeouts may pass while this thread must notice `stop`.
    std::thread::spawn(move || {
        let answers = |address: &&SocketAddr| std::net::TcpStream::connect_timeout(address, timeout).is_ok();
        let _ = found.send(addresses.iter().find(answers).copied());
    });
    while !stop.load(Ordering::Relaxed) {
        match receiver.recv_timeout(Duration::from_nanos(CHECK_NS)) {
            Ok(Some(address)) => return address,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    first
}

type WorkerThread<'scope> = ScopedJoinHandle<'scope, Result<WorkerReport, LoadError>>;

fn start<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    task: Task<'env>,
) -> Result<WorkerThread<'scope>, LoadError> {
    let name = format!("load-{}", task.thread.index);
    let body = move || {
        if !task.plan.cpus.is_empty() {
            let cpu = task.plan.cpus[task.thread.index as usize % task.plan.cpus.len()];
            cost::pin_to(cpu).map_err(machine("pin a thread to its CPU"))?;
        }
        cost::sharpen_timers();
        if task.plan.precise && matches!(task.plan.pace, record::Pace::Open { .. }) {
            cost::try_real_time();
        }
        let poller = Poller::new().map_err(machine("make an epoll instance"))?;
        worker::run(task, poller).map_err(machine("wait for events"))
    };
    std::thread::Builder::new().name(name).spawn_scoped(scope, body).map_err(machine("start a thread"))
}

struct Conductor<'a> {
    plan: &'a LoadPlan,
    control: &'a Control,
    lives: &'a [LiveCounters],
    stop: &'a AtomicBool,
    events: &'a mut dyn LoadEvents,
    began_ns: u64,
    begin_ns: u64,
    end_ns: u64,
    started_unix_ms: u64,
    interrupted: bool,
    /// When progress was last reported, and the completed requests then.
    reported_ns: u64,
    reported_completed: u64,
    checked_ns: u64,
    /// The longest time between two checks in the window.
    stood_ns: u64,
}

impl Conductor<'_> {
    fn conduct(&mut self, handles: &[WorkerThread<'_>]) {
        let any_over = |handles: &[WorkerThread<'_>]| handles.iter().any(ScopedJoinHandle::is_finished);
        self.report_progress(monotonic_ns());
        let give_up_ns = self.began_ns.saturating_add(opening_limit_ns(self.plan));
        while self.control.ready() < handles.len() && monotonic_ns() < give_up_ns && !any_over(handles) {
            if !self.pause(2_000_000) {
                return;
            }
        }
        let earliest_ns = monotonic_ns() + LEAD_NS;
        let start_ns = self.events.starts_at(earliest_ns).max(earliest_ns);
        self.begin_ns = start_ns + self.plan.warmup_ns;
        self.end_ns = self.begin_ns + self.plan.duration_ns;
        self.control.start_at(start_ns);
        if !self.pause_until(self.begin_ns, handles) {
            return;
        }
        self.started_unix_ms = unix_ms();
        self.events.window_begins();
        self.checked_ns = monotonic_ns();
        let to_the_end = self.pause_until(self.end_ns, handles);
        self.end_ns = self.end_ns.min(monotonic_ns().max(self.begin_ns));
        self.events.window_ends();
        let deadline_ns = self.end_ns + GRACE_NS.max(self.plan.timeout_ns) + 10 * CHECK_NS;
        while to_the_end && !handles.iter().all(ScopedJoinHandle::is_finished) && monotonic_ns() < deadline_ns {
            if !self.pause(CHECK_NS / 4) {
                return;
            }
        }
    }

    /// False if the run was cut short.
    fn pause(&mut self, nanos: u64) -> bool {
        std::thread::sleep(Duration::from_nanos(nanos));
        self.check()
    }

    /// Also ends when every engine thread has ended (end of a log, or a failure); false if the run was cut short.
    fn pause_until(&mut self, until_ns: u64, handles: &[WorkerThread<'_>]) -> bool {
        loop {
            let now = monotonic_ns();
            if now >= until_ns || handles.iter().all(ScopedJoinHandle::is_finished) {
                return true;
            }
            if !self.pause(CHECK_NS.min(until_ns - now)) {
                return false;
            }
        }
    }

    fn check(&mut self) -> bool {
        let now = monotonic_ns();
        let in_window = self.checked_ns.max(self.begin_ns)..now.min(self.end_ns);
        self.stood_ns = self.stood_ns.max(in_window.end.saturating_sub(in_window.start));
        if now >= self.reported_ns + PROGRESS_NS {
            self.report_progress(now);
        }
        self.checked_ns = monotonic_ns();
        let is_stopped = self.stop.load(Ordering::Relaxed);
        if is_stopped || self.events.should_abort() {
            self.interrupted = is_stopped && now < self.end_ns;
            self.end_ns = self.end_ns.min(now);
            self.control.cut_at(now);
            return false;
        }
        true
    }

    fn report_progress(&mut self, now: u64) {
        let sum = |pick: fn(&LiveCounters) -> &std::sync::atomic::AtomicU64| -> u64 {
            self.lives.iter().map(|live| pick(live).load(Ordering::Relaxed)).sum()
        };
        let total = sum(|live| &live.completed_total);
        let last_ns = std::mem::replace(&mut self.reported_ns, now);
        let last_total = std::mem::replace(&mut self.reported_completed, total);
        let progress = LoadProgress {
            elapsed_ns: now - self.began_ns,
            connected: sum(|live| &live.connected),
            completed: sum(|live| &live.completed),
            failed: sum(|live| &live.failed),
            throughput_per_sec: (total.saturating_sub(last_total)) as f64 * 1e9 / (now - last_ns).max(1) as f64,
            in_warmup: now < self.begin_ns,
            apart: None,
        };
        self.events.progress(&progress);
    }

    fn result(self, reports: Vec<WorkerReport>, logs: Vec<ReplayResult>) -> LoadResult {
        let mut replay = crate::replay::merged(logs);
        let mut classes = Vec::new();
        let mut engine = EngineCost { threads: reports.len(), ..EngineCost::default() };
        let mut tally = None::<crate::tally::Tally>;
        let mut connection_bytes = 0;
        let mut bits_per_sec = Vec::new();
        let mut tls = None::<TlsTally>;
        let mut no_arrivals = None;
        for mut report in reports {
            if let (Some(replay), Some(comparison)) = (&mut replay, &report.comparison) {
                replay.add(comparison);
            }
            let counts = report.classes.take().map(|classes| classes.into_counts()).unwrap_or_default();
            crate::classes::add(&mut classes, &counts);
            engine.add(&report.begin, &report.end);
            connection_bytes += report.connection_memory_bytes;
            bits_per_sec.extend(report.bits_per_sec);
            let refused = |error: Errno| format!("the kernel does not time-stamp packets (SO_TIMESTAMPING: {error})");
            no_arrivals = no_arrivals.or(report.has_no_stamps.map(refused));
            add_handshakes(&mut tls, report.tls);
            match &mut tally {
                Some(tally) => tally.merge(report.tally),
                None => tally = Some(report.tally),
            }
        }
        let tally = tally.expect("there is at least one thread");
        engine.memory_bytes_per_connection = connection_bytes as f64 / self.plan.connections as f64;
        // Each thread notices a cut at its own time, so the threads' windows define the length.
        let window_ns = if self.begin_ns == u64::MAX { 0 } else { tally.end_ns.saturating_sub(tally.begin_ns) };
        let mut result = LoadResult {
            started_unix_ms: self.started_unix_ms,
            window_ns,
            warmup_ns: self.plan.warmup_ns,
            counts: tally.counts,
            answered_in_all: Some(tally.completed_total),
            series_csv: tally.series.csv(window_ns),
            stall_ns: tally.stalls.longest_ns(),
            stood_ns: self.stood_ns,
            engine,
            first_errors: tls
                .iter()
                .filter_map(|tls| tls.example.as_ref().map(|why| format!("TLS: {why}")))
                .chain(tally.examples.into_iter().map(|(_, words)| words))
                .collect(),
            interrupted: self.interrupted,
            classes,
            replay,
            bits_per_sec,
            tls,
            no_arrivals,
            doubts: Vec::new(),
        };
        result.doubts = doubts(&result, self.plan);
        result
    }
}

/// Timeout for opening connections; requests begin afterwards in any case.
pub fn opening_limit_ns(plan: &LoadPlan) -> u64 {
    let per_connection_ns = if plan.connect_rate_per_sec > 0.0 { 1e9 / plan.connect_rate_per_sec } else { 200_000.0 };
    plan.connect_timeout_ns.saturating_add((plan.connections as f64 * per_connection_ns) as u64)
}
