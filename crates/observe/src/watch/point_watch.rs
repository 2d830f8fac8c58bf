//! Watches the points of a load: a thread counts requests while the load runs, and times phases in short windows
//! within each point's window.
//!
//! The watched part is decided before the window begins. Requests are counted during the warm-up, which gives the
//! server's CPU time per request under this load. With the calibrated cost of an event, that determines how much of
//! the window may be counted and timed ([`super::shares`]). So a point is watched completely or partly within the
//! budget, and records the part.

use super::active_pack::PACK_SHARE;
use super::edges::LoadGaps;
use super::intervals::Intervals;
use super::shares::{Shares, affordable, drain_ns, pack_share, windows};
use super::tracer::Tracer;
use super::watcher::{WatchOptions, Watcher};
use crate::cpu_clock;
use crate::error::ObserveError;
use crate::sampler::keep_away_from;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use record::time::monotonic_ns;
use record::watch::{Mode, PackTotals, PhaseTotals, Reading};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of samples of requests in progress; extended so that they cost at most a thousandth of a CPU.
const SAMPLE_NS: u64 = 100_000_000;
const SAMPLE_REST: u64 = 1000;
/// Timeout for the thread; a scan of very many connections takes a few seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum windows of a pack; attaching and removing probes costs some milliseconds each.
const MOST_PACK_WINDOWS: u64 = 2;
/// Minimum CPU time of the server to determine the cost of a request.
const TELLING_CPU_NS: u64 = 10_000_000;

enum WatchOrder {
    LoadBegins,
    /// The planned length of the window, nanoseconds.
    WindowBegins(u64),
    WindowEnds,
    LoadEnded,
}

/// The readings around a load.
#[derive(Debug, Clone, Default)]
pub struct PointReadings {
    /// Reading before the load began.
    pub before: Reading,
    /// Reading when the window began.
    pub begin: Reading,
    /// Reading when counting ended: with the window, or earlier if the budget was spent.
    pub counted: Reading,
    /// Reading when the window ended.
    pub end: Reading,
    /// Reading after the load.
    pub after: Reading,
    /// The planned parts of the window.
    pub shares: Option<Shares>,
    /// Whether requests were counted from before the load until after it.
    pub is_whole: bool,
    /// Phases in the window by size class.
    pub phases: Vec<PhaseTotals>,
    /// Requests that were not answered when their window of phases was closed.
    pub late: u64,
    /// Phases by functions of the server in the window, with a pack.
    pub pack: Option<PackTotals>,
    /// Why the pack's phases are missing, if they were requested.
    pub why_no_pack: Option<String>,
    /// Number of samples of requests in progress.
    pub samples: u64,
    /// Sum of requests in progress over the samples.
    pub in_flight_sum: u64,
    /// Maximum of requests in progress.
    pub in_flight_max: u64,
    /// The requested mode.
    pub mode: Option<Mode>,
    /// An error during the load; a sentence.
    pub failure: Option<String>,
}

/// Watches a server's requests during loads.
#[derive(Debug)]
pub struct PointWatch {
    orders: Option<Sender<WatchOrder>>,
    ready: Receiver<()>,
    readings: Receiver<PointReadings>,
    thread: Option<JoinHandle<()>>,
    why_not: Option<String>,
    classes: super::SizeClasses,
}

impl PointWatch {
    /// Starts the thread. `options.mode` is the mode for the points; `avoid_cpus` are the server's. If programs cannot
    /// be loaded, [`PointWatch::why_not`] has the reason.
    pub fn start(options: WatchOptions, avoid_cpus: Vec<usize>) -> Result<PointWatch, ObserveError> {
        let (orders, to_do) = channel();
        let (done, readings) = channel();
        let (say_ready, ready) = channel();
        let (sender, started) = channel();
        let classes = options.classes.clone();
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || {
                keep_away_from(&avoid_cpus);
                let mode = options.mode;
                let first = if mode == Mode::Budgeted { Mode::Counts } else { mode };
                // The thread that loads the programs owns them.
                let options = WatchOptions {
                    mode: first,
                    splits: false,
                    detects_protocol: false,
                    system_intervals: Intervals::all(Duration::ZERO),
                    ..options
                };
                match Watcher::start(options) {
                    Ok(watcher) => {
                        let why_not = watcher.why_no_programs().map(ToString::to_string);
                        let _ = sender.send(Ok(why_not));
                        WatchThread::new(watcher, mode).serve(&to_do, &say_ready, &done);
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                    }
                }
            })
            .map_err(ObserveError::Thread)?;
        match started.recv() {
            Ok(Ok(why_not)) => {
                Ok(PointWatch { orders: Some(orders), ready, readings, thread: Some(thread), why_not, classes })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ObserveError::Thread(std::io::Error::other("the watch's thread ended at once"))),
        }
    }

    /// Why requests are not counted, if so.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// The size classes.
    pub fn classes(&self) -> &super::SizeClasses {
        &self.classes
    }

    fn order(&self, order: WatchOrder) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }

    /// Called before the load opens connections. Returns when the state before it has been read.
    pub fn load_begins(&mut self) {
        // Drop results that an earlier load did not collect.
        while self.readings.try_recv().is_ok() || self.ready.try_recv().is_ok() {}
        self.order(WatchOrder::LoadBegins);
        let _ = self.ready.recv_timeout(TIMEOUT);
    }

    /// Begins the window, with its planned length. Returns at once.
    pub fn window_begins(&mut self, planned_ns: u64) {
        self.order(WatchOrder::WindowBegins(planned_ns));
    }

    /// Ends the window. Returns at once.
    pub fn window_ends(&mut self) {
        self.order(WatchOrder::WindowEnds);
    }

    /// Ends the load and returns its readings; `None` if the thread has ended.
    pub fn load_ended(&mut self) -> Option<PointReadings> {
        self.order(WatchOrder::LoadEnded);
        self.readings.recv_timeout(TIMEOUT).ok()
    }
}

impl Drop for PointWatch {
    fn drop(&mut self) {
        // The thread ends when no more orders can come, and detaches everything.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WindowAction {
    Open,
    OpenPack,
    Shut,
    Close,
    StopCounting,
}

struct WatchThread {
    watcher: Watcher,
    mode: Mode,
    /// The server's CPU time per read, from the last load that was long enough.
    cpu_per_receive_ns: Option<f64>,
    cpus_used: f64,
    now: PointReadings,
    acts: Vec<(u64, WindowAction)>,
    next_sample_ns: u64,
    is_in_window: bool,
    edges: LoadGaps,
    random: ChaCha8Rng,
}

impl WatchThread {
    fn new(watcher: Watcher, mode: Mode) -> Self {
        WatchThread {
            watcher,
            mode,
            cpu_per_receive_ns: None,
            cpus_used: 0.0,
            now: PointReadings::default(),
            acts: Vec::new(),
            next_sample_ns: 0,
            is_in_window: false,
            edges: LoadGaps::default(),
            random: ChaCha8Rng::seed_from_u64(monotonic_ns()),
        }
    }

    fn serve(mut self, orders: &Receiver<WatchOrder>, ready: &Sender<()>, done: &Sender<PointReadings>) {
        loop {
            let rest = |due_ns: u64| Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
            let order = match orders.recv_timeout(self.due_ns().map_or(Duration::MAX, rest)) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => {
                    self.run_due_actions();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            match order {
                WatchOrder::LoadBegins => {
                    self.load_begins();
                    let _ = ready.send(());
                }
                WatchOrder::WindowBegins(planned_ns) => self.window_begins(planned_ns),
                WatchOrder::WindowEnds => self.window_ends(),
                WatchOrder::LoadEnded => {
                    if self.is_in_window {
                        self.window_ends();
                    }
                    self.now.after = self.watcher.read_still();
                    if done.send(std::mem::take(&mut self.now)).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn load_begins(&mut self) {
        self.acts.clear();
        self.is_in_window = false;
        self.now = PointReadings { mode: Some(self.mode), is_whole: true, ..PointReadings::default() };
        let mode = if self.mode == Mode::Budgeted { Mode::Counts } else { self.mode };
        if self.watcher.options().mode != mode {
            self.set_mode(mode);
        }
        // Requests left from an earlier load, or from before the watch, would otherwise count for this load.
        self.edges.wait_until_over(&mut self.watcher);
        self.watcher.reconcile();
        self.now.before = self.watcher.read_still();
    }

    fn set_mode(&mut self, mode: Mode) {
        if let Err(error) = self.watcher.set_mode(mode) {
            self.now.failure = Some(error.to_string());
        }
    }

    fn window_begins(&mut self, planned_ns: u64) {
        self.now.begin = self.watcher.read();
        self.measure_read_cost(self.now.before.clone(), self.now.begin.clone());
        self.is_in_window = true;
        self.next_sample_ns = self.now.begin.at_ns + SAMPLE_NS / 2;
        let Some(tracer) = &mut self.watcher.tracer else { return };
        let prices = tracer.prices();
        tracer.restart_phases();
        let why_no_pack = tracer.pack_note().map(str::to_string);
        let mut budget = self.watcher.options().overhead_ratio;
        let mut pack_budget = 0.0;
        if prices.pack_request_ns.is_some() {
            pack_budget = budget * PACK_SHARE;
            budget -= pack_budget;
        }
        let shares = Shares::for_mode(self.mode, &prices, self.cpu_per_receive_ns, budget);
        let pack = pack_share(self.mode, &prices, self.cpu_per_receive_ns, pack_budget);
        self.now.shares = Some(shares);
        self.now.why_no_pack = why_no_pack;
        if matches!(self.mode, Mode::Budgeted | Mode::Counts) {
            self.plan(shares, pack, budget, planned_ns);
        }
    }

    fn measure_read_cost(&mut self, from: Reading, to: Reading) {
        let cpu_ns = to.group_ns().unwrap_or(0).saturating_sub(from.group_ns().unwrap_or(0));
        let receives = to.all().receives.saturating_sub(from.all().receives);
        if cpu_ns >= TELLING_CPU_NS && receives > 0 {
            self.cpu_per_receive_ns = Some(cpu_ns as f64 / receives as f64);
            self.cpus_used = cpu_ns as f64 / to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
        }
    }

    /// Plans windows for phases and, if `pack` is above 0, for the pack: the former in the first half of the counted
    /// time, the latter in the second half, because only one window can be open.
    fn plan(&mut self, shares: Shares, pack: f64, budget: f64, planned_ns: u64) {
        let begin_ns = self.now.begin.at_ns;
        let cpus = record::machine::online_cpus() as u64;
        let mut hold = |shares: Shares, most: u64, from_ns: u64, act: WindowAction| {
            let held = windows(shares, planned_ns, most, &mut self.random);
            for window in &held {
                let [opens_ns, shuts_ns] = [window.start, window.end].map(|at_ns| begin_ns + from_ns + at_ns);
                self.acts.push((opens_ns, act));
                self.acts.push((shuts_ns, WindowAction::Shut));
                self.acts.push((shuts_ns + drain_ns(shuts_ns - opens_ns), WindowAction::Close));
            }
            held.len()
        };
        let half = Shares { counted: shares.counted / 2.0, timed: shares.timed.min(shares.counted / 2.0) };
        if self.mode == Mode::Budgeted {
            let most = affordable(self.cpus_used * planned_ns as f64, cpus, budget);
            hold(if pack > 0.0 { half } else { shares }, most, 0, WindowAction::Open);
        }
        if self.watcher.options().pack.is_some() && self.now.why_no_pack.is_none() {
            let timed = pack.min(shares.counted / 2.0);
            let from_ns = (half.counted * planned_ns as f64) as u64;
            if hold(Shares { timed, ..half }, MOST_PACK_WINDOWS, from_ns, WindowAction::OpenPack) == 0 {
                self.now.why_no_pack = Some(
                    "the probes of the pack would exceed the budget of the watch, or the point is too short for a \
                     window of them"
                        .into(),
                );
            }
        }
        if shares.counted < 1.0 {
            self.acts.push((begin_ns + (shares.counted * planned_ns as f64) as u64, WindowAction::StopCounting));
        }
        // A window's drain may reach into the next part, so actions are sorted by time.
        self.acts.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn due_ns(&self) -> Option<u64> {
        let next_act_ns = self.acts.last().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        self.is_in_window.then(|| next_act_ns.min(self.next_sample_ns))
    }

    fn run_due_actions(&mut self) {
        let now_ns = monotonic_ns();
        while let Some((at_ns, act)) = self.acts.last().copied() {
            if at_ns > now_ns {
                break;
            }
            self.acts.pop();
            // Without programs there is no plan.
            let Some(tracer) = &mut self.watcher.tracer else { break };
            match act {
                WindowAction::Open => {
                    // A previous window that is still draining ends now.
                    tracer.close_held();
                    if let Err(error) = tracer.open_held() {
                        self.now.failure = Some(error.to_string());
                        self.acts.retain(|(_, act)| *act == WindowAction::StopCounting);
                    }
                }
                WindowAction::OpenPack => {
                    tracer.close_held();
                    if let Err(error) = tracer.open_held_pack() {
                        self.now.why_no_pack = Some(error.to_string());
                        self.acts.retain(|(_, act)| *act != WindowAction::OpenPack);
                    }
                    // Attaching probes may take longer than their window, whose planned length therefore counts from
                    // the end of attaching.
                    let late_ns = monotonic_ns().saturating_sub(at_ns);
                    for (later_ns, act) in &mut self.acts {
                        *later_ns += if *act == WindowAction::StopCounting { 0 } else { late_ns };
                    }
                    self.acts.sort_unstable_by(|a, b| b.cmp(a));
                    break;
                }
                WindowAction::Shut => tracer.shut_held(),
                WindowAction::Close => tracer.close_held(),
                WindowAction::StopCounting => self.stop_counting(),
            }
        }
        if now_ns >= self.next_sample_ns {
            let before_ns = cpu_clock::of_this_thread();
            self.sample();
            let cost_ns = cpu_clock::of_this_thread() - before_ns;
            self.next_sample_ns = now_ns + SAMPLE_NS.max(cost_ns * SAMPLE_REST);
        }
    }

    /// Samples requests in progress, without listing processes and without a scan.
    fn sample(&mut self) {
        if !self.watcher.options().mode.counts_requests() {
            return;
        }
        let Some(in_flight) = self.watcher.tracer.as_mut().and_then(Tracer::in_flight) else { return };
        self.now.samples += 1;
        self.now.in_flight_sum += in_flight;
        self.now.in_flight_max = self.now.in_flight_max.max(in_flight);
    }

    fn close_window(&mut self) {
        if let Some(tracer) = &mut self.watcher.tracer {
            tracer.shut_held();
            tracer.close_held();
        }
    }

    /// Stops counting because the budget is spent; the unwatched rest of the window becomes a doubt.
    fn stop_counting(&mut self) {
        self.close_window();
        self.now.counted = self.watcher.read();
        self.take_phases();
        self.now.is_whole = false;
        self.set_mode(Mode::Zero);
    }

    fn take_phases(&mut self) {
        let (begin, counted) = (&self.now.begin, &self.now.counted);
        let timed_ns = match self.mode {
            Mode::Exact => counted.at_ns.saturating_sub(begin.at_ns),
            _ => {
                let window_ns = |reading: &Reading| reading.cost.added.map_or(0, |added| added.window_ns);
                window_ns(counted).saturating_sub(window_ns(begin))
            }
        };
        let exact = counted.classes_since(begin);
        let span_ns = counted.at_ns.saturating_sub(begin.at_ns).max(1);
        let share = timed_ns as f64 / span_ns as f64;
        if let Some(tracer) = &mut self.watcher.tracer {
            (self.now.phases, self.now.late) = tracer.phases_of(share, &exact);
        }
        if self.watcher.options().pack.is_some() {
            self.now.pack = self.watcher.read().pack.filter(|pack| pack.windows > 0);
        }
    }

    fn window_ends(&mut self) {
        self.is_in_window = false;
        self.acts.clear();
        let has_counted = self.now.counted.at_ns == 0;
        self.now.end = self.watcher.read();
        if has_counted {
            self.close_window();
            self.now.counted = self.now.end.clone();
            // The window open until now is part of the cost.
            let closed = self.watcher.read();
            self.now.counted.cost = closed.cost;
            self.take_phases();
        }
        self.measure_read_cost(self.now.begin.clone(), self.now.counted.clone());
    }
}
