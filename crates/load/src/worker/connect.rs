use super::protocol::Stream;
use super::slowest::{Opening, RequestEnd};
use super::{Source, Transport, WireProtocol, Worker};
use crate::connection::{
    ANSWERED, ASKED, CARRIES_REQUEST, ConnectionState, KNOWN_SLOW, LINGERED, QUEUED, RequestInFlight, WATCHES_WRITABLE,
};
use crate::poller::{READABLE, WRITABLE_TOO};
use crate::ports::{PortChoice, PortLease};
use crate::socket::{self, Errno};
use crate::tally::Failure;
use record::time::monotonic_ns;

/// Explicit ports tried before an attempt fails; other programs may hold some of them.
const PORT_TRIES: usize = 16;
const MAX_BACK_OFF_NS: u64 = 1_000_000_000;

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    pub(super) fn open_first(&mut self, now: u64) {
        let mut allowance = self.ramp.allowance(now, self.connecting);
        while allowance > 0 && self.opened_first < self.connections.len() {
            let slot = self.opened_first;
            self.opened_first += 1;
            allowance -= 1;
            self.open(slot, monotonic_ns());
        }
    }

    pub(super) fn reopen(&mut self) {
        // Only the slots queued now: with `connect` as the protocol, a connection may be closed again at once.
        for _ in 0..self.to_open.len() {
            let Some(slot) = self.to_open.pop_front() else { return };
            let slot = slot as usize;
            if self.connections[slot].state == ConnectionState::Closed && (S::IS_SCHEDULED || !self.is_draining()) {
                self.open(slot, monotonic_ns());
            }
        }
    }

    pub(super) fn open(&mut self, slot: usize, now: u64) {
        self.connections[slot].since_ns = now;
        loop {
            let Some(lease) = self.task.ports.lease(now) else {
                self.connect_failed(slot, now, Failure::LocalLimit("no local port was left for a connection"));
                return;
            };
            let mut lease = Some(lease);
            let error = match self.begin_connect(&mut lease) {
                Ok((fd, is_established)) => return self.begun(slot, fd, lease, is_established, now),
                Err(error) => error,
            };
            let Some(lease) = lease else { continue };
            if error == Errno::ADDRNOTAVAIL {
                // Another source address may have ports left. The loop ends when the allocator has none.
                self.task.ports.exhausted(lease, now);
                continue;
            }
            self.task.ports.release(lease, false, now);
            self.connect_failed(slot, now, Failure::from_errno(error));
            return;
        }
    }

    fn begun(&mut self, slot: usize, fd: i32, lease: Option<PortLease>, is_established: bool, now: u64) {
        let connection = &mut self.connections[slot];
        connection.fd = fd;
        if let Some(lease) = lease {
            connection.lease = lease;
        }
        (connection.requests, connection.written) = (0, 0);
        connection.flags &= CARRIES_REQUEST | QUEUED | ASKED | ANSWERED | LINGERED;
        connection.generation = connection.generation.wrapping_add(1);
        connection.state = ConnectionState::Connecting;
        connection.set(WATCHES_WRITABLE, !is_established);
        self.connecting += 1;
        let interest = if is_established { READABLE } else { WRITABLE_TOO };
        let token = connection.token(slot as u32);
        if let Err(error) = self.poller.add(fd, interest, token) {
            self.connect_failed(slot, now, Failure::from_errno(error));
        } else if is_established {
            self.established(slot, monotonic_ns());
        }
    }

    /// Returns the descriptor and whether it is established already. After an error the caller returns `lease`.
    fn begin_connect(&mut self, lease: &mut Option<PortLease>) -> Result<(i32, bool), Errno> {
        let fd = socket::stream_socket(self.task.address.is_ipv4())?;
        let result = self.bind(fd, lease).and_then(|()| {
            if self.needs_no_delay {
                socket::set_no_delay(fd)?;
            }
            if let Some(limited) = &self.limited {
                limited.prepare(fd)?;
            }
            let is_established = socket::connect(fd, &self.task.address)?;
            if is_established || !self.task.address.ip().is_loopback() {
                return Ok(is_established);
            }
            // On loopback the handshake is usually over when connect returns; checking costs less than waiting for an
            // event.
            socket::connect(fd, &self.task.address)
        });
        if result.is_err() {
            socket::close(fd);
        }
        result.map(|is_established| (fd, is_established))
    }

    fn bind(&mut self, fd: i32, lease: &mut Option<PortLease>) -> Result<(), Errno> {
        let mut tries = 0;
        while let Some(current) = *lease {
            let source = self.task.sources[usize::from(current.source)];
            let result =
                socket::bind_source(fd, source, current.port, self.task.port_range, self.task.address.is_ipv4());
            let is_taken = result == Err(Errno::ADDRINUSE) && matches!(current.port, PortChoice::Explicit(_));
            if !is_taken || tries == PORT_TRIES {
                return result;
            }
            tries += 1;
            self.task.ports.release(current, false, 0);
            *lease = self.task.ports.lease(0);
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    pub(super) fn on_connecting(&mut self, slot: usize, conditions: u32, now: u64) {
        let fd = self.connections[slot].fd;
        if conditions & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0 {
            let error = socket::take_error(fd).unwrap_or(Errno::CONNRESET);
            self.connect_failed(slot, now, Failure::from_errno(error));
            return;
        }
        if conditions & libc::EPOLLOUT as u32 == 0 {
            return;
        }
        match self.watch_writable(slot, false) {
            Ok(()) => self.established(slot, now),
            Err(error) => self.connect_failed(slot, now, Failure::from_errno(error)),
        }
    }

    /// Whether further events tell that the socket is writable.
    pub(super) fn watch_writable(&mut self, slot: usize, is_watched: bool) -> Result<(), Errno> {
        let connection = &mut self.connections[slot];
        connection.set(WATCHES_WRITABLE, is_watched);
        let interest = if is_watched { WRITABLE_TOO } else { READABLE };
        self.poller.modify(connection.fd, interest, connection.token(slot as u32))
    }

    fn established(&mut self, slot: usize, now: u64) {
        let took_ns = now.saturating_sub(self.connections[slot].since_ns);
        self.ramp.succeeded(took_ns);
        self.tally.connected(took_ns);
        T::connected(self, slot, now);
    }

    pub(super) fn ready(&mut self, slot: usize, now: u64) {
        if A::IS_PIPELINED {
            let connection = &mut self.connections[slot];
            let replies = self.protocol.open(&mut connection.stream);
            if replies > 0 {
                connection.state = ConnectionState::Opening;
                connection.target = replies;
                return T::send(self, slot, now);
            }
        }
        self.opened(slot, now);
    }

    pub(super) fn opened(&mut self, slot: usize, now: u64) {
        self.openings[slot] = Opening::new(self.connections[slot].since_ns, now);
        self.connections[slot].state = ConnectionState::Idle;
        self.connecting -= 1;
        self.established += 1;
        S::connected(self, slot, now);
    }

    pub(super) fn connect_failed(&mut self, slot: usize, now: u64, failure: Failure) {
        let intended_ns = self.carried_by(slot);
        let connection = &mut self.connections[slot];
        connection.set(CARRIES_REQUEST, false);
        self.openings[slot] = Opening::new(connection.since_ns, now);
        if let Some(intended_ns) = intended_ns {
            let request = RequestInFlight { intended_ns, ..RequestInFlight::default() };
            self.request_ended(slot, request, now, RequestEnd::NotSent(failure.kind()));
        }
        let connection = &mut self.connections[slot];
        if connection.state.is_opening() {
            self.connecting -= 1;
            self.drop_socket(slot, now, false);
        }
        if self.opened_first < self.connections.len() {
            self.ramp.fall_back(now);
        }
        self.tally.connect_failed(failure);
        self.last_failure = Some(failure);
        if let Some(intended_ns) = intended_ns {
            self.asked(slot, intended_ns, now);
            self.tally.issued(intended_ns);
            self.tally.failed(intended_ns, now, failure);
        }
        self.back_off(slot, now, 10_000_000);
    }

    /// The intended send of the request for which a connection attempt is made, if any. In a closed loop, the attempt
    /// opens the connection for its next request.
    pub(super) fn carried_by(&self, slot: usize) -> Option<u64> {
        let connection = &self.connections[slot];
        if S::IS_SCHEDULED { connection.carried_request() } else { self.has_begun().then_some(connection.since_ns) }
    }

    pub(super) fn asked(&mut self, slot: usize, intended_ns: u64, now: u64) {
        if self.tally.belongs(intended_ns, now).is_counted() {
            self.connections[slot].set(ASKED, true);
        }
    }

    /// Lets a slot pause for `first_ns`, doubled with each consecutive failure, up to a second. A quarter of the
    /// pause is random, so that slots do not all return at once.
    pub(super) fn back_off(&mut self, slot: usize, now: u64, first_ns: u64) {
        let connection = &mut self.connections[slot];
        let pause = first_ns.saturating_mul(1 << connection.failures.min(20)).min(MAX_BACK_OFF_NS);
        let spread = pause / 4 * (slot as u64 % 64) / 64;
        connection.failures = connection.failures.saturating_add(1);
        connection.state = ConnectionState::BackOff;
        connection.since_ns = now + pause + spread;
    }

    pub(super) fn drop_socket(&mut self, slot: usize, now: u64, closed_first: bool) {
        let connection = &mut self.connections[slot];
        if matches!(connection.state, ConnectionState::Idle | ConnectionState::Busy | ConnectionState::Lingering) {
            self.established -= 1;
        }
        socket::close(connection.fd);
        self.transport.closed(slot);
        connection.fd = -1;
        connection.state = ConnectionState::Closed;
        connection.stream.close();
        // Events of the old socket in this batch are stale.
        connection.generation = connection.generation.wrapping_add(1);
        self.task.ports.release(connection.lease, closed_first, now);
    }

    pub(super) fn has_no_connection(&self) -> bool {
        self.established == 0 && self.connecting == 0 && self.to_open.is_empty()
    }

    pub(super) fn note_hanging(&mut self, slot: usize, now: u64) {
        if !self.connections[slot].has(KNOWN_SLOW) {
            self.connections[slot].set(KNOWN_SLOW, true);
            self.ramp.fall_back(now);
        }
    }
}
