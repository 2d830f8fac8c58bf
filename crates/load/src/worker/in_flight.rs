use super::protocol::Stream;
use super::{Source, Transport, WireProtocol, Worker};
use crate::connection::{CORKED, ConnectionState, LAST_REQUEST, PEER_CLOSED};
use crate::tally::Failure;

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    #[inline]
    pub(super) fn has_room(&self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        match connection.state {
            ConnectionState::Idle if !A::IS_MULTIPLEXED => true,
            ConnectionState::Idle | ConnectionState::Busy if A::IS_PIPELINED => {
                connection.stream.has_room(self.protocol.depth()) && !connection.has(LAST_REQUEST | PEER_CLOSED)
            }
            _ => false,
        }
    }

    #[inline]
    pub(super) fn fill(&mut self, slot: usize, now: u64) {
        if !A::IS_PIPELINED {
            return self.send_request(slot, now, now);
        }
        self.connections[slot].set(CORKED, true);
        while self.has_room(slot) {
            self.send_request(slot, now, now);
        }
        self.uncork(slot, now);
    }

    fn uncork(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        connection.set(CORKED, false);
        if connection.stream.has_unsent() {
            T::send(self, slot, now);
        }
    }

    /// Returns whether the connection was closed.
    pub(super) fn take_responses(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let generation = self.connections[slot].generation;
        self.connections[slot].set(CORKED, true);
        if A::IS_MULTIPLEXED {
            self.connections[slot].stream.bytes_came(now);
        }
        let mut at = 0;
        while at < count || (A::IS_MULTIPLEXED && self.connections[slot].stream.has_more()) {
            let connection = &mut self.connections[slot];
            if !A::IS_MULTIPLEXED && connection.state != ConnectionState::Busy {
                // More bytes came than requests were sent, so the connection cannot be trusted any more.
                self.tally.stray(&self.buffer[at..count]);
                self.drop_socket(slot, now, true);
                self.ended_idle(slot, now, false);
                return true;
            }
            let connection_is_idle = A::IS_MULTIPLEXED && connection.state != ConnectionState::Busy;
            match self.protocol.feed(&mut connection.stream, connection.target, &self.buffer[at..count]) {
                Ok(consumed) => {
                    at += consumed.used;
                    let is_response = !A::IS_MULTIPLEXED || self.describe_current(slot);
                    self.received(slot, now, consumed.used, consumed.body, is_response);
                    if consumed.body > 0 && is_response {
                        self.body_came(slot, consumed.body);
                        self.parts_came(slot, now, consumed.parts);
                    }
                    if consumed.is_complete && is_response {
                        self.request_over(slot, now);
                    } else if is_response && self.connections[slot].first_byte_ns == 0 {
                        self.connections[slot].first_byte_ns = now;
                    }
                }
                Err(malformed) => {
                    self.received(slot, now, count - at, 0, !connection_is_idle);
                    if connection_is_idle {
                        self.tally.stray(&self.buffer[at..count]);
                    }
                    self.lost(slot, now, A::failure(malformed));
                    return true;
                }
            }
            if self.connections[slot].generation != generation {
                return true;
            }
        }
        if A::IS_MULTIPLEXED {
            self.use_room(slot, now);
        }
        self.uncork(slot, now);
        self.end_if_idle(slot, now, generation);
        self.connections[slot].generation != generation
    }

    /// Sends requests if the server has raised its limit.
    #[inline]
    fn use_room(&mut self, slot: usize, now: u64) {
        while self.has_room(slot) {
            let before = self.in_flight;
            S::answered(self, slot, now);
            if self.in_flight == before {
                return;
            }
        }
    }

    #[inline]
    pub(super) fn describe_any(&mut self, slot: usize) {
        if A::IS_MULTIPLEXED {
            let connection = &mut self.connections[slot];
            let mut described = connection.under_way();
            connection.stream.describe_any(&mut described);
            connection.describe(described);
        }
    }

    /// False if the last bytes belong to no request.
    #[inline]
    fn describe_current(&mut self, slot: usize) -> bool {
        let connection = &mut self.connections[slot];
        let mut described = connection.under_way();
        let is_response = connection.stream.describe_current(&mut described);
        connection.describe(described);
        is_response
    }

    #[inline]
    fn request_over(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        let failure = if A::IS_MULTIPLEXED { connection.stream.failure() } else { None };
        if let Some(failure) = failure {
            self.described_failed(slot, now, failure);
        } else {
            if !(200..400).contains(&connection.stream.status())
                && let Some(words) = connection.stream.error_message()
            {
                self.tally.error_message(words);
            }
            self.count_response(slot, now, true);
        }
        self.continue_after(slot, now);
    }

    #[inline]
    fn continue_after(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        if A::IS_MULTIPLEXED {
            if !connection.stream.release() {
                connection.state = ConnectionState::Idle;
            }
        } else {
            connection.stream.reset();
            match connection.stream.next() {
                Some(request) => connection.describe(request),
                None => connection.state = ConnectionState::Idle,
            }
        }
        if !connection.has(LAST_REQUEST | PEER_CLOSED) && connection.stream.is_keep_alive() {
            if !A::IS_MULTIPLEXED || self.has_room(slot) {
                S::answered(self, slot, now);
            }
        } else if connection.state == ConnectionState::Idle && !A::IS_MULTIPLEXED {
            let closed_first = !connection.has(PEER_CLOSED);
            self.drop_socket(slot, now, closed_first);
            S::closed(self, slot);
        }
    }

    /// Ends a multiplexed connection, if it is still this one, that has no request and takes none.
    fn end_if_idle(&mut self, slot: usize, now: u64, generation: u16) {
        let connection = &self.connections[slot];
        if !A::IS_MULTIPLEXED || connection.generation != generation || connection.state != ConnectionState::Idle {
            return;
        }
        if !connection.has(LAST_REQUEST | PEER_CLOSED) && connection.stream.is_keep_alive() {
            return;
        }
        // A server that has sent GOAWAY may wait for the client to close.
        let (closed_first, failures) = (!connection.has(PEER_CLOSED), connection.failures);
        self.drop_socket(slot, now, closed_first);
        if failures > 1 {
            return self.back_off(slot, now, 500_000);
        }
        self.ended_idle(slot, now, false);
    }

    pub(super) fn count_described_failure(&mut self, slot: usize, now: u64, failure: Failure) {
        let described = self.connections[slot].under_way();
        if failure == Failure::TimedOut {
            self.tally.stalls.gave_up(described.since_ns);
        }
        self.count_failure(slot, described, now, failure);
    }

    fn described_failed(&mut self, slot: usize, now: u64, failure: Failure) {
        self.count_described_failure(slot, now, failure);
        let connection = &mut self.connections[slot];
        connection.failures = connection.failures.saturating_add(1);
    }

    /// Fails requests that were sent too long ago: only them, or with their connection if it received nothing
    /// meanwhile.
    pub(super) fn time_out(&mut self, slot: usize, now: u64) {
        let before_ns = now.saturating_sub(self.task.plan.timeout_ns);
        let generation = self.connections[slot].generation;
        let mut is_corked = false;
        loop {
            let connection = &mut self.connections[slot];
            let mut described = connection.under_way();
            let Some(received_ns) = connection.stream.late(before_ns, &mut described) else { break };
            connection.describe(described);
            if received_ns <= before_ns {
                return self.request_failed(slot, now, Failure::TimedOut);
            }
            connection.set(CORKED, true);
            is_corked = true;
            self.described_failed(slot, now, Failure::TimedOut);
            self.continue_after(slot, now);
            if self.connections[slot].state != ConnectionState::Busy {
                break;
            }
        }
        if is_corked && self.connections[slot].generation == generation {
            self.uncork(slot, now);
            self.end_if_idle(slot, now, generation);
        }
    }

    pub(super) fn fail_the_others(&mut self, slot: usize, now: u64, failure: Failure) {
        while let Some(other) = self.connections[slot].stream.next() {
            self.count_failure(slot, other, now, failure);
        }
    }

    /// Returns whether the connection was closed or has a request.
    pub(super) fn take_opening(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let generation = self.connections[slot].generation;
        let mut at = 0;
        while at < count || (A::IS_MULTIPLEXED && self.connections[slot].stream.has_more()) {
            let connection = &mut self.connections[slot];
            // Before the first request, this field holds the number of missing replies.
            let consumed = match connection.target {
                0 if !A::IS_MULTIPLEXED => {
                    Err(crate::framing::Malformed("more bytes than the answers to the connection's first commands"))
                }
                _ => self.protocol.feed(&mut connection.stream, 0, &self.buffer[at..count]),
            };
            match consumed {
                Ok(consumed) => {
                    at += consumed.used;
                    if !consumed.is_complete {
                        continue;
                    }
                    if !(200..400).contains(&connection.stream.status()) {
                        if let Some(words) = connection.stream.error_message() {
                            self.tally.error_message(words);
                        }
                        self.connect_failed(slot, now, Failure::Unwelcome);
                        return true;
                    }
                    connection.stream.reset();
                    connection.target -= 1;
                }
                Err(malformed) => {
                    self.connect_failed(slot, now, A::failure(malformed));
                    return true;
                }
            }
        }
        if self.connections[slot].target == 0 {
            self.opened(slot, now);
        }
        if A::IS_MULTIPLEXED && self.connections[slot].generation == generation {
            self.uncork(slot, now);
            if self.connections[slot].generation == generation && self.connections[slot].stream.has_more() {
                // The connection takes no requests, but one waited for it.
                return self.take_responses(slot, 0, now);
            }
            self.end_if_idle(slot, now, generation);
        }
        self.connections[slot].generation != generation
    }

    #[inline]
    pub(super) fn all_sent(&mut self, slot: usize, sent: usize) {
        self.part_sent(slot, sent);
        if A::IS_PIPELINED {
            self.connections[slot].stream.all_sent();
        }
    }

    /// Bytes of several requests sent together are counted for the described one.
    #[inline]
    pub(super) fn part_sent(&mut self, slot: usize, sent: usize) {
        let connection = &self.connections[slot];
        if !A::IS_PIPELINED || connection.state == ConnectionState::Busy {
            self.tally.sent(connection.intended_ns, sent);
        }
    }
}
