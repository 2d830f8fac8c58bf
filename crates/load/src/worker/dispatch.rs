//! Open loop: which request leaves when, and on which connection.
//!
//! Requests that are due but find no free connection wait in the schedule itself: the cursor stands at the first of
//! them. They leave in order, at once when a connection becomes free, however late, and none is dropped.

use super::Worker;
use crate::connection::{CARRIES_REQUEST, QUEUED, State};
use record::time::monotonic_ns;

impl Worker<'_> {
    /// Sends every request that is due and finds a connection.
    pub(super) fn dispatch(&mut self, now: u64) {
        if self.replay.is_some() {
            return self.dispatch_replay(now);
        }
        let mut now = now;
        while self.next_due_ns <= now {
            let intended_ns = self.next_due_ns;
            let Some(slot) = self.take_free() else {
                if self.established == 0 && self.connecting == 0 && self.to_open.is_empty() && self.fail_due(now) {
                    continue;
                }
                self.starved_since_ns.get_or_insert(now);
                return;
            };
            self.advance_schedule();
            // Waiting for a connection began when the request was due, or when connections had run out.
            let wait_ns = self.starved_since_ns.map_or(0, |since| now.saturating_sub(since.max(intended_ns)));
            if self.connections[slot].state == State::Idle {
                self.tally.left(intended_ns, now, wait_ns);
                self.send_request(slot, intended_ns, now);
            } else {
                let connection = &mut self.connections[slot];
                connection.intended_ns = intended_ns;
                connection.set(CARRIES_REQUEST, true);
                self.open(slot, now);
            }
            now = monotonic_ns();
        }
        self.starved_since_ns = None;
    }

    fn advance_schedule(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.next();
            self.next_due_ns = schedule.peek().unwrap_or(u64::MAX);
        }
    }

    /// The connection that has been free the longest.
    fn take_free(&mut self) -> Option<usize> {
        while let Some(slot) = self.free.pop_front() {
            let slot = slot as usize;
            let connection = &mut self.connections[slot];
            connection.set(QUEUED, false);
            // A connection that ended while it was in the queue leaves a stale entry.
            if connection.state == State::Idle || (self.is_on_demand && connection.state == State::Closed) {
                return Some(slot);
            }
        }
        None
    }

    /// Every connection failed to open and rests: what is due now has failed the same way. False when none has failed
    /// yet.
    fn fail_due(&mut self, now: u64) -> bool {
        let Some(failure) = self.last_failure else { return false };
        let intended_ns = self.next_due_ns;
        self.advance_schedule();
        self.tally.issued(intended_ns);
        self.tally.failed(intended_ns, now, failure);
        true
    }
}
