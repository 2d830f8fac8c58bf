//! Timeouts, and what remains when the run ends.
//!
//! Timeouts are found by walking over the connections, a stretch at a time, instead of by a list in order of expiry:
//! such a list is O(1), too, but touches two other connections on every request, which at ten thousand connections is
//! two cache misses; the walk costs about 2 ns per connection and round, whatever the request rate.

use super::Worker;
use crate::connection::{ASKED, CARRIES_REQUEST, HEARD, State};
use crate::herd::HANGS_AFTER_NS;
use crate::tally::Failure;

/// A whole round takes at most this long; a timeout is noticed so much late.
const ROUND_NS: u64 = 20_000_000;
/// Connections in one stretch: a pause of about a microsecond.
const STRETCH: usize = 512;
/// A server that has announced to close gets this long to do so.
pub(super) const LINGER_NS: u64 = 250_000_000;

impl Worker<'_> {
    /// Looks at the next stretch of connections.
    pub(super) fn sweep(&mut self, now: u64) {
        let count = self.connections.len();
        let shortest = self.task.plan.timeout_ns.min(self.task.plan.connect_timeout_ns);
        let round_ns = ROUND_NS.min(shortest / 8).max(1_000_000);
        let stretches = count.div_ceil(STRETCH).max(1) as u64;
        self.next_sweep_ns = now + round_ns / stretches;
        let from = self.sweep_at;
        let to = (from + STRETCH).min(count);
        self.sweep_at = if to == count { 0 } else { to };
        if from == 0 {
            self.carry_bytes_max = self.carry_bytes_max.max(self.carry_bytes_round);
            self.carry_bytes_round = 0;
        }
        for slot in from..to {
            let connection = &self.connections[slot];
            self.carry_bytes_round += connection.framing.carry_bytes();
            let age_ns = now.saturating_sub(connection.since_ns);
            match connection.state {
                State::Busy if age_ns > self.task.plan.timeout_ns => self.request_failed(slot, now, Failure::TimedOut),
                State::Connecting | State::Handshaking if age_ns > self.task.plan.connect_timeout_ns => {
                    self.connect_failed(slot, now, Failure::ConnectTimedOut);
                }
                State::Connecting if age_ns > HANGS_AFTER_NS => self.note_hanging(slot, now),
                State::Lingering if age_ns > self.linger_ns => {
                    self.drop_socket(slot, now, true);
                    self.want_again(slot);
                }
                // Before the start, each slot is tried once.
                State::BackOff if connection.since_ns <= now && self.started => {
                    self.connections[slot].state = State::Closed;
                    self.want_again(slot);
                }
                _ => {}
            }
        }
    }

    /// Books what is under way, or has not left, when the run ends; and closes everything.
    pub(super) fn account_for_the_rest(&mut self, now: u64) {
        let has_window = self.started && self.tally.end_ns > self.tally.begin_ns;
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            match connection.state {
                State::Busy => {
                    let intended_ns = connection.intended_ns;
                    self.asked(slot, intended_ns, now);
                    self.tally.unfinished(intended_ns, now, true);
                    if let Some(classes) = &mut self.classes {
                        classes.unfinished(slot, self.tally.belongs(intended_ns, now));
                    }
                }
                // The attempt was for a request: of the schedule, or in a closed loop of the connection itself.
                State::Connecting | State::Handshaking if connection.has(CARRIES_REQUEST) => {
                    let intended_ns = connection.intended_ns;
                    self.asked(slot, intended_ns, now);
                    self.tally.issued(intended_ns);
                    self.tally.unfinished(intended_ns, now, false);
                }
                State::Connecting | State::Handshaking if !self.is_open && self.started => {
                    let intended_ns = connection.since_ns;
                    self.tally.issued(intended_ns);
                    self.tally.unfinished(intended_ns, now, false);
                }
                _ => {}
            }
            if self.connections[slot].fd >= 0 {
                self.drop_socket(slot, now, true);
            }
            // In a closed loop a connection always has a request, or rests after one that failed.
            let connection = &self.connections[slot];
            if has_window && (!self.is_open || connection.has(ASKED | HEARD)) {
                self.tally.used(connection.has(HEARD));
            }
        }
        self.account_for_the_log(now);
        if let Some(schedule) = self.schedule.take() {
            for intended_ns in schedule {
                self.tally.issued(intended_ns);
                self.tally.unfinished(intended_ns, now, false);
            }
        }
    }
}
