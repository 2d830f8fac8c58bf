//! A request out, a response in: what happens on an established connection.

use super::{Choice, Worker};
use crate::connection::{HEARD, LAST_REQUEST, PEER_CLOSED, State, WATCHES_WRITABLE};
use crate::framing::AtEnd;
use crate::poller::{READABLE, WRITABLE_TOO};
use crate::socket::{self, Errno};
use crate::tally::Failure;
use record::time::monotonic_ns;

/// Reads from one connection in a row, before others have their turn.
const READS_A_TURN: usize = 32;
/// From this many certain body bytes on, they are taken off the socket without being copied.
const DISCARD_FROM: u64 = 16 * 1024;
const DISCARD_AT_ONCE: u64 = 1 << 20;

impl Worker<'_> {
    #[inline]
    pub(super) fn on_event(&mut self, slot: usize, conditions: u32, now: u64) {
        let connection = &mut self.connections[slot];
        if connection.state == State::Connecting {
            self.on_connecting(slot, conditions, now);
            return;
        }
        if connection.state == State::Handshaking {
            self.on_handshaking(slot, conditions, now);
            return;
        }
        if conditions & libc::EPOLLRDHUP as u32 != 0 {
            connection.set(PEER_CLOSED, true);
        }
        if connection.has(WATCHES_WRITABLE) && conditions & libc::EPOLLOUT as u32 != 0 {
            if self.tls.is_some() {
                self.flush_tls(slot, now);
            } else {
                self.send_rest(slot, now);
            }
            if self.connections[slot].state != State::Busy {
                return;
            }
        }
        if conditions & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0 {
            self.read(slot, now);
        }
    }

    /// Reads in the way of the plan's clients.
    #[inline]
    pub(super) fn read(&mut self, slot: usize, now: u64) {
        if self.is_plain {
            self.receive(slot, now);
        } else if self.tls.is_some() {
            self.receive_tls(slot, now);
        } else {
            self.receive_paced(slot, now);
        }
    }

    /// Sends the next request on an idle connection.
    #[inline]
    pub(super) fn send_request(&mut self, slot: usize, intended_ns: u64, now: u64) {
        let requests = self.task.requests;
        let target = match &mut self.choice {
            Choice::InTurn(next) => {
                let target = *next;
                *next = if target + 1 == requests.targets.len() { 0 } else { target + 1 };
                target
            }
            Choice::Weighted(rng) => requests.draw(rng),
            Choice::Replayed => return self.send_replayed(slot, intended_ns, now),
        };
        let limit = self.task.plan.requests_per_connection;
        let connection = &mut self.connections[slot];
        connection.requests = connection.requests.wrapping_add(1);
        let is_last = limit != 0 && u64::from(connection.requests) >= limit;
        connection.set(LAST_REQUEST, is_last);
        connection.target = target as u32;
        connection.since_ns = now;
        connection.intended_ns = intended_ns;
        connection.first_byte_ns = 0;
        connection.state = State::Busy;
        self.in_flight += 1;
        self.tally.issued(intended_ns);
        if let Some(classes) = &mut self.classes {
            classes.sent(slot, requests.class_of(target), self.tally.covers(intended_ns));
        }
        let bytes = requests.targets[target].bytes(is_last);
        if !self.is_plain {
            if let Some(pacing) = self.pacing.as_deref_mut() {
                pacing.request_leaves(slot, now);
            }
            if self.tls.is_some() {
                return self.send_tls(slot, bytes, now);
            }
        }
        self.system_calls += 1;
        let result = socket::send(connection.fd, bytes);
        self.has_sent(slot, result, bytes.len(), now);
    }

    /// What the kernel took of a request of `length` bytes.
    #[inline]
    pub(super) fn has_sent(&mut self, slot: usize, result: Result<usize, Errno>, length: usize, now: u64) {
        match result {
            Ok(sent) if sent == length => self.tally.sent(self.connections[slot].intended_ns, sent),
            Ok(sent) => self.sent_in_part(slot, sent),
            Err(error) if error.would_block() => self.sent_in_part(slot, 0),
            Err(error) => self.request_failed(slot, now, exchange_failure(error)),
        }
    }

    /// The socket buffer is full: the rest follows when it is not.
    fn sent_in_part(&mut self, slot: usize, sent: usize) {
        let connection = &mut self.connections[slot];
        connection.written = sent as u32;
        self.tally.sent(connection.intended_ns, sent);
        connection.set(WATCHES_WRITABLE, true);
        let token = connection.token(slot as u32);
        self.system_calls += 1;
        if let Err(error) = self.poller.modify(connection.fd, WRITABLE_TOO, token) {
            self.request_failed(slot, monotonic_ns(), Failure::from_errno(error));
        }
    }

    fn send_rest(&mut self, slot: usize, now: u64) {
        loop {
            let connection = &mut self.connections[slot];
            let written = connection.written as usize;
            let rest = match &self.replay {
                Some(replay) => replay.rest(slot, written),
                None => {
                    let request = &self.task.requests.targets[connection.target as usize];
                    &request.bytes(connection.has(LAST_REQUEST))[written..]
                }
            };
            self.system_calls += 1;
            match socket::send(connection.fd, rest) {
                Ok(sent) => {
                    self.tally.sent(connection.intended_ns, sent);
                    connection.written += sent as u32;
                    if sent < rest.len() {
                        continue;
                    }
                    connection.set(WATCHES_WRITABLE, false);
                    let token = connection.token(slot as u32);
                    self.system_calls += 1;
                    if let Err(error) = self.poller.modify(connection.fd, READABLE, token) {
                        self.request_failed(slot, now, Failure::from_errno(error));
                    }
                    return;
                }
                Err(error) if error.would_block() => return,
                // The server may have answered and closed without reading the rest: its answer comes first.
                Err(Errno(libc::EPIPE | libc::ECONNRESET)) => return,
                Err(error) => return self.request_failed(slot, now, exchange_failure(error)),
            }
        }
    }

    /// Reads what the socket holds, until it is empty, the response is complete, or the turn is over.
    pub(super) fn receive(&mut self, slot: usize, now: u64) {
        for _ in 0..READS_A_TURN {
            let connection = &mut self.connections[slot];
            self.system_calls += 1;
            let skippable = if connection.state == State::Busy { connection.framing.skippable() } else { 0 };
            let (result, room) = if skippable >= DISCARD_FROM {
                let most = skippable.min(DISCARD_AT_ONCE) as usize;
                (socket::discard(connection.fd, most), most)
            } else {
                (socket::receive(connection.fd, &mut self.buffer), self.buffer.len())
            };
            match result {
                Ok(0) => return self.on_end(slot, now),
                Ok(count) => {
                    match connection.state {
                        State::Busy if skippable >= DISCARD_FROM => {
                            connection.framing.skip(count as u64);
                            self.received(slot, now, count, count);
                            if let Some(classes) = &mut self.classes {
                                classes.received(slot, count);
                            }
                        }
                        State::Busy => {
                            if self.take_response_bytes(slot, count, now) {
                                return;
                            }
                        }
                        // Bytes that no request asked for. The connection cannot be trusted any more.
                        State::Idle => {
                            self.tally.stray(&self.buffer[..count]);
                            self.drop_socket(slot, now, true);
                            return self.want_again(slot);
                        }
                        _ => self.tally.stray(&self.buffer[..count]),
                    }
                    // Edge-triggered: a short read has emptied the socket, and what comes later is an event again. But
                    // the end of the connection, once reported, is not reported twice.
                    if count < room && !self.connections[slot].has(PEER_CLOSED) {
                        return;
                    }
                }
                Err(error) if error.would_block() => return,
                Err(error) => return self.on_error(slot, now, error),
            }
        }
        self.unread.push(slot as u32);
    }

    /// Gives `count` received bytes to the response under way; true when its connection was turned to something else.
    #[inline]
    pub(super) fn take_response_bytes(&mut self, slot: usize, count: usize, now: u64) -> bool {
        let connection = &mut self.connections[slot];
        let fed = connection.framing.feed(&mut self.heads, connection.target as usize, &self.buffer[..count]);
        if let (Some(classes), Ok(fed)) = (&mut self.classes, &fed) {
            classes.received(slot, fed.body);
        }
        match fed {
            Ok(fed) if fed.is_complete => {
                self.received(slot, now, fed.used, fed.body);
                if fed.used < count {
                    self.request_failed(slot, now, Failure::Malformed("more bytes than the response announced"));
                } else {
                    self.response_complete(slot, now);
                }
                true
            }
            Ok(fed) => {
                if connection.first_byte_ns == 0 {
                    connection.first_byte_ns = now;
                }
                self.received(slot, now, fed.used, fed.body);
                false
            }
            Err(malformed) => {
                self.received(slot, now, count, 0);
                self.request_failed(slot, now, Failure::Malformed(malformed.0));
                true
            }
        }
    }

    /// Books bytes of the response under way.
    #[inline]
    fn received(&mut self, slot: usize, now: u64, bytes: usize, body: usize) {
        let connection = &mut self.connections[slot];
        if now >= self.tally.begin_ns {
            connection.flags |= HEARD;
        }
        self.tally.received(connection.intended_ns, now, bytes, body);
    }

    #[inline]
    fn response_complete(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        self.tally.completed(
            connection.intended_ns,
            connection.since_ns,
            connection.first_byte_ns,
            now,
            connection.framing.status(),
            self.is_open,
        );
        if let Some(classes) = &mut self.classes {
            let (status, intended_ns) = (connection.framing.status(), connection.intended_ns);
            let (is_ok, belongs) = ((200..400).contains(&status), self.tally.belongs(intended_ns, now));
            let body_bytes = classes.completed(slot, is_ok, now.saturating_sub(intended_ns), belongs);
            if let Some(replay) = &mut self.replay
                && belongs.is_counted()
            {
                replay.answered(slot, status, body_bytes);
            }
        }
        self.in_flight -= 1;
        connection.failures = 0;
        // A request that is still being sent has spoilt the connection for the next one.
        let is_done = connection.has(LAST_REQUEST | PEER_CLOSED | WATCHES_WRITABLE);
        if !is_done && connection.framing.is_keep_alive() {
            connection.framing.reset();
            connection.state = State::Idle;
            if self.is_open {
                self.make_free(slot);
                if self.starved_since_ns.is_some() {
                    self.dispatch(now);
                }
            } else if self.may_begin(now) {
                self.send_request(slot, now, now);
            }
            return;
        }
        let server_will_close = !connection.framing.is_keep_alive() && !connection.has(WATCHES_WRITABLE);
        if connection.has(PEER_CLOSED) || !server_will_close {
            let closed_first = !connection.has(PEER_CLOSED);
            self.drop_socket(slot, now, closed_first);
            self.want_again(slot);
        } else {
            // Who closes first keeps the port in TIME_WAIT: the server has said that it will, so it may.
            connection.framing.reset();
            connection.state = State::Lingering;
            connection.since_ns = now;
        }
    }

    /// The server has closed its half, and everything before that was read.
    pub(super) fn on_end(&mut self, slot: usize, now: u64) {
        let connection = &mut self.connections[slot];
        connection.set(PEER_CLOSED, true);
        if connection.state != State::Busy {
            self.drop_socket(slot, now, false);
            return self.want_again(slot);
        }
        match connection.framing.at_end() {
            AtEnd::Complete => self.response_complete(slot, now),
            AtEnd::Nothing => self.request_failed(slot, now, Failure::ClosedEarly),
            AtEnd::Truncated => self.request_failed(slot, now, Failure::Truncated),
        }
    }

    pub(super) fn on_error(&mut self, slot: usize, now: u64, error: Errno) {
        if self.connections[slot].state == State::Busy {
            return self.request_failed(slot, now, exchange_failure(error));
        }
        self.drop_socket(slot, now, false);
        self.want_again(slot);
    }

    /// The request under way ends without a response, and its connection with it.
    pub(super) fn request_failed(&mut self, slot: usize, now: u64, failure: Failure) {
        let intended_ns = self.connections[slot].intended_ns;
        self.asked(slot, intended_ns, now);
        let connection = &mut self.connections[slot];
        self.tally.failed(intended_ns, now, failure);
        if let Some(classes) = &mut self.classes {
            classes.failed(slot, self.tally.belongs(intended_ns, now));
        }
        self.in_flight -= 1;
        let closed_first = !connection.has(PEER_CLOSED) && failure != Failure::Reset;
        self.drop_socket(slot, now, closed_first);
        // The first failure may be the server's idle timeout crossing our request; only a row of them is slowed down.
        if self.connections[slot].failures == 0 {
            self.connections[slot].failures = 1;
            self.want_again(slot);
        } else {
            self.back_off(slot, now, 500_000);
        }
    }
}

/// What an error on an established connection means for the request.
fn exchange_failure(error: Errno) -> Failure {
    match error.0 {
        libc::ETIMEDOUT => Failure::TimedOut,
        _ => Failure::from_errno(error),
    }
}
