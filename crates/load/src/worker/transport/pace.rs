//! A limited connection reads a quantum, then pauses until its pace allows the next one. Meanwhile, bytes fill the
//! socket's small receive buffer and close the window, which delays the server as a slow link does. Pauses are timers
//! in one heap for each thread, on a grid of a millisecond, so a wake-up serves many connections and nothing polls.

use super::Transport;
use crate::connection::ConnectionState;
use crate::socket::{self, Errno};
use crate::worker::{Source, WireProtocol, Worker, WorkerReport};
use record::ClientPlan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const READS_PER_SEC: f64 = 10.0;
/// Minimum read: an Ethernet segment, the smallest unit in which links are shared.
const SMALLEST_READ: usize = 1460;
const LARGEST_READ: usize = 64 * 1024;
/// Timers are rounded up to a multiple of this.
const GRID_NS: u64 = 1_000_000;
/// Connections begin in this many groups, spread over the time of one read.
const GROUPS: u64 = 64;

/// Controls when a connection may read and how much.
pub struct LimitedPace {
    bytes_per_sec: f64,
    quantum: usize,
    /// Duration of one read. Delays up to this are made up for.
    interval_ns: u64,
    /// Whether all delay since the request is made up for, as with a fixed bandwidth.
    makes_up: bool,
    allowed_ns: Vec<u64>,
    has_timer: Vec<bool>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bytes that each connection received inside the window.
    received: Vec<u64>,
}

impl LimitedPace {
    /// `None` if the plan does not limit its clients.
    pub fn new(clients: &ClientPlan, connections: usize) -> Option<Self> {
        let bytes_per_sec = clients.pace_bytes_per_sec()?.max(1.0);
        let quantum = ((bytes_per_sec / READS_PER_SEC) as usize).clamp(SMALLEST_READ, LARGEST_READ);
        let interval_ns = ((quantum as f64 * 1e9 / bytes_per_sec) as u64).min(999_999_999);
        Some(LimitedPace {
            bytes_per_sec,
            quantum,
            interval_ns,
            makes_up: clients.bandwidth.is_some(),
            // Offsets before a slot's first request, then times.
            allowed_ns: (0..connections as u64).map(|slot| slot % GROUPS * (interval_ns / GROUPS)).collect(),
            has_timer: vec![false; connections],
            timers: BinaryHeap::with_capacity(connections),
            received: vec![0; connections],
        })
    }

    /// Received bits per second of each connection.
    pub fn bits_per_sec(&self, window_ns: u64) -> Vec<f64> {
        let seconds = window_ns.max(1) as f64 / 1e9;
        self.received.iter().map(|bytes| (*bytes as f64 * 8.0 / seconds).round()).collect()
    }

    fn set_timer(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.has_timer[slot], true) {
            let due_ns = self.allowed_ns[slot].div_ceil(GRID_NS) * GRID_NS;
            self.timers.push(Reverse((due_ns, slot as u32)));
        }
    }
}

impl LimitedPace {
    pub(crate) fn prepare(&self, fd: i32) -> Result<(), Errno> {
        socket::set_narrow(fd, (self.bytes_per_sec / 8.0).clamp(8192.0, 1_048_576.0) as i32)
    }

    /// Time before the request is not made up for, except the spread of the first requests.
    pub fn request_leaves(&mut self, slot: usize, now_ns: u64) {
        let allowed = &mut self.allowed_ns[slot];
        *allowed = if *allowed < 1_000_000_000 { now_ns + *allowed } else { (*allowed).max(now_ns) };
    }

    /// Bytes that `slot` may read now, at most `most`; `None` while it pauses, with its timer set.
    pub fn room(&mut self, slot: usize, now_ns: u64, most: usize) -> Option<usize> {
        if self.allowed_ns[slot] > now_ns {
            self.set_timer(slot);
            return None;
        }
        Some(self.quantum.min(most))
    }

    /// Called when `slot` has read `bytes` of a response. A timer reads the rest, because the event that announced it
    /// does not repeat.
    pub fn took(&mut self, slot: usize, bytes: usize, now_ns: u64, in_window: bool) {
        if !self.makes_up {
            let allowed = &mut self.allowed_ns[slot];
            *allowed = (*allowed).max(now_ns.saturating_sub(self.interval_ns));
        }
        self.allowed_ns[slot] += (bytes as f64 * 1e9 / self.bytes_per_sec) as u64;
        if in_window {
            self.received[slot] += bytes as u64;
        }
        self.set_timer(slot);
    }

    /// When the next timer is due; `u64::MAX`: never.
    pub fn next_due_ns(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// A connection whose timer is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        let Reverse((due_ns, slot)) = *self.timers.peek()?;
        if due_ns > now_ns {
            return None;
        }
        self.timers.pop();
        self.has_timer[slot as usize] = false;
        Some(slot as usize)
    }

    pub(crate) fn report(&self, report: &mut WorkerReport) {
        report.bits_per_sec = self.bits_per_sec(report.tally.end_ns.saturating_sub(report.tally.begin_ns));
        report.connection_memory_bytes += self.allowed_ns.capacity() * 8
            + self.has_timer.capacity()
            + self.timers.capacity() * size_of::<(u64, u32)>()
            + self.received.capacity() * 8;
    }
}

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    /// Number of bytes, at most `most`, that a connection may read now; `None` while it pauses.
    #[inline]
    pub(super) fn room(&mut self, slot: usize, now: u64, most: usize) -> Option<usize> {
        // Only responses are paced.
        match &mut self.limited {
            Some(limited) if self.connections[slot].state == ConnectionState::Busy => limited.room(slot, now, most),
            _ => Some(most),
        }
    }

    #[inline]
    pub(super) fn note_read(&mut self, slot: usize, now: u64, bytes: usize) {
        if let Some(limited) = &mut self.limited
            && self.connections[slot].state == ConnectionState::Busy
        {
            limited.took(slot, bytes, now, self.tally.covers(now));
        }
    }

    #[inline]
    pub(in crate::worker) fn after_wait(&mut self, now: u64, events: usize) {
        if now >= self.sampled.next_check_ns() {
            let are_all = !self.poller.is_full(events) && self.unread.is_empty();
            if let Some(timed) = self.sampled.after_wait(now, events, are_all) {
                self.tally.dated(timed);
            }
        }
    }

    #[inline]
    pub(in crate::worker) fn read_rested(&mut self, now: u64) {
        while let Some(slot) = self.limited.as_mut().and_then(|limited| limited.take_due(now)) {
            // Responses and connections may have ended since the timer was set; a multiplexed connection may have
            // bytes that belong to no request.
            let state = self.connections[slot].state;
            if state == ConnectionState::Busy || (A::IS_MULTIPLEXED && state == ConnectionState::Idle) {
                T::receive(self, slot, now);
            }
        }
    }
}
