use super::protocol::Stream;
use super::slowest::RequestEnd;
use super::transport::ArrivalTime;
use super::{Source, Transport, WireProtocol, Worker};
use crate::connection::{
    ANSWERED, CORKED, ConnectionState, LAST_REQUEST, LINGERED, PEER_CLOSED, RequestInFlight, WATCHES_WRITABLE,
};
use crate::framing::{AtEnd, Consumed};
use crate::socket::{self, Errno};
use crate::tally::Failure;

/// A server that closes an unused connection earlier than this does not close it for idleness.
const UNUSED_NS: u64 = 1_000_000_000;

/// Whether the server closed an unused connection with 408 (Request Timeout), as HAProxy does.
fn is_request_timeout(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.") && bytes.get(8..12) == Some(b" 408")
}

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    #[inline]
    pub(super) fn on_event(&mut self, slot: usize, conditions: u32, now: u64) {
        let connection = &mut self.connections[slot];
        match connection.state {
            ConnectionState::Connecting => return self.on_connecting(slot, conditions, now),
            ConnectionState::Handshaking => return T::on_handshaking(self, slot, conditions, now),
            _ => {}
        }
        if conditions & libc::EPOLLRDHUP as u32 != 0 {
            connection.set(PEER_CLOSED, true);
        }
        if connection.has(WATCHES_WRITABLE) && conditions & libc::EPOLLOUT as u32 != 0 {
            T::send_rest(self, slot, now);
            if !matches!(
                self.connections[slot].state,
                ConnectionState::Busy | ConnectionState::Opening | ConnectionState::Idle
            ) {
                return;
            }
        }
        if conditions & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0 {
            T::receive(self, slot, now);
        }
    }

    /// If more requests follow at once, all are sent together.
    #[inline]
    pub(super) fn send_request(&mut self, slot: usize, intended_ns: u64, now: u64) {
        if A::CONNECTS_ONLY {
            return self.only_connected(slot, intended_ns, now);
        }
        let limit = self.task.plan.requests_per_connection;
        let connection = &mut self.connections[slot];
        let target = self.protocol.put(&mut self.source, self.task.requests, slot, &mut connection.stream);
        connection.requests = connection.requests.wrapping_add(1);
        connection.set(LAST_REQUEST, limit != 0 && u64::from(connection.requests) >= limit);
        let request = RequestInFlight { intended_ns, since_ns: now, target, ..RequestInFlight::default() };
        if A::IS_MULTIPLEXED || connection.state == ConnectionState::Busy {
            connection.stream.push(request);
        }
        if connection.state != ConnectionState::Busy {
            connection.state = ConnectionState::Busy;
            connection.describe(request);
        }
        if let Some(limited) = &mut self.limited {
            limited.request_leaves(slot, now);
        }
        let (is_corked, newest) = (A::IS_PIPELINED && connection.has(CORKED), connection.stream.newest());
        self.in_flight += 1;
        self.tally.issued(intended_ns);
        if let Some(classes) = &mut self.classes {
            let class = match self.source.logged(slot) {
                Some(request) => request.class,
                None => self.task.requests.class_of(target as usize),
            };
            classes.sent(slot * self.protocol.places() + newest, class, self.tally.covers(intended_ns));
        }
        if !is_corked {
            T::send(self, slot, now);
        }
    }

    /// Counts the connection as an answered request, and resets it: a client that closes in order would keep the port
    /// for a minute.
    fn only_connected(&mut self, slot: usize, intended_ns: u64, now: u64) {
        let connection = &mut self.connections[slot];
        // In a closed loop the connection attempt is the request.
        connection.intended_ns = if S::IS_SCHEDULED { intended_ns } else { connection.since_ns };
        connection.first_byte_ns = now;
        connection.set(ANSWERED, connection.has(ANSWERED) || now >= self.tally.begin_ns);
        self.in_flight += 1;
        self.tally.issued(connection.intended_ns);
        self.count_response(slot, now, false);
        socket::reset_at_close(self.connections[slot].fd);
        self.drop_socket(slot, now, false);
        S::closed(self, slot);
    }

    /// Handles `count` received bytes; returns whether the connection was closed or has a new request.
    #[inline]
    pub(super) fn take_bytes(&mut self, slot: usize, count: usize, now: u64) -> bool {
        match self.connections[slot].state {
            ConnectionState::Busy if A::IS_PIPELINED => return self.take_responses(slot, count, now),
            ConnectionState::Busy => return self.take_response_bytes(slot, count, now),
            ConnectionState::Opening => return self.take_opening(slot, count, now),
            ConnectionState::Idle if A::IS_MULTIPLEXED => return self.take_responses(slot, count, now),
            ConnectionState::Idle => {
                // These bytes were not requested, so the connection cannot be trusted any more.
                let bytes = &self.buffer[..count];
                let is_timeout = A::IS_HTTP_1 && is_request_timeout(bytes);
                if is_timeout {
                    self.tally.counts.idle_timeouts += 1;
                } else {
                    self.tally.stray(bytes)
                }
                self.drop_socket(slot, now, true);
                self.ended_idle(slot, now, is_timeout);
                return true;
            }
            _ => self.tally.stray(&self.buffer[..count]),
        }
        false
    }

    /// As [`take_bytes`](Self::take_bytes), for body bytes that the socket discarded.
    pub(super) fn skip_response_bytes(&mut self, slot: usize, count: usize, now: u64) {
        self.connections[slot].stream.skip(count as u64);
        self.received(slot, now, count, count, true);
        self.body_came(slot, count);
        self.parts_came(slot, now, None);
    }

    #[inline]
    pub(super) fn place(&self, slot: usize) -> usize {
        slot * self.protocol.places() + self.connections[slot].stream.place()
    }

    #[inline]
    pub(super) fn body_came(&mut self, slot: usize, bytes: usize) {
        let place = self.place(slot);
        if let Some(classes) = &mut self.classes {
            classes.received(place, bytes);
        }
    }

    pub(super) fn count_failure(&mut self, slot: usize, request: RequestInFlight, now: u64, failure: Failure) {
        let (intended_ns, place) = (request.intended_ns, self.place(slot));
        self.asked(slot, intended_ns, now);
        self.request_ended(slot, request, now, RequestEnd::Failed(failure.kind()));
        self.tally.failed(intended_ns, now, failure);
        if let Some(classes) = &mut self.classes {
            classes.failed(place, self.tally.belongs(intended_ns, now));
        }
        self.in_flight -= 1;
    }

    /// Counts this many parts that end in received body bytes; `None`: the bytes are one part.
    #[inline]
    pub(super) fn parts_came(&mut self, slot: usize, now: u64, parts: Option<u32>) {
        if self.task.plan.clients.times_parts && parts != Some(0) {
            let connection = &mut self.connections[slot];
            let before_ns = std::mem::replace(&mut connection.part_ns, now.max(1));
            let gap_ns = now.saturating_sub(before_ns);
            let intended_ns = connection.intended_ns;
            match parts {
                None if before_ns == 0 || gap_ns == 0 => {}
                None => self.tally.parts_came(intended_ns, now, gap_ns, 1),
                Some(parts) => {
                    if before_ns > 0 {
                        self.tally.parts_came(intended_ns, now, gap_ns, 1);
                    }
                    self.tally.parts_came(intended_ns, now, 0, parts - 1);
                }
            }
        }
    }

    #[inline]
    fn take_response_bytes(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let connection = &mut self.connections[slot];
        let consumed = self.protocol.feed(&mut connection.stream, connection.target, &self.buffer[..count]);
        if let Ok(Consumed { body: body @ 1.., parts, .. }) = consumed {
            self.body_came(slot, body);
            self.parts_came(slot, now, parts);
        }
        match consumed {
            Ok(consumed) if consumed.is_complete => {
                self.received(slot, now, consumed.used, consumed.body, true);
                if consumed.used < count {
                    self.request_failed(slot, now, Failure::Malformed("more bytes than the response announced"));
                } else {
                    self.response_complete(slot, now, true);
                }
                true
            }
            Ok(consumed) => {
                let connection = &mut self.connections[slot];
                if connection.first_byte_ns == 0 {
                    connection.first_byte_ns = now;
                }
                self.received(slot, now, consumed.used, consumed.body, true);
                false
            }
            Err(malformed) => {
                self.received(slot, now, count, 0, true);
                self.request_failed(slot, now, A::failure(malformed));
                true
            }
        }
    }

    /// Counts received bytes. `is_response`: they belong to the response, not to the connection.
    #[inline]
    pub(super) fn received(&mut self, slot: usize, now: u64, bytes: usize, body: usize, is_response: bool) {
        let connection = &mut self.connections[slot];
        if is_response {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            connection.received_bytes = connection.received_bytes.saturating_add(bytes);
            if now >= self.tally.begin_ns {
                connection.flags |= ANSWERED;
            }
        }
        self.tally.received(connection.intended_ns, now, bytes, body);
    }

    /// Handles a complete response. `by_bytes`: the last bytes completed it, not the end of the connection.
    #[inline]
    fn response_complete(&mut self, slot: usize, now: u64, by_bytes: bool) {
        self.count_response(slot, now, by_bytes);
        let connection = &mut self.connections[slot];
        // A connection with an unfinished send cannot carry another request.
        let is_done = connection.has(LAST_REQUEST | PEER_CLOSED | WATCHES_WRITABLE);
        if !is_done && connection.stream.is_keep_alive() {
            connection.stream.reset();
            connection.state = ConnectionState::Idle;
            return S::answered(self, slot, now);
        }
        let server_will_close = connection.stream.server_closes() && !connection.has(WATCHES_WRITABLE);
        if connection.has(PEER_CLOSED | LINGERED) || !server_will_close {
            let closed_first = !connection.has(PEER_CLOSED);
            self.drop_socket(slot, now, closed_first);
            S::closed(self, slot);
        } else {
            // The side that closes first keeps the port in TIME_WAIT, so the server closes, as it has announced.
            connection.stream.reset();
            connection.state = ConnectionState::Lingering;
            connection.since_ns = now;
        }
    }

    #[inline]
    pub(super) fn count_response(&mut self, slot: usize, now: u64, by_bytes: bool) {
        let place = self.place(slot);
        let connection = &mut self.connections[slot];
        let status = connection.stream.status();
        // A status that the log has for the request is a success, unless it is a server error.
        let is_as_logged = || self.source.logged(slot).is_some_and(|request| request.status == Some(status));
        let is_ok = matches!(status, 200..400) || (matches!(status, 400..500) && is_as_logged());
        self.tally.completed(
            connection.intended_ns,
            connection.since_ns,
            connection.first_byte_ns,
            now,
            (status, is_ok),
            S::IS_SCHEDULED,
        );
        match self.sampled.arrival(connection, by_bytes) {
            _ if A::CONNECTS_ONLY => {}
            None => {}
            Some(ArrivalTime::At(arrived_ns)) => self.tally.arrived(connection.intended_ns, arrived_ns, now),
            Some(ArrivalTime::Unknown) => self.tally.arrival_unknown(connection.intended_ns, now),
        }
        if let Some(classes) = &mut self.classes {
            let intended_ns = connection.intended_ns;
            let belongs = self.tally.belongs(intended_ns, now);
            let body_bytes = classes.completed(place, is_ok, now.saturating_sub(intended_ns), belongs);
            if belongs.is_counted() {
                self.source.compare(slot, status, body_bytes);
            }
        }
        self.in_flight -= 1;
        connection.failures = 0;
        let response_ns = now.saturating_sub(connection.intended_ns);
        if response_ns > self.tally.counts.slowest.least_ns() {
            let described = connection.under_way();
            self.request_ended(slot, described, now, RequestEnd::Answered(status));
        }
    }

    pub(super) fn on_end(&mut self, slot: usize, now: u64) {
        self.connections[slot].set(PEER_CLOSED, true);
        self.ended(slot, now);
    }

    pub(super) fn ended(&mut self, slot: usize, now: u64) {
        let connection = &self.connections[slot];
        if connection.state != ConnectionState::Busy {
            return self.lost(slot, now, Failure::ClosedEarly);
        }
        match connection.stream.at_end() {
            AtEnd::Complete => self.response_complete(slot, now, false),
            AtEnd::Nothing => self.request_failed(slot, now, Failure::ClosedEarly),
            AtEnd::Truncated => self.request_failed(slot, now, Failure::Truncated),
        }
    }

    pub(super) fn on_error(&mut self, slot: usize, now: u64, error: Errno) {
        let failure = match error {
            Errno::TIMEDOUT => Failure::TimedOut,
            _ => Failure::from_errno(error),
        };
        self.lost(slot, now, failure);
    }

    pub(super) fn lost(&mut self, slot: usize, now: u64, failure: Failure) {
        match self.connections[slot].state {
            state if state.is_opening() => self.connect_failed(slot, now, failure),
            ConnectionState::Busy => self.request_failed(slot, now, failure),
            _ => {
                // The side that closed first keeps the port.
                let is_ours = matches!(failure, Failure::Tls | Failure::ClosedEarly);
                let closed_first = !self.connections[slot].has(PEER_CLOSED) && is_ours;
                self.drop_socket(slot, now, closed_first);
                self.ended_idle(slot, now, false);
            }
        }
    }

    /// Reopens a connection that the server closed without a request. A slot that was never used may exceed a limit
    /// of the server, so it pauses. A slot that was idle for long does not pause, because many servers limit
    /// idleness. `is_timeout`: the server gave idleness as the reason.
    pub(super) fn ended_idle(&mut self, slot: usize, now: u64, is_timeout: bool) {
        let connection = &self.connections[slot];
        if connection.requests == 0 && now.saturating_sub(connection.since_ns) < UNUSED_NS {
            self.tally.counts.outcomes.closed_unused += u64::from(!is_timeout);
            self.back_off(slot, now, 10_000_000);
        } else {
            S::closed(self, slot);
        }
    }

    pub(super) fn request_failed(&mut self, slot: usize, now: u64, failure: Failure) {
        self.describe_any(slot);
        self.count_described_failure(slot, now, failure);
        if A::IS_PIPELINED {
            self.fail_the_others(slot, now, failure);
        }
        let connection = &mut self.connections[slot];
        let closed_first = !connection.has(PEER_CLOSED) && failure != Failure::Reset;
        self.drop_socket(slot, now, closed_first);
        // The first failure may be an idle timeout of the server that crossed our request, so only consecutive
        // failures are delayed.
        if self.connections[slot].failures == 0 {
            self.connections[slot].failures = 1;
            S::closed(self, slot);
        } else {
            self.back_off(slot, now, 500_000);
        }
    }
}
