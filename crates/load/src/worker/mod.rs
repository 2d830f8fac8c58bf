//! One engine thread: it owns its connections, its part of the schedule and its tally, and shares nothing on the way of a
//! request.
//!
//! - this file: the loop;
//! - [`connect`]: opening and reopening connections;
//! - [`exchange`]: a request out, a response in;
//! - [`dispatch`]: which open-loop request leaves on which connection;
//! - [`replay`]: the same for the requests of a log;
//! - [`paced`]: clients that read at a limited pace;
//! - [`secure`]: handshakes, and bytes of requests and responses over TLS;
//! - [`sweep`]: timeouts, and what remains at the end;
//! - [`waiting`]: for events, but not past the next intended send.
//!
//! # Clock readings
//!
//! Reads the clock after each wait, and again for every later event of the same batch, so that the instant given to an
//! event is at most one `recv` away from it. A last byte is dated when the engine takes the event up, an actual send
//! when the system call begins.

mod connect;
mod dispatch;
mod exchange;
mod paced;
mod replay;
mod secure;
mod sweep;
mod waiting;

use crate::arrival::Schedule;
use crate::classes::Classes;
use crate::connection::{Connection, QUEUED, State};
use crate::control::{Control, Live};
use crate::cost::ThreadReading;
use crate::framing::HeadCache;
use crate::herd::Herd;
use crate::poller::Poller;
use crate::ports::PortAllocator;
use crate::replay::{Comparison, Feed};
use crate::request::Requests;
use crate::socket::{Errno, RawAddress};
use crate::supply::Supply;
use crate::tally::{Failure, Tally};
use crate::tls::{Sessions, TlsSetting, TlsTally};
use paced::Pacing;
use rand_chacha::ChaCha8Rng;
use record::LoadPlan;
use record::time::monotonic_ns;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// Responses are read into one buffer a thread.
const BUFFER_BYTES: usize = 64 * 1024;
/// After the window, requests under way are waited for this long at most (or for the timeout, if shorter), so that a
/// stall at the end shows in the response times.
pub(crate) const GRACE_NS: u64 = 2_000_000_000;

/// What one engine thread is given.
pub(crate) struct Task<'a> {
    pub(crate) index: usize,
    pub(crate) plan: &'a LoadPlan,
    pub(crate) requests: &'a Requests,
    pub(crate) control: &'a Control,
    pub(crate) live: &'a Live,
    pub(crate) address: RawAddress,
    pub(crate) is_loopback: bool,
    /// Local addresses in use; `None` = the kernel's choice.
    pub(crate) sources: &'a [Option<IpAddr>],
    pub(crate) port_range: (u16, u16),
    pub(crate) ports: PortAllocator,
    /// This thread's connections.
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) is_real_time: bool,
    pub(crate) supply: &'a dyn Supply,
    /// The requests of a log, where one is replayed.
    pub(crate) feed: Option<Feed>,
    pub(crate) tls: Option<&'a TlsSetting>,
}

/// What one engine thread brings back.
pub(crate) struct Report {
    pub(crate) tally: Tally,
    pub(crate) classes: Option<Box<Classes>>,
    pub(crate) comparison: Option<Comparison>,
    pub(crate) begin: ThreadReading,
    pub(crate) end: ThreadReading,
    pub(crate) connection_memory_bytes: usize,
    pub(crate) fixed_memory_bytes: usize,
    pub(crate) wait_method: &'static str,
    /// Bandwidth of each paced connection, bits per second.
    pub(crate) bits_per_sec: Vec<f64>,
    pub(crate) tls: Option<TlsTally>,
}

pub(crate) struct Worker<'a> {
    task: Task<'a>,
    is_open: bool,
    /// Replay, or open loop with a limit of requests per connection: a connection is opened when a request needs it.
    is_on_demand: bool,
    choice: Choice,
    /// Results by class, where the plan asks for them.
    classes: Option<Box<Classes>>,
    replay: Option<Box<replay::Replay>>,
    poller: Poller,
    connections: Vec<Connection>,
    /// Connections that can take an open-loop request, longest idle first. Entries may be stale: see `take_free`.
    free: VecDeque<u32>,
    /// Slots to open again; opened by the loop, not by the code that closed them, so that nothing recurses.
    to_open: Vec<u32>,
    /// Slots whose socket had more bytes than one turn takes.
    unread: Vec<u32>,
    heads: HeadCache,
    buffer: Box<[u8]>,
    tally: Tally,
    schedule: Option<Schedule<'a>>,
    /// `schedule.peek()`, or never.
    next_due_ns: u64,
    /// Since when no free connection was left for due requests.
    starved_since_ns: Option<u64>,
    herd: Herd,
    /// Slots opened so far by the herd.
    herd_opened: usize,
    established: u64,
    connecting: u64,
    in_flight: u64,
    last_failure: Option<Failure>,
    started: bool,
    is_ready: bool,
    /// Behind the window's end: nothing new begins.
    is_draining: bool,
    sweep_at: usize,
    next_sweep_ns: u64,
    /// Memory of split heads: of the sweep's round so far, and of the fullest round.
    carry_bytes_round: usize,
    carry_bytes_max: usize,
    polling_ns: u64,
    system_calls: u64,
    /// Neither paced nor over TLS.
    is_plain: bool,
    pacing: Option<Box<Pacing>>,
    tls: Option<Box<Sessions>>,
    /// How long the server may take to close a connection that it has announced to close.
    linger_ns: u64,
}

/// How the target of the next request is chosen.
enum Choice {
    /// One after another; the next.
    InTurn(usize),
    /// By the plan's weights.
    Weighted(Box<ChaCha8Rng>),
    /// It comes with the request, from a log.
    Replayed,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(mut task: Task<'a>) -> Result<Self, Errno> {
        let is_paced = matches!(task.plan.pace, record::Pace::Open { .. });
        let replay = task.feed.take().map(|feed| replay::Replay::new(feed, is_paced, task.connections));
        let is_open = is_paced || replay.is_some();
        let is_on_demand = replay.is_some() || is_open && task.plan.requests_per_connection > 0;
        let choice = match (&replay, &task.requests.popularity) {
            (Some(_), _) => Choice::Replayed,
            (None, Some(_)) => Choice::Weighted(task.requests.choice_rng(task.plan.seed, task.index)),
            (None, None) => Choice::InTurn(task.index % task.requests.targets.len()),
        };
        let mut heads = HeadCache::new(task.requests.is_head, task.requests.targets.len());
        if replay.is_some() {
            heads = HeadCache::for_both();
        }
        let connections: Vec<Connection> = (0..task.connections).map(|_| Connection::new()).collect();
        let pacing = Pacing::new(&task.plan.clients, task.connections);
        let tls = task.tls.map(|setting| Sessions::new(setting, task.connections));
        let waits_for_server = task.plan.clients.close_first == Some(record::CloseFirst::Server);
        Ok(Worker {
            is_plain: pacing.is_none() && tls.is_none(),
            pacing,
            tls,
            linger_ns: if waits_for_server { task.plan.timeout_ns } else { sweep::LINGER_NS },
            is_open,
            is_on_demand,
            poller: Poller::new()?,
            free: VecDeque::with_capacity(if is_open { task.connections } else { 0 }),
            to_open: Vec::new(),
            unread: Vec::new(),
            heads,
            choice,
            classes: Classes::new(task.plan, task.connections),
            replay,
            buffer: vec![0; BUFFER_BYTES].into(),
            // No window yet: before the start nothing is counted but connections.
            tally: Tally::new(u64::MAX / 2, u64::MAX / 2),
            schedule: None,
            next_due_ns: u64::MAX,
            starved_since_ns: None,
            herd: Herd::new(task.plan.connect_rate_per_sec / task.threads as f64),
            herd_opened: if is_on_demand { task.connections } else { 0 },
            established: 0,
            connecting: 0,
            in_flight: 0,
            last_failure: None,
            started: false,
            is_ready: false,
            is_draining: false,
            sweep_at: 0,
            next_sweep_ns: 0,
            carry_bytes_round: 0,
            carry_bytes_max: 0,
            polling_ns: 0,
            system_calls: 0,
            connections,
            task,
        })
    }

    /// Runs until the window is over and drained, or the run is cut short.
    pub(crate) fn run(mut self) -> Result<Report, Errno> {
        let (mut begin, mut end) = (None, None);
        if self.is_on_demand && self.replay.is_none() {
            for slot in 0..self.connections.len() {
                self.make_free(slot);
            }
        }
        let mut now = monotonic_ns();
        loop {
            if !self.started
                && let Some(start_ns) = self.task.control.start_ns()
                && now >= start_ns
            {
                self.start(start_ns, now);
            }
            if self.herd_opened < self.connections.len() {
                self.open_herd(now);
            }
            self.reopen();
            if !self.is_ready
                && self.herd_opened == self.connections.len()
                && self.connecting == 0
                && self.replay.as_mut().is_none_or(|replay| replay.is_ready())
            {
                self.is_ready = true;
                self.task.control.report_ready();
            }
            if now >= self.next_due_ns {
                self.dispatch(now);
            }
            if !self.is_plain {
                self.read_paced(now);
            }
            if now >= self.next_sweep_ns {
                now = monotonic_ns();
                self.sweep(now);
            }
            if self.started {
                if self.task.control.cut_ns().is_some() {
                    now = monotonic_ns();
                    self.cut(now);
                }
                if begin.is_none() && now >= self.tally.begin_ns {
                    begin = Some(ThreadReading::now(now, self.polling_ns, self.system_calls));
                }
                self.end_with_the_log(now);
                // Cut short in the warm-up, there is no window to wait for.
                let is_over =
                    now >= self.tally.end_ns || (now < self.tally.begin_ns && self.task.control.cut_ns().is_some());
                if !self.is_draining && is_over {
                    end = Some(ThreadReading::now(now, self.polling_ns, self.system_calls));
                    self.is_draining = true;
                    if self.replay.is_some() {
                        self.next_due_ns = 0;
                    }
                }
                if self.is_draining && self.is_drained(now) {
                    break;
                }
            } else if self.task.control.cut_ns().is_some() {
                break;
            }
            self.publish(now);
            let count = self.wait(now)?;
            now = monotonic_ns();
            self.take_events(count, &mut now);
        }
        self.account_for_the_rest(now);
        self.tally.finish(self.is_open);
        self.publish(now);
        let nothing = ThreadReading::default();
        Ok(Report {
            begin: begin.unwrap_or(nothing),
            end: end.or(begin).unwrap_or(nothing),
            connection_memory_bytes: self.connections.capacity() * size_of::<Connection>()
                + self.free.capacity() * size_of::<u32>()
                + self.carry_bytes_max
                + self.pacing.as_ref().map_or(0, |pacing| pacing.memory_bytes()),
            fixed_memory_bytes: BUFFER_BYTES
                + self.tally.series.memory_bytes()
                + LATENCIES * LATENCY_BYTES
                + self.classes.as_ref().map_or(0, |classes| classes.memory_bytes())
                + self.replay.as_ref().map_or(0, |replay| replay.memory_bytes()),
            comparison: self.replay.as_ref().map(|replay| replay.comparison),
            classes: self.classes.take(),
            wait_method: self.poller.method(),
            bits_per_sec: self
                .pacing
                .as_ref()
                .map(|pacing| pacing.bits_per_sec(self.tally.end_ns.saturating_sub(self.tally.begin_ns)))
                .unwrap_or_default(),
            tls: self.tls.as_ref().map(|tls| tls.tally()),
            tally: std::mem::replace(&mut self.tally, Tally::new(0, 0)),
        })
    }

    /// Requests begin: the window, the schedule, and the first request of each connection of a closed loop.
    fn start(&mut self, start_ns: u64, now: u64) {
        self.started = true;
        let plan = self.task.plan;
        let begin_ns = start_ns + plan.warmup_ns;
        let end_ns = begin_ns + plan.duration_ns;
        let before = std::mem::replace(&mut self.tally, Tally::new(begin_ns, end_ns));
        self.tally.take_connections(before);
        if let Some(replay) = &mut self.replay {
            // How long a log takes is not known before its end.
            self.tally.series = crate::series::Series::growing(begin_ns);
            replay.begin(start_ns);
            self.next_due_ns = start_ns;
            return;
        }
        match plan.pace {
            record::Pace::Open { rate_per_sec, arrival } => {
                let share = record::Share { index: self.task.index as u32, of: self.task.threads as u32 };
                let schedule = match (arrival, self.task.supply.arrivals(plan, share)) {
                    (record::Arrival::Series, Some(arrivals)) => {
                        Schedule::given(rate_per_sec, plan.seed, share, (start_ns, begin_ns, end_ns), arrivals)
                    }
                    _ => Schedule::new(rate_per_sec, arrival, plan.seed, share, start_ns, end_ns),
                };
                self.next_due_ns = schedule.peek().unwrap_or(u64::MAX);
                self.schedule = Some(schedule);
            }
            record::Pace::Closed => {
                let mut now = now;
                for slot in 0..self.connections.len() {
                    if self.connections[slot].state == State::Idle {
                        self.send_request(slot, now, now);
                        now = monotonic_ns();
                    }
                }
            }
        }
    }

    /// The run is cut short: the window ends after `now`, so that every request counted as sent lies in it, and nothing
    /// is waited for.
    fn cut(&mut self, now: u64) {
        if now + 1 < self.tally.end_ns {
            self.tally.end_ns = (now + 1).max(self.tally.begin_ns);
            if let Some(schedule) = &mut self.schedule {
                schedule.cut(now + 1);
                self.next_due_ns = schedule.peek().unwrap_or(u64::MAX);
            }
        }
    }

    /// Closed loop: whether a request may still leave. The events of the round in which the window ends are taken before
    /// draining is declared; a request sent for one of them would reach the server and belong to no window.
    fn may_begin(&self, now: u64) -> bool {
        !self.is_draining && now < self.tally.end_ns
    }

    fn is_drained(&self, now: u64) -> bool {
        let end_ns = self.tally.end_ns;
        if self.task.control.cut_ns().is_some() || now >= end_ns + GRACE_NS.min(self.task.plan.timeout_ns) {
            return true;
        }
        self.in_flight == 0
            && self.next_due_ns == u64::MAX
            && self.replay.as_ref().is_none_or(|replay| replay.is_done())
            && (self.connecting == 0 || (self.is_open && !self.is_on_demand))
    }

    /// The log is at its end and everything was answered: so is the window.
    fn end_with_the_log(&mut self, now: u64) {
        if let Some(replay) = &self.replay
            && replay.is_done()
            && replay.comparison.is_whole
            && self.in_flight == 0
            && self.connecting == 0
            && now < self.tally.end_ns
        {
            self.tally.end_ns = (now + 1).max(self.tally.begin_ns);
        }
    }

    fn publish(&mut self, now: u64) {
        let live = self.task.live;
        live.connected.store(self.established, Ordering::Relaxed);
        live.completed.store(self.tally.counts.completed_in_window, Ordering::Relaxed);
        live.completed_total.store(self.tally.completed_total, Ordering::Relaxed);
        live.failed.store(self.tally.failed_in_window, Ordering::Relaxed);
        self.tally.series.connections(now, self.established);
    }

    fn take_events(&mut self, count: usize, now: &mut u64) {
        for index in 0..count {
            if index > 0 {
                *now = monotonic_ns();
            }
            let (conditions, token) = self.poller.event(index);
            let slot = token as u32 as usize;
            if self.connections[slot].generation == (token >> 32) as u16 {
                self.on_event(slot, conditions, *now);
            }
            if *now >= self.next_due_ns {
                self.dispatch(*now);
            }
            if !self.to_open.is_empty() {
                self.reopen();
            }
        }
        for slot in std::mem::take(&mut self.unread) {
            // A slot that was closed meanwhile has nothing to read; one that was reopened reads "would block".
            if matches!(
                self.connections[slot as usize].state,
                State::Busy | State::Idle | State::Lingering | State::Handshaking
            ) {
                *now = monotonic_ns();
                self.read(slot as usize, *now);
            }
        }
    }

    /// Offers a connection to open-loop requests.
    fn make_free(&mut self, slot: usize) {
        if let Some(replay) = &mut self.replay {
            replay.freed(slot);
            self.next_due_ns = 0;
        } else if self.is_open && !self.connections[slot].has(QUEUED) {
            self.connections[slot].set(QUEUED, true);
            self.free.push_back(slot as u32);
        }
    }
}

/// Histograms of a [`Tally`], and about how large each is.
const LATENCIES: usize = record::LOAD_TIMES + 1;
const LATENCY_BYTES: usize = 300_000;
