//! One engine thread. It owns its connections, its part of the schedule and its tally; a request touches nothing
//! shared.
//!
//! A worker is compiled for each combination of [`Source`], [`Transport`] and [`WireProtocol`]. [`run`] chooses once,
//! so no step branches on them.
//!
//! # Clock readings
//!
//! The worker reads the clock after each wait, and again for every later event of the batch, so an event's time is at
//! most one `recv` late. The time of a last byte is when the engine handles its event, that of an actual send when the
//! system call begins.

mod choice;
mod connect;
mod exchange;
mod in_flight;
pub mod protocol;
mod slowest;
mod source;
mod sweep;
pub mod transport;
mod waiting;

pub(crate) use choice::run;

use crate::classes::Classes;
use crate::connection::{Connection, ConnectionState};
use crate::control::{Control, LiveCounters};
use crate::cost::ThreadReading;
use crate::poller::Poller;
use crate::ports::PortAllocator;
use crate::ramp::ConnectRamp;
use crate::replay::Feed;
use crate::request::Requests;
use crate::socket::Errno;
use crate::supply::Supply;
use crate::tally::{Failure, Tally};
use crate::tls::{TlsSetting, TlsTally};
use protocol::{Traces, WireProtocol};
use record::time::monotonic_ns;
use record::workload::ReplayResult;
use record::{LoadPlan, LoadShare};
use slowest::Opening;
use source::Source;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use sweep::TimeoutSweep;
use transport::{LimitedPace, SampledPace, Transport};

const BUFFER_BYTES: usize = 64 * 1024;
/// A longer request may be split into several segments, and Nagle's algorithm would delay the last one.
const SMALL_REQUEST_BYTES: usize = 500;
/// Maximum wait after the window for requests in flight, in addition to two round trips; the timeout if that is
/// shorter. A stall at the end of the window so appears in the response times.
pub(crate) const GRACE_NS: u64 = 2_000_000_000;

pub(crate) struct Task<'a> {
    /// This thread's part of this machine's connections.
    pub(crate) thread: LoadShare,
    /// This thread's part of the whole load, including other machines.
    pub(crate) share: LoadShare,
    pub(crate) plan: &'a LoadPlan,
    pub(crate) requests: &'a Requests,
    pub(crate) control: &'a Control,
    pub(crate) live: &'a LiveCounters,
    pub(crate) address: SocketAddr,
    /// Local addresses in use; `None`: the kernel chooses.
    pub(crate) sources: &'a [Option<IpAddr>],
    pub(crate) port_range: (u16, u16),
    pub(crate) ports: PortAllocator,
    pub(crate) connections: usize,
    pub(crate) supply: &'a dyn Supply,
    pub(crate) feed: Option<Feed>,
    pub(crate) tls: Option<&'a TlsSetting>,
}

pub(crate) struct WorkerReport {
    pub(crate) tally: Tally,
    pub(crate) classes: Option<Box<Classes>>,
    pub(crate) comparison: Option<ReplayResult>,
    pub(crate) begin: ThreadReading,
    pub(crate) end: ThreadReading,
    pub(crate) connection_memory_bytes: usize,
    pub(crate) bits_per_sec: Vec<f64>,
    pub(crate) tls: Option<TlsTally>,
    pub(crate) has_no_stamps: Option<Errno>,
}

pub(crate) struct Worker<'a, S, T, A: WireProtocol> {
    task: Task<'a>,
    source: S,
    transport: T,
    protocol: A,
    sampled: SampledPace,
    limited: Option<Box<LimitedPace>>,
    /// Why the kernel stamps no packets.
    has_no_stamps: Option<Errno>,
    phase: WorkerPhase,
    poller: Poller,
    connections: Vec<Connection<A::Stream>>,
    openings: Box<[Opening]>,
    /// Slots to reopen. The loop opens them, not the code that closed them, to avoid recursion.
    to_open: VecDeque<u32>,
    /// Slots whose socket had more bytes than one turn reads.
    unread: Vec<u32>,
    buffer: Box<[u8]>,
    tally: Tally,
    classes: Option<Box<Classes>>,
    ramp: ConnectRamp,
    opened_first: usize,
    established: u64,
    connecting: u64,
    /// Why the last attempt to connect failed; an open loop resets it when one succeeds.
    last_failure: Option<Failure>,
    in_flight: u64,
    sweep: TimeoutSweep,
    linger_ns: u64,
    needs_no_delay: bool,
    polling_ns: u64,
}

#[derive(PartialEq)]
enum WorkerPhase {
    Opening,
    /// Requests are sent.
    Loading,
    /// The window is over: no request begins.
    Draining,
}

impl<'a, S: Source, T: Transport, A: WireProtocol> Worker<'a, S, T, A> {
    fn new(task: Task<'a>, poller: Poller, source: S, transport: T, protocol: A) -> Self {
        let connections: Vec<Connection<A::Stream>> = (0..task.connections).map(|_| Connection::new()).collect();
        let waits_for_server = task.plan.clients.close_first == Some(record::CloseFirst::Server);
        let limited = LimitedPace::new(&task.plan.clients, task.connections).map(Box::new);
        // A paced client leaves bytes unread on purpose, so it does not sample arrivals.
        let (sampled, has_no_stamps) = match limited {
            None => SampledPace::new(task.plan, task.connections),
            Some(_) => (SampledPace::never(task.plan), None),
        };
        Worker {
            sampled,
            limited,
            has_no_stamps,
            phase: WorkerPhase::Opening,
            poller,
            openings: vec![Opening::default(); task.connections].into(),
            to_open: VecDeque::new(),
            unread: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            tally: Tally::new(u64::MAX / 2, u64::MAX / 2),
            classes: Classes::new(task.plan, task.connections * protocol.places()),
            ramp: ConnectRamp::new(task.plan.connect_rate_per_sec / f64::from(task.thread.of)),
            opened_first: if A::CONNECTS_ONLY || source.opens_on_demand() { task.connections } else { 0 },
            established: 0,
            connecting: 0,
            last_failure: None,
            in_flight: 0,
            sweep: TimeoutSweep::default(),
            linger_ns: if waits_for_server { task.plan.timeout_ns } else { sweep::LINGER_NS },
            // Over TLS, the first request follows the end of the handshake, which the server may not answer.
            needs_no_delay: task.tls.is_some() || protocol.longest::<S>(task.requests) > SMALL_REQUEST_BYTES,
            polling_ns: 0,
            connections,
            source,
            transport,
            protocol,
            task,
        }
    }

    fn run(mut self) -> Result<WorkerReport, Errno> {
        let (mut begin, mut end) = (None, None);
        let mut is_ready = false;
        let mut now = monotonic_ns();
        loop {
            if self.phase == WorkerPhase::Opening
                && let Some(start_ns) = self.task.control.start_ns()
                && now >= start_ns
            {
                self.start(start_ns, now);
            }
            if self.opened_first < self.connections.len() {
                self.open_first(now);
            }
            self.reopen();
            if !is_ready
                && self.opened_first == self.connections.len()
                && self.connecting == 0
                && self.source.is_ready()
            {
                is_ready = true;
                self.task.control.report_ready();
            }
            if now >= self.source.due_ns() {
                S::send_due(&mut self, now);
            }
            self.read_rested(now);
            if now >= self.sweep.next_ns {
                now = monotonic_ns();
                self.sweep(now);
            }
            let is_cut = self.task.control.cut_ns().is_some();
            if self.has_begun() {
                if is_cut {
                    now = monotonic_ns();
                    self.cut(now);
                }
                if begin.is_none() && now >= self.tally.begin_ns {
                    begin = Some(ThreadReading::now(now, self.polling_ns));
                }
                self.end_with_the_source(now);
                // A run that is cut short in the warm-up has no window.
                let is_over = now >= self.tally.end_ns || (now < self.tally.begin_ns && is_cut);
                if !self.is_draining() && is_over {
                    end = Some(ThreadReading::now(now, self.polling_ns));
                    self.phase = WorkerPhase::Draining;
                    self.source.window_ends();
                }
                if self.is_draining() && self.is_drained(now) {
                    break;
                }
            } else if is_cut {
                break;
            }
            self.publish(now);
            let count = self.wait(now)?;
            now = monotonic_ns();
            self.after_wait(now, count);
            self.take_events(count, &mut now);
        }
        self.account_for_the_rest(now);
        self.tally.finish(S::IS_SCHEDULED);
        self.publish(now);
        Ok(self.report(begin, end))
    }

    fn report(self, begin: Option<ThreadReading>, end: Option<ThreadReading>) -> WorkerReport {
        let mut report = WorkerReport {
            begin: begin.unwrap_or_default(),
            end: end.or(begin).unwrap_or_default(),
            connection_memory_bytes: self.connections.capacity() * size_of::<Connection<A::Stream>>()
                + size_of_val(&*self.openings)
                + self.protocol.traces().map_or(0, Traces::memory_bytes)
                + self.sweep.carry_bytes_max,
            tally: self.tally,
            classes: self.classes,
            comparison: None,
            bits_per_sec: Vec::new(),
            tls: None,
            has_no_stamps: self.has_no_stamps,
        };
        self.source.report(&mut report);
        self.transport.report(&mut report);
        self.sampled.report(&mut report);
        if let Some(limited) = &self.limited {
            limited.report(&mut report);
        }
        report
    }

    fn start(&mut self, start_ns: u64, now: u64) {
        self.phase = WorkerPhase::Loading;
        let begin_ns = start_ns + self.task.plan.warmup_ns;
        let end_ns = begin_ns + self.task.plan.duration_ns;
        let before = std::mem::replace(&mut self.tally, Tally::new(begin_ns, end_ns));
        self.tally.take_connections(before);
        S::begin(self, start_ns, now);
    }

    fn has_begun(&self) -> bool {
        self.phase != WorkerPhase::Opening
    }

    fn is_loading(&self) -> bool {
        self.phase == WorkerPhase::Loading
    }

    fn is_draining(&self) -> bool {
        self.phase == WorkerPhase::Draining
    }

    /// Cuts the run short without waiting for responses. The window ends just after `now`, so that it contains every
    /// request that was counted as sent.
    fn cut(&mut self, now: u64) {
        if now + 1 < self.tally.end_ns {
            self.tally.end_ns = (now + 1).max(self.tally.begin_ns);
            self.source.cut(now + 1);
        }
    }

    fn is_drained(&self, now: u64) -> bool {
        let end_ns = self.tally.end_ns;
        let grace_ns = (GRACE_NS + 2 * self.ramp.shortest_ns()).min(self.task.plan.timeout_ns);
        if self.task.control.cut_ns().is_some() || now >= end_ns + grace_ns {
            return true;
        }
        // The end of the run waits for connection attempts that are made for requests.
        let attempts_are_requests = !S::IS_SCHEDULED || self.source.opens_on_demand();
        self.in_flight == 0 && self.source.is_done() && (self.connecting == 0 || !attempts_are_requests)
    }

    fn end_with_the_source(&mut self, now: u64) {
        if self.source.ends_window() && self.in_flight == 0 && self.connecting == 0 && now < self.tally.end_ns {
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
            if *now >= self.source.due_ns() {
                S::send_due(self, *now);
            }
            if !self.to_open.is_empty() {
                self.reopen();
            }
        }
        for slot in std::mem::take(&mut self.unread) {
            // The slot may have been closed since; a reopened one reads "would block".
            if matches!(
                self.connections[slot as usize].state,
                ConnectionState::Busy
                    | ConnectionState::Idle
                    | ConnectionState::Lingering
                    | ConnectionState::Handshaking
                    | ConnectionState::Opening
            ) {
                *now = monotonic_ns();
                T::receive(self, slot as usize, *now);
            }
        }
    }
}
