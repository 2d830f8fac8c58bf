//! Timeouts are found by walking over the connections, a part at a time. A list in order of expiry would touch two
//! other connections on every request, which costs two cache misses at ten thousand connections. The walk costs about
//! 2 ns per connection and round at any request rate.

use super::protocol::Stream;
use super::slowest::RequestEnd;
use super::{Source, Transport, WireProtocol, Worker};
use crate::connection::{ANSWERED, ASKED, ConnectionState, LINGERED, RequestInFlight};
use crate::tally::Failure;
use record::CloseFirst;

/// Duration of a round, which is the maximum delay of a timeout.
const ROUND_NS: u64 = 20_000_000;
/// Connections in one part of the walk, which takes about a microsecond.
const STRETCH: usize = 512;
/// Longest time from a server's announcement until it closes the connection.
pub(super) const LINGER_NS: u64 = 250_000_000;

#[derive(Default)]
pub(super) struct TimeoutSweep {
    at: usize,
    pub(super) next_ns: u64,
    /// Memory of split heads: in the current round so far, and the maximum of all rounds.
    carry_bytes_round: usize,
    pub(super) carry_bytes_max: usize,
}

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    pub(super) fn sweep(&mut self, now: u64) {
        let count = self.connections.len();
        let shortest = self.task.plan.timeout_ns.min(self.task.plan.connect_timeout_ns);
        let round_ns = ROUND_NS.min(shortest / 8).max(1_000_000);
        let stretches = count.div_ceil(STRETCH).max(1) as u64;
        let sweep = &mut self.sweep;
        sweep.next_ns = now + round_ns / stretches;
        let from = sweep.at;
        let to = (from + STRETCH).min(count);
        sweep.at = if to == count { 0 } else { to };
        if from == 0 {
            sweep.carry_bytes_max = sweep.carry_bytes_max.max(sweep.carry_bytes_round);
            sweep.carry_bytes_round = 0;
        }
        for slot in from..to {
            let connection = &self.connections[slot];
            self.sweep.carry_bytes_round += connection.stream.carry_bytes();
            let age_ns = now.saturating_sub(connection.since_ns);
            match connection.state {
                ConnectionState::Busy if A::IS_MULTIPLEXED => self.time_out(slot, now),
                ConnectionState::Busy if age_ns > self.task.plan.timeout_ns => {
                    self.request_failed(slot, now, Failure::TimedOut)
                }
                state if state.is_opening() && age_ns > self.task.plan.connect_timeout_ns => {
                    self.connect_failed(slot, now, Failure::ConnectTimedOut);
                }
                ConnectionState::Connecting if self.ramp.hangs(age_ns) => self.note_hanging(slot, now),
                ConnectionState::Lingering if age_ns > self.linger_ns => {
                    self.tally.counts.closes_awaited += 1;
                    let waits_for_each = self.task.plan.clients.close_first == Some(CloseFirst::Server);
                    self.connections[slot].set(LINGERED, !waits_for_each);
                    self.drop_socket(slot, now, true);
                    S::closed(self, slot);
                }
                // Before the load begins, each slot is tried only once.
                ConnectionState::BackOff if connection.since_ns <= now && self.has_begun() => {
                    self.connections[slot].state = ConnectionState::Closed;
                    S::closed(self, slot);
                }
                _ => {}
            }
        }
    }

    pub(super) fn account_for_the_rest(&mut self, now: u64) {
        let has_window = self.has_begun() && self.tally.end_ns > self.tally.begin_ns;
        for slot in 0..self.connections.len() {
            if self.connections[slot].state == ConnectionState::Busy {
                self.describe_any(slot);
            }
            let connection = &self.connections[slot];
            match connection.state {
                ConnectionState::Busy => {
                    let mut described = Some(connection.under_way());
                    while let Some(request) = described {
                        let RequestInFlight { intended_ns, since_ns, .. } = request;
                        self.request_ended(slot, request, now, RequestEnd::Failed("unfinished"));
                        self.asked(slot, intended_ns, now);
                        self.tally.stalls.gave_up(since_ns);
                        self.tally.unfinished(intended_ns, now, true);
                        let place = self.place(slot);
                        if let Some(classes) = &mut self.classes {
                            classes.unfinished(place, self.tally.belongs(intended_ns, now));
                        }
                        described = self.connections[slot].stream.next();
                    }
                }
                state if state.is_opening() => {
                    if let Some(intended_ns) = self.carried_by(slot) {
                        self.asked(slot, intended_ns, now);
                        self.tally.issued(intended_ns);
                        self.tally.unfinished(intended_ns, now, false);
                    }
                }
                _ => {}
            }
            if self.connections[slot].fd >= 0 {
                self.drop_socket(slot, now, true);
            }
            // In a closed loop, a connection has a request or pauses after a failed one.
            let connection = &self.connections[slot];
            if has_window && (!S::IS_SCHEDULED || connection.has(ASKED | ANSWERED)) {
                self.tally.used(connection.has(ANSWERED));
            }
        }
        for intended_ns in self.source.left_over(self.tally.end_ns.min(now)) {
            self.tally.issued(intended_ns);
            self.tally.unfinished(intended_ns, now, false);
        }
    }
}
