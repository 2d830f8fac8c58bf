//! Several requests in flight on a connection: putting them together into one send, taking their responses in order, and
//! the opening of such a connection.

use super::protocol::{Behind, Stream};
use super::{Protocol, Source, Transport, Worker};
use crate::connection::{CORKED, LAST_REQUEST, PEER_CLOSED, State};
use crate::tally::Failure;

impl<S: Source, T: Transport, A: Protocol> Worker<'_, S, T, A> {
    /// Whether another request may be sent on a connection.
    #[inline]
    pub(super) fn has_room(&self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        match connection.state {
            State::Idle => true,
            State::Busy if A::IS_PIPELINED => {
                connection.stream.behind() + 1 < self.protocol.depth() && !connection.has(LAST_REQUEST | PEER_CLOSED)
            }
            _ => false,
        }
    }

    /// Sends as many requests as an idle connection has room for.
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

    /// Sends what was put while the connection was corked.
    fn uncork(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        connection.set(CORKED, false);
        if connection.stream.has_unsent() {
            T::send(self, slot, now);
        }
    }

    /// Puts the next request after those in flight, and sends it unless others follow.
    #[inline]
    pub(super) fn put_request(&mut self, slot: usize, intended_ns: u64, now: u64) {
        let limit = self.task.plan.requests_per_connection;
        let connection = &mut self.connections[slot];
        let target = self.protocol.put(&mut self.source, self.task.requests, slot, &mut connection.stream);
        connection.requests = connection.requests.wrapping_add(1);
        connection.set(LAST_REQUEST, limit != 0 && u64::from(connection.requests) >= limit);
        if connection.state == State::Busy {
            connection.stream.push(Behind { intended_ns, since_ns: now, target });
        } else {
            connection.state = State::Busy;
            connection.first_byte_ns = 0;
            (connection.intended_ns, connection.since_ns, connection.target) = (intended_ns, now, target);
        }
        let is_corked = connection.has(CORKED);
        self.in_flight += 1;
        self.tally.issued(intended_ns);
        if !is_corked {
            T::send(self, slot, now);
        }
    }

    /// Handles `count` received bytes of responses; true when the connection was closed.
    pub(super) fn take_responses(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let generation = self.connections[slot].generation;
        self.connections[slot].set(CORKED, true);
        let mut at = 0;
        while at < count {
            let connection = &mut self.connections[slot];
            if connection.state != State::Busy {
                // More bytes than there were requests: the connection cannot be trusted any more.
                self.tally.stray(&self.buffer[at..count]);
                self.drop_socket(slot, now, true);
                S::closed(self, slot);
                return true;
            }
            match self.protocol.feed(&mut connection.stream, connection.target, &self.buffer[at..count]) {
                Ok(fed) => {
                    at += fed.used;
                    self.received(slot, now, fed.used, fed.body);
                    if fed.is_complete {
                        self.oldest_complete(slot, now);
                    } else if self.connections[slot].first_byte_ns == 0 {
                        self.connections[slot].first_byte_ns = now;
                    }
                }
                Err(malformed) => {
                    self.received(slot, now, count - at, 0);
                    self.request_failed(slot, now, A::failure(malformed));
                    return true;
                }
            }
            if self.connections[slot].generation != generation {
                return true;
            }
        }
        self.uncork(slot, now);
        self.connections[slot].generation != generation
    }

    /// The response to the oldest request is complete: the next one is the oldest now.
    #[inline]
    fn oldest_complete(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        if !(200..400).contains(&connection.stream.status())
            && let Some(words) = connection.stream.complaint()
        {
            self.tally.complained(words);
        }
        self.count_response(slot, now, true);
        let connection = &mut self.connections[slot];
        connection.stream.reset();
        connection.first_byte_ns = 0;
        match connection.stream.next() {
            Some(Behind { intended_ns, since_ns, target }) => {
                (connection.intended_ns, connection.since_ns, connection.target) = (intended_ns, since_ns, target);
            }
            None => connection.state = State::Idle,
        }
        if !connection.has(LAST_REQUEST | PEER_CLOSED) {
            S::answered(self, slot, now);
        } else if connection.state == State::Idle {
            let closed_first = !connection.has(PEER_CLOSED);
            self.drop_socket(slot, now, closed_first);
            S::closed(self, slot);
        }
    }

    /// Fails the requests after the oldest one, for the same reason.
    pub(super) fn fail_those_behind(&mut self, slot: usize, now: u64, failure: Failure) {
        while let Some(behind) = self.connections[slot].stream.next() {
            self.asked(slot, behind.intended_ns, now);
            self.tally.failed(behind.intended_ns, now, failure);
            self.in_flight -= 1;
        }
    }

    /// Handles `count` received bytes of the replies to a connection's opening; true when the connection was closed or
    /// has a request.
    pub(super) fn take_opening(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let generation = self.connections[slot].generation;
        let mut at = 0;
        while at < count {
            let connection = &mut self.connections[slot];
            // No request has a target yet: the field counts the replies that are still to come.
            let fed = match connection.target {
                0 => Err(crate::framing::Malformed("more bytes than the opening of the connection is answered with")),
                _ => self.protocol.feed(&mut connection.stream, 0, &self.buffer[at..count]),
            };
            match fed {
                Ok(fed) => {
                    at += fed.used;
                    if !fed.is_complete {
                        continue;
                    }
                    if !(200..400).contains(&connection.stream.status()) {
                        if let Some(words) = connection.stream.complaint() {
                            self.tally.complained(words);
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
        self.connections[slot].generation != generation
    }

    /// Notes that the transport has taken all bytes of the requests that were put; `sent` of them just now.
    #[inline]
    pub(super) fn all_sent(&mut self, slot: usize, sent: usize) {
        self.part_sent(slot, sent);
        if A::IS_PIPELINED {
            self.connections[slot].stream.all_sent();
        }
    }

    /// Counts bytes that the transport has taken. Where requests are sent together, they count as those of the oldest
    /// one.
    #[inline]
    pub(super) fn part_sent(&mut self, slot: usize, sent: usize) {
        let connection = &self.connections[slot];
        if !A::IS_PIPELINED || connection.state == State::Busy {
            self.tally.sent(connection.intended_ns, sent);
        }
    }
}
