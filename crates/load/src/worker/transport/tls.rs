//! TLS on the engine's connections: the handshake after the connect, and then the bytes of requests and responses.

use super::{Pace, READS_A_TURN, Transport};
use crate::connection::{PEER_CLOSED, State, WATCHES_WRITABLE};
use crate::poller::{READABLE, WRITABLE_TOO};
use crate::socket::{self, Errno};
use crate::tally::Failure;
use crate::tls::{RAW_BYTES, Sessions, TlsSetting, words};
use crate::worker::{Protocol, Source, Worker};
use std::io::{self, Read, Write};

/// A descriptor as rustls writes to it.
struct Sink(i32);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes).map_err(Errno::io)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Tls<P> {
    pace: P,
    sessions: Box<Sessions>,
}

impl<P: Pace> Tls<P> {
    pub(crate) fn new(setting: &TlsSetting, connections: usize, pace: P) -> Self {
        Tls { pace, sessions: Sessions::new(setting, connections) }
    }
}

impl<P: Pace> Transport for Tls<P> {
    type Pace = P;

    fn pace(&self) -> &P {
        &self.pace
    }

    fn pace_mut(&mut self) -> &mut P {
        &mut self.pace
    }

    /// Begins the handshake. The attempt is under way until it is complete.
    fn connected<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        worker.connections[slot].state = State::Handshaking;
        let sessions = &mut worker.transport.sessions;
        sessions.began_ns[slot] = now;
        match sessions.setting.connection() {
            Ok(connection) => sessions.of_slot[slot] = Some(Box::new(connection)),
            Err(error) => return worker.tls_failed(slot, now, &error),
        }
        worker.flush(slot, now);
    }

    fn on_handshaking<S: Source, A: Protocol>(
        worker: &mut Worker<'_, S, Self, A>,
        slot: usize,
        conditions: u32,
        now: u64,
    ) {
        if conditions & libc::EPOLLRDHUP as u32 != 0 {
            worker.connections[slot].set(PEER_CLOSED, true);
        }
        if worker.connections[slot].has(WATCHES_WRITABLE) && conditions & libc::EPOLLOUT as u32 != 0 {
            worker.flush(slot, now);
        }
        if worker.connections[slot].state == State::Handshaking {
            Self::receive(worker, slot, now);
        }
    }

    /// Gives the request to the session, and the session's bytes to the socket.
    fn send<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        let connection = &worker.connections[slot];
        let bytes = A::bytes(&worker.source, worker.task.requests, slot, connection);
        let session = worker.transport.sessions.of_slot[slot].as_mut();
        if session.is_none_or(|session| session.writer().write_all(bytes).is_err()) {
            return worker.lost(slot, now, Failure::Tls);
        }
        let sent = bytes.len();
        worker.all_sent(slot, sent);
        worker.flush(slot, now);
    }

    fn send_rest<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        worker.flush(slot, now);
    }

    /// Handles the decrypted bytes.
    fn receive<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        for _ in 0..READS_A_TURN {
            let Some(room) = worker.room(slot, now, RAW_BYTES) else { return };
            let connection = &mut worker.connections[slot];
            let (state, generation) = (connection.state, connection.generation);
            worker.system_calls += 1;
            let Tls { pace, sessions } = &mut worker.transport;
            match pace.receive(connection, &mut sessions.raw[..room]) {
                Ok(0) if state == State::Handshaking => return worker.connect_failed(slot, now, Failure::Reset),
                Ok(0) => return worker.on_end(slot, now),
                Ok(count) => {
                    worker.note_read(slot, now, count);
                    worker.decrypt(slot, count, now);
                    let connection = &worker.connections[slot];
                    let is_empty = count < room && !connection.has(PEER_CLOSED);
                    let rests = P::IS_LIMITED && state == State::Busy;
                    if connection.generation != generation || is_empty || rests {
                        return;
                    }
                }
                Err(error) if error.would_block() => return,
                Err(error) if state == State::Handshaking => {
                    return worker.connect_failed(slot, now, Failure::from_errno(error));
                }
                Err(error) => return worker.on_error(slot, now, error),
            }
        }
        worker.unread.push(slot as u32);
    }

    fn closed(&mut self, slot: usize) {
        self.sessions.of_slot[slot] = None;
    }

    fn report(&self, report: &mut crate::worker::Report) {
        self.pace.report(report);
        report.tls = Some(self.sessions.tally.clone());
    }
}

impl<S: Source, P: Pace, A: Protocol> Worker<'_, S, Tls<P>, A> {
    fn handshake_done(&mut self, slot: usize, now: u64) {
        let in_window = self.tally.covers(now);
        let sessions = &mut self.transport.sessions;
        sessions.tally.times.record_ns(now.saturating_sub(sessions.began_ns[slot]));
        sessions.tally.completed_in_window += u64::from(in_window);
        let kind = sessions.of_slot[slot].as_ref().and_then(|session| session.handshake_kind());
        sessions.tally.resumed += u64::from(kind == Some(rustls::HandshakeKind::Resumed));
        self.ready(slot, now);
    }

    /// Ends an unusable session: the attempt, or the request under way, has failed.
    fn tls_failed(&mut self, slot: usize, now: u64, error: &rustls::Error) {
        let sessions = &mut self.transport.sessions;
        sessions.tally.failed += 1;
        sessions.tally.example.get_or_insert_with(|| words(error));
        self.lost(slot, now, Failure::Tls);
    }

    /// Sends the session's bytes; waits for room when the socket is full.
    fn flush(&mut self, slot: usize, now: u64) {
        let fd = self.connections[slot].fd;
        let mut calls = 0;
        let outcome = loop {
            let Some(session) = self.transport.sessions.of_slot[slot].as_mut() else { return };
            if !session.wants_write() {
                break Ok(true);
            }
            calls += 1;
            match session.write_tls(&mut Sink(fd)) {
                Ok(_) => {}
                Err(error) => match Errno(error.raw_os_error().unwrap_or(libc::EIO)) {
                    errno if errno.would_block() => break Ok(false),
                    // The server may have answered and closed: read its answer first.
                    Errno(libc::EPIPE | libc::ECONNRESET) if self.connections[slot].state == State::Busy => {
                        break Ok(true);
                    }
                    errno => break Err(errno),
                },
            }
        };
        self.system_calls += calls;
        let watches = self.connections[slot].has(WATCHES_WRITABLE);
        let changed = match outcome {
            Ok(is_empty) if is_empty == watches => {
                self.connections[slot].set(WATCHES_WRITABLE, !is_empty);
                let interest = if is_empty { READABLE } else { WRITABLE_TOO };
                let token = self.connections[slot].token(slot as u32);
                self.system_calls += 1;
                self.poller.modify(fd, interest, token)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            self.lost(slot, now, Failure::from_errno(error));
        }
    }

    /// Passes `count` received bytes through the session. Ends early when the slot is closed or gets a new request.
    fn decrypt(&mut self, slot: usize, count: usize, now: u64) {
        let generation = self.connections[slot].generation;
        let mut at = 0;
        while at < count {
            let Sessions { of_slot, raw, .. } = &mut *self.transport.sessions;
            let Some(session) = of_slot[slot].as_mut() else { return };
            let mut rest = &raw[at..count];
            let taken = match session.read_tls(&mut rest) {
                Ok(taken) => taken,
                Err(_) => return self.lost(slot, now, Failure::Tls),
            };
            at += taken;
            if let Err(error) = session.process_new_packets() {
                // Send the server the alert for it.
                let _ = session.write_tls(&mut Sink(self.connections[slot].fd));
                return self.tls_failed(slot, now, &error);
            }
            let (is_handshaking, wants_write) = (session.is_handshaking(), session.wants_write());
            if wants_write {
                self.flush(slot, now);
            }
            if self.connections[slot].generation != generation {
                return;
            }
            if self.connections[slot].state == State::Handshaking && !is_handshaking {
                self.handshake_done(slot, now);
            }
            let has_plain = self.take_plain(slot, generation, now);
            if self.connections[slot].generation != generation || (taken == 0 && !has_plain) {
                return;
            }
        }
    }

    /// Handles the decrypted bytes of a session; returns whether there were any.
    fn take_plain(&mut self, slot: usize, generation: u16, now: u64) -> bool {
        let mut has_plain = false;
        while self.connections[slot].generation == generation {
            let Some(session) = self.transport.sessions.of_slot[slot].as_mut() else { break };
            // "Would block": nothing more yet. The socket reports an end, with or without a notice.
            let Ok(count @ 1..) = session.reader().read(&mut self.buffer) else { break };
            has_plain = true;
            self.take_bytes(slot, count, now);
        }
        has_plain
    }
}
