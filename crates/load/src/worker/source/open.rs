//! Due requests without a free connection wait in the schedule: its cursor stays at the first of them. They are sent in
//! order as soon as a connection is free, however late; none is dropped.

use super::Source;
use crate::arrival::Schedule;
use crate::connection::{Connection, ConnectionState, QUEUED};
use crate::request::{Requests, TargetChoice};
use crate::worker::{Task, Transport, WireProtocol, Worker, WorkerReport};
use record::Arrival;
use record::time::monotonic_ns;
use std::collections::VecDeque;

pub(crate) struct OpenLoop<'a> {
    choice: TargetChoice,
    rate_per_sec: f64,
    arrival: Arrival,
    given: Option<Box<dyn Iterator<Item = u64> + Send + 'a>>,
    /// Whether connections are opened only when a request needs them; true with a limit of requests per connection.
    is_on_demand: bool,
    schedule: Option<Schedule<'a>>,
    /// `u64::MAX`: never.
    due_ns: u64,
    /// Connections that can take a request, longest idle first. Entries may be stale: see `take_free`.
    free: VecDeque<u32>,
    /// When the free connections for due requests ran out.
    starved_since_ns: Option<u64>,
}

impl<'a> OpenLoop<'a> {
    pub(crate) fn new(task: &Task<'a>, rate_per_sec: f64, arrival: Arrival) -> Self {
        let is_given = arrival == Arrival::Series;
        OpenLoop {
            choice: TargetChoice::new(task.requests, task.plan.seed, task.share),
            rate_per_sec,
            arrival,
            given: is_given.then(|| task.supply.arrivals(task.plan, task.share)).flatten(),
            is_on_demand: task.plan.requests_per_connection > 0,
            schedule: None,
            due_ns: u64::MAX,
            free: VecDeque::with_capacity(task.connections),
            starved_since_ns: None,
        }
    }

    fn note_due(&mut self) {
        self.due_ns = self.schedule.as_ref().and_then(Schedule::peek).unwrap_or(u64::MAX);
    }

    fn advance(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.next();
        }
        self.note_due();
    }
}

impl Source for OpenLoop<'_> {
    const IS_SCHEDULED: bool = true;

    fn begin<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, start_ns: u64, _now: u64) {
        let (seed, share) = (worker.task.plan.seed, worker.task.share);
        let (begin_ns, end_ns) = (worker.tally.begin_ns, worker.tally.end_ns);
        let open = &mut worker.source;
        open.schedule = Some(match open.given.take() {
            Some(times) => Schedule::given(open.rate_per_sec, seed, share, (start_ns, begin_ns, end_ns), times),
            None => Schedule::new(open.rate_per_sec, open.arrival, seed, share, start_ns, end_ns),
        });
        open.note_due();
        if open.is_on_demand {
            (0..worker.connections.len()).for_each(|slot| worker.make_free(slot));
        }
    }

    fn connected<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64) {
        worker.last_failure = None;
        match worker.connections[slot].take_carried_request() {
            Some(intended_ns) => {
                let Connection { since_ns: begun_ns, first_byte_ns: waits_since_ns, .. } = worker.connections[slot];
                // Opening the connection is the wait for it; if connections are the requests, it is the request.
                let left_ns = if A::CONNECTS_ONLY { begun_ns } else { now };
                worker.tally.left(intended_ns, left_ns, left_ns.saturating_sub(waits_since_ns));
                worker.send_request(slot, intended_ns, now);
                worker.keep_free(slot);
            }
            None => worker.make_free(slot),
        }
    }

    #[inline]
    fn answered<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64) {
        worker.make_free(slot);
        if worker.source.starved_since_ns.is_some() {
            Self::send_due(worker, now);
        }
    }

    fn closed<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize) {
        if worker.source.is_on_demand {
            worker.make_free(slot);
        } else {
            worker.to_open.push_back(slot as u32);
        }
    }

    fn send_due<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, now: u64) {
        let mut now = now;
        while worker.source.due_ns <= now {
            let intended_ns = worker.source.due_ns;
            let Some(slot) = worker.take_free() else {
                if worker.has_no_connection() && worker.fail_due(now) {
                    continue;
                }
                worker.source.starved_since_ns.get_or_insert(now);
                return;
            };
            worker.source.advance();
            // The wait for a connection began when the request was due, or when the connections ran out.
            let waits_since_ns = worker.source.starved_since_ns.map_or(now, |since| since.max(intended_ns));
            if worker.connections[slot].state != ConnectionState::Closed {
                worker.tally.left(intended_ns, now, now.saturating_sub(waits_since_ns));
                worker.send_request(slot, intended_ns, now);
                worker.keep_free(slot);
            } else {
                worker.connections[slot].carry_request(intended_ns, waits_since_ns);
                worker.open(slot, now);
            }
            now = monotonic_ns();
        }
        worker.source.starved_since_ns = None;
    }

    #[inline]
    fn due_ns(&self) -> u64 {
        self.due_ns
    }

    fn wake_ns(&self) -> u64 {
        if self.starved_since_ns.is_some() { u64::MAX } else { self.due_ns }
    }

    #[inline]
    fn target(&mut self, requests: &Requests, _slot: usize) -> usize {
        self.choice.next(requests)
    }

    fn opens_on_demand(&self) -> bool {
        self.is_on_demand
    }

    fn is_done(&self) -> bool {
        self.due_ns == u64::MAX
    }

    fn cut(&mut self, end_ns: u64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.cut(end_ns);
        }
        self.note_due();
    }

    fn left_over(&mut self, _end_ns: u64) -> impl Iterator<Item = u64> {
        self.schedule.take().into_iter().flatten()
    }

    fn report(&self, report: &mut WorkerReport) {
        report.connection_memory_bytes += self.free.capacity() * size_of::<u32>();
    }
}

impl<T: Transport, A: WireProtocol> Worker<'_, OpenLoop<'_>, T, A> {
    fn make_free(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.has(QUEUED) {
            connection.set(QUEUED, true);
            self.source.free.push_back(slot as u32);
        }
    }

    #[inline]
    fn keep_free(&mut self, slot: usize) {
        if A::IS_PIPELINED && self.has_room(slot) {
            self.make_free(slot);
        }
    }

    fn take_free(&mut self) -> Option<usize> {
        while let Some(slot) = self.source.free.pop_front() {
            let slot = slot as usize;
            let connection = &mut self.connections[slot];
            connection.set(QUEUED, false);
            // A connection that ended while in the queue leaves a stale entry.
            let is_closed = connection.state == ConnectionState::Closed;
            if self.has_room(slot) || (self.source.is_on_demand && is_closed) {
                return Some(slot);
            }
        }
        None
    }

    /// Fails the due requests if every connection failed to open and pauses. Returns false if no connection has
    /// failed yet.
    fn fail_due(&mut self, now: u64) -> bool {
        let Some(failure) = self.last_failure else { return false };
        let intended_ns = self.source.due_ns;
        self.source.advance();
        self.tally.issued(intended_ns);
        self.tally.failed(intended_ns, now, failure);
        true
    }
}
