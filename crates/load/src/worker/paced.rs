//! Clients that read at a limited pace: slow ones, and those of fixed bandwidth.
//!
//! A paced connection reads a quantum, then rests until its pace allows the next one; what waits meanwhile fills the
//! socket's small receive buffer, closes the window, and holds the server as a slow link does. Rests are timers in one
//! heap a thread, on a grid of a millisecond, so that a wake-up serves many connections and nothing polls.

use super::Worker;
use crate::connection::State;
use crate::socket;
use record::ClientPlan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A connection reads about so often each second.
const READS_PER_SEC: f64 = 10.0;
/// The smallest read: less than a segment of an Ethernet is not how links are shared.
const SMALLEST_READ: usize = 1460;
const LARGEST_READ: usize = 64 * 1024;
/// Timers are rounded up to this.
const GRID_NS: u64 = 1_000_000;
/// Connections begin in so many groups, spread over the time of one read.
const GROUPS: u64 = 64;

pub(super) struct Pacing {
    bytes_per_sec: f64,
    quantum: usize,
    /// Time of one read; at most so much of what was missed is made up for.
    interval_ns: u64,
    /// All that was missed since the request is made up for: a fixed bandwidth.
    makes_up: bool,
    /// When each connection may read again.
    allowed_ns: Vec<u64>,
    has_timer: Vec<bool>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// What each connection received inside the window.
    received: Vec<u64>,
}

impl Pacing {
    pub(super) fn new(clients: &ClientPlan, connections: usize) -> Option<Box<Pacing>> {
        let bytes_per_sec = clients.pace_bytes_per_sec()?.max(1.0);
        let quantum = ((bytes_per_sec / READS_PER_SEC) as usize).clamp(SMALLEST_READ, LARGEST_READ);
        let interval_ns = ((quantum as f64 * 1e9 / bytes_per_sec) as u64).min(999_999_999);
        Some(Box::new(Pacing {
            bytes_per_sec,
            quantum,
            interval_ns,
            makes_up: clients.bandwidth.is_some(),
            // Offsets until the first request sets them against the clock.
            allowed_ns: (0..connections as u64).map(|slot| slot % GROUPS * (interval_ns / GROUPS)).collect(),
            has_timer: vec![false; connections],
            timers: BinaryHeap::with_capacity(connections),
            received: vec![0; connections],
        }))
    }

    /// Bytes of the receive buffer that a client of this pace has.
    pub(super) fn buffer_bytes(bytes_per_sec: f64) -> i32 {
        (bytes_per_sec / 8.0).clamp(8192.0, 1_048_576.0) as i32
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.allowed_ns.capacity() * 8
            + self.has_timer.capacity()
            + self.timers.capacity() * size_of::<(u64, u32)>()
            + self.received.capacity() * 8
    }

    /// Bandwidth of each connection in the window, bits per second.
    pub(super) fn bits_per_sec(&self, window_ns: u64) -> Vec<f64> {
        let seconds = window_ns.max(1) as f64 / 1e9;
        self.received.iter().map(|bytes| *bytes as f64 * 8.0 / seconds).collect()
    }

    /// A request leaves: time before it cannot be made up for, except for the spread of the first ones.
    pub(super) fn request_leaves(&mut self, slot: usize, now_ns: u64) {
        let allowed = &mut self.allowed_ns[slot];
        *allowed = if *allowed < 1_000_000_000 { now_ns + *allowed } else { (*allowed).max(now_ns) };
    }

    fn took(&mut self, slot: usize, bytes: usize, now_ns: u64, in_window: bool) {
        if !self.makes_up {
            let allowed = &mut self.allowed_ns[slot];
            *allowed = (*allowed).max(now_ns.saturating_sub(self.interval_ns));
        }
        self.allowed_ns[slot] += (bytes as f64 * 1e9 / self.bytes_per_sec) as u64;
        if in_window {
            self.received[slot] += bytes as u64;
        }
    }

    fn set_timer(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.has_timer[slot], true) {
            let due_ns = self.allowed_ns[slot].div_ceil(GRID_NS) * GRID_NS;
            self.timers.push(Reverse((due_ns, slot as u32)));
        }
    }

    pub(super) fn next_due_ns(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        let Reverse((due_ns, slot)) = *self.timers.peek()?;
        if due_ns > now_ns {
            return None;
        }
        self.timers.pop();
        self.has_timer[slot as usize] = false;
        Some(slot as usize)
    }
}

impl Worker<'_> {
    /// The bytes that a connection may read now; `None` when it rests, with its timer set.
    pub(super) fn paced_room(&mut self, slot: usize, now: u64, room: usize) -> Option<usize> {
        let Some(pacing) = self.pacing.as_deref_mut() else { return Some(room) };
        if self.connections[slot].state != State::Busy {
            return Some(room);
        }
        if pacing.allowed_ns[slot] > now {
            pacing.set_timer(slot);
            return None;
        }
        Some(pacing.quantum.min(room))
    }

    /// Notes what a paced connection has read. More may be there: it is looked for when the pace allows, as the event that
    /// announced it does not come again.
    pub(super) fn paced_took(&mut self, slot: usize, now: u64, bytes: usize) {
        let in_window = self.tally.covers(now);
        if let Some(pacing) = self.pacing.as_deref_mut() {
            pacing.took(slot, bytes, now, in_window);
            pacing.set_timer(slot);
        }
    }

    /// Lets the connections read whose rest is over.
    pub(super) fn read_paced(&mut self, now: u64) {
        while let Some(slot) = self.pacing.as_deref_mut().and_then(|pacing| pacing.take_due(now)) {
            // Responses may have ended, and connections with them, since the timer was set.
            if self.connections[slot].state == State::Busy {
                self.receive_paced(slot, now);
            }
        }
    }

    /// One read at the connection's pace.
    pub(super) fn receive_paced(&mut self, slot: usize, now: u64) {
        if self.connections[slot].state != State::Busy {
            return self.receive(slot, now);
        }
        let Some(room) = self.paced_room(slot, now, LARGEST_READ) else { return };
        self.system_calls += 1;
        match socket::receive(self.connections[slot].fd, &mut self.buffer[..room]) {
            Ok(0) => self.on_end(slot, now),
            Ok(count) => {
                self.paced_took(slot, now, count);
                self.take_response_bytes(slot, count, now);
            }
            Err(error) if error.would_block() => {}
            Err(error) => self.on_error(slot, now, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_rests_as_long_as_its_pace_demands() {
        let clients = ClientPlan { read_bytes_per_sec: 50_000, ..Default::default() };
        let mut pacing = Pacing::new(&clients, 2).unwrap();
        assert_eq!(pacing.quantum, 5000);
        let now = 10_000_000_000;
        pacing.request_leaves(0, now);
        pacing.took(0, 5000, now, true);
        pacing.took(0, 5000, now, false);
        pacing.set_timer(0);
        pacing.set_timer(0);
        assert_eq!(pacing.next_due_ns(), now + 200_000_000);
        assert_eq!(pacing.take_due(now), None);
        assert_eq!(pacing.take_due(now + 200_000_000), Some(0));
        assert_eq!(pacing.take_due(u64::MAX), None, "one timer a connection");
        assert_eq!(pacing.bits_per_sec(1_000_000_000), [40_000.0, 0.0]);
    }
}
