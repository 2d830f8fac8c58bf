//! A client holds a connection slot while it has an open connection or a waiting request. Its requests are sent one
//! after another in the log's order, also across sessions: the first request of a session waits for the response to
//! the last one before it. A due request is sent as soon as its client is free, however late; none is dropped. With
//! [`WAITING_LIMIT`] waiting requests, the log is not read further, which bounds the memory. Intended times remain
//! those of the log.
//!
//! If there are more clients than slots, the connection that has been idle the longest is closed for the next client
//! (counted as evicted); if all are busy, the client waits for the first free one.

mod clients;

use super::Source;
use crate::connection::ConnectionState;
use crate::replay::{Feed, FeedStep, Next, PendingRequest, compare};
use crate::request::Requests;
use crate::worker::{Task, Transport, WireProtocol, Worker, WorkerReport};
use clients::DueStep;
use record::time::monotonic_ns;
use record::workload::ReplayResult;
use std::collections::{HashMap, VecDeque};

const WAITING_LIMIT: usize = 1 << 16;
/// Requests per connection that are searched for free clients in mode "as fast as possible".
const READ_AHEAD: usize = 16;
/// Pause before checking again whether a late reader has a step.
const RETRY_NS: u64 = 300_000;

pub(crate) struct Replay {
    feed: Feed,
    /// Whether requests are sent at the log's times; otherwise as fast as the server answers.
    is_paced: bool,
    start_ns: u64,
    due_ns: u64,
    clients: HashMap<u64, ReplayClient>,
    slots: Vec<ReplaySlot>,
    free: Vec<u32>,
    /// Longest idle first. Entries may be stale.
    idle: VecDeque<IdleSlot>,
    unplaced: VecDeque<u64>,
    /// Slots whose connection is free or gone. The loop handles them, not the code that freed them, to avoid
    /// recursion.
    freed: Vec<u32>,
    waiting: usize,
    waiting_limit: usize,
    /// Since when the log is not read because too many requests wait.
    stalled_since_ns: Option<u64>,
    is_over: bool,
    /// The comparison with the log.
    comparison: ReplayResult,
}

struct IdleSlot {
    slot: u32,
    /// The number of its visit.
    visit: u32,
}

#[derive(Default)]
struct ReplayClient {
    slot: Option<u32>,
    queue: VecDeque<FeedStep>,
}

#[derive(Default)]
struct ReplaySlot {
    client: Option<u64>,
    session: u64,
    /// Number of uses of the slot; identifies stale entries of the idle queue.
    visits: u32,
    /// The visit in which the slot was last put into the idle queue.
    rested: Option<u32>,
    under_way: Option<Box<PendingRequest>>,
}

impl Replay {
    pub(crate) fn new(task: &Task<'_>, feed: Feed) -> Self {
        let (slots, is_paced) = (task.connections, task.plan.pace != record::Pace::Closed);
        let waiting_limit = if is_paced { WAITING_LIMIT } else { (READ_AHEAD * slots).clamp(64, WAITING_LIMIT) };
        Replay {
            feed,
            is_paced,
            start_ns: 0,
            due_ns: u64::MAX,
            clients: HashMap::new(),
            slots: (0..slots).map(|_| ReplaySlot::default()).collect(),
            free: (0..slots as u32).rev().collect(),
            idle: VecDeque::new(),
            unplaced: VecDeque::new(),
            freed: Vec::new(),
            waiting: 0,
            waiting_limit,
            stalled_since_ns: None,
            is_over: false,
            comparison: ReplayResult::default(),
        }
    }

    fn freed(&mut self, slot: usize) {
        self.freed.push(slot as u32);
        self.due_ns = 0;
    }
}

impl Source for Replay {
    const IS_SCHEDULED: bool = true;
    const IS_LOG: bool = true;

    fn begin<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, start_ns: u64, _now: u64) {
        // The duration of a log is unknown before its end.
        worker.tally.series = crate::series::Series::growing(worker.tally.begin_ns);
        worker.source.start_ns = start_ns;
        worker.source.due_ns = start_ns;
    }

    fn connected<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64) {
        match worker.connections[slot].take_carried_request() {
            Some(intended_ns) => worker.send_replayed(slot, intended_ns, now),
            None => worker.source.freed(slot),
        }
    }

    #[inline]
    fn answered<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, _now: u64) {
        worker.source.freed(slot);
    }

    fn closed<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize) {
        worker.source.freed(slot);
    }

    fn send_due<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, now: u64) {
        let mut now = now;
        loop {
            while let Some(slot) = worker.source.freed.pop() {
                worker.take_next_step(slot as usize, now);
                now = monotonic_ns();
            }
            match worker.source.due(now, worker.tally.end_ns) {
                DueStep::At(at_ns) if worker.source.freed.is_empty() => {
                    worker.source.due_ns = at_ns;
                    return;
                }
                DueStep::At(_) => {}
                DueStep::Now(step) => worker.enqueue(step, now),
            }
            now = monotonic_ns();
        }
    }

    #[inline]
    fn due_ns(&self) -> u64 {
        self.due_ns
    }

    fn target(&mut self, _requests: &Requests, slot: usize) -> usize {
        usize::from(self.logged(slot).is_some_and(|request| request.is_head))
    }

    fn logged(&self, slot: usize) -> Option<&PendingRequest> {
        self.slots[slot].under_way.as_deref()
    }

    fn opens_on_demand(&self) -> bool {
        true
    }

    fn is_ready(&mut self) -> bool {
        self.feed.peek() != Next::NotYet
    }

    fn compare(&mut self, slot: usize, status: u16, body_bytes: u64) {
        if let Some(request) = &self.slots[slot].under_way {
            compare(&mut self.comparison, request, status, body_bytes);
        }
    }

    fn is_done(&self) -> bool {
        self.due_ns == u64::MAX && self.is_over && self.waiting == 0 && self.freed.is_empty()
    }

    fn ends_window(&self) -> bool {
        self.comparison.is_whole && self.waiting == 0 && self.freed.is_empty()
    }

    fn window_ends(&mut self) {
        self.due_ns = 0;
    }

    fn left_over(&mut self, end_ns: u64) -> impl Iterator<Item = u64> {
        let mut left = Vec::new();
        if !self.is_paced {
            return left.into_iter();
        }
        for item in self.clients.values_mut().flat_map(|client| client.queue.drain(..)) {
            if let FeedStep::Request(request) = item {
                left.push(request.intended_ns);
            }
        }
        self.waiting = 0;
        // With a full queue, more requests were due. Do not wait long for the reader.
        let give_up_ns = monotonic_ns() + 200_000_000;
        while !self.is_over {
            match self.feed.peek() {
                Next::Step(at_ns) if self.start_ns.saturating_add(at_ns) < end_ns => match self.feed.take() {
                    Some(FeedStep::Request(request)) => left.push(self.start_ns + request.intended_ns),
                    Some(FeedStep::Close { .. }) => {}
                    None => break,
                },
                Next::NotYet if monotonic_ns() < give_up_ns => {
                    std::thread::sleep(std::time::Duration::from_micros(100))
                }
                _ => break,
            }
        }
        left.into_iter()
    }

    fn report(&self, report: &mut WorkerReport) {
        report.comparison = Some(self.comparison.clone());
    }
}

impl<T: Transport, A: WireProtocol> Worker<'_, Replay, T, A> {
    fn enqueue(&mut self, step: FeedStep, now: u64) {
        let replay = &mut self.source;
        let (key, is_request) = match &step {
            FeedStep::Request(request) => (request.client, true),
            FeedStep::Close { client, .. } => (*client, false),
        };
        replay.waiting += usize::from(is_request);
        if let Some(client) = replay.clients.get_mut(&key) {
            client.queue.push_back(step);
            if let Some(slot) = client.slot {
                self.take_next_step(slot as usize, now);
            }
            return;
        }
        if !is_request {
            return;
        }
        replay.clients.insert(key, ReplayClient { slot: None, queue: VecDeque::from([step]) });
        if let Some(slot) = replay.free.pop() {
            replay.place(slot, key);
            self.take_next_step(slot as usize, now);
        } else if let Some(slot) = replay.longest_idle() {
            // The client had nothing to send; its later requests open a new connection.
            if let Some(former) = replay.slots[slot as usize].client.take() {
                replay.clients.remove(&former);
            }
            replay.place(slot, key);
            if self.connections[slot as usize].state == ConnectionState::Idle {
                self.drop_socket(slot as usize, now, true);
            }
            self.take_next_step(slot as usize, now);
        } else {
            replay.unplaced.push_back(key);
        }
    }

    fn take_next_step(&mut self, slot: usize, now: u64) {
        loop {
            let state = self.connections[slot].state;
            if !matches!(state, ConnectionState::Idle | ConnectionState::Closed) {
                return;
            }
            let replay = &mut self.source;
            let Some(key) = replay.slots[slot].client else { return };
            let Some(client) = replay.clients.get_mut(&key) else { return };
            match client.queue.front() {
                None if state == ConnectionState::Closed => return replay.release(slot as u32),
                None if replay.unplaced.is_empty() => return replay.rests(slot as u32),
                None => {
                    // Another client waits for a connection; this client opens a new one for its next request.
                    replay.comparison.evicted += 1;
                    self.drop_socket(slot, now, true);
                }
                Some(FeedStep::Close { session, .. }) => {
                    let is_open = state == ConnectionState::Idle && replay.slots[slot].session == *session;
                    client.queue.pop_front();
                    if is_open {
                        self.drop_socket(slot, now, true);
                    }
                }
                Some(FeedStep::Request(request)) => {
                    let session = request.session;
                    if state == ConnectionState::Idle && replay.slots[slot].session != session {
                        self.drop_socket(slot, now, true);
                        continue;
                    }
                    let Some(FeedStep::Request(request)) = client.queue.pop_front() else { return };
                    replay.waiting -= 1;
                    let entry = &mut replay.slots[slot];
                    entry.session = session;
                    entry.visits = entry.visits.wrapping_add(1);
                    let intended_ns = if replay.is_paced { request.intended_ns } else { now };
                    entry.under_way = Some(request);
                    if state == ConnectionState::Idle {
                        self.send_replayed(slot, intended_ns, now);
                    } else {
                        self.connections[slot].carry_request(intended_ns, now);
                        self.open(slot, now);
                    }
                    return;
                }
            }
        }
    }

    fn send_replayed(&mut self, slot: usize, intended_ns: u64, now: u64) {
        if !self.source.is_paced {
            // In mode "as fast as possible", a request is intended for the earliest possible time.
            return self.send_request(slot, now, now);
        }
        let Some(request) = self.source.logged(slot) else { return };
        self.tally.left(intended_ns, now, now.saturating_sub(request.taken_ns));
        self.send_request(slot, intended_ns, now);
    }
}
