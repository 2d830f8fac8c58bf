use super::{READS_A_TURN, Transport};
use crate::connection::{ConnectionState, LAST_REQUEST, PEER_CLOSED, WATCHES_WRITABLE};
use crate::socket::{self, Errno, errno, would_block};
use crate::tally::Failure;
use crate::tls::{RAW_BYTES, Sessions, TlsSetting, error_text};
use crate::worker::{Source, WireProtocol, Worker};
use std::io::{self, Read, Write};

struct Sink(i32);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, bytes).map_err(io::Error::from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct Tls {
    sessions: Box<Sessions>,
}

impl Tls {
    pub(crate) fn new(setting: &TlsSetting, connections: usize) -> Self {
        Tls { sessions: Sessions::new(setting, connections) }
    }
}

impl Transport for Tls {
    fn connected<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        worker.connections[slot].state = ConnectionState::Handshaking;
        let sessions = &mut worker.transport.sessions;
        sessions.began_ns[slot] = now;
        match sessions.setting.connection() {
            Ok(connection) => sessions.of_slot[slot] = Some(Box::new(connection)),
            Err(error) => return worker.tls_failed(slot, now, &error),
        }
        worker.flush(slot, now);
    }

    fn on_handshaking<S: Source, A: WireProtocol>(
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
        if worker.connections[slot].state == ConnectionState::Handshaking {
            Self::receive(worker, slot, now);
        }
    }

    fn send<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        if A::IS_PIPELINED && worker.connections[slot].has(WATCHES_WRITABLE) {
            // The rest of earlier requests is sent first, then these.
            return;
        }
        worker.connections[slot].written = 0;
        worker.flush(slot, now);
    }

    fn send_rest<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        worker.flush(slot, now);
    }

    fn receive<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        for _ in 0..READS_A_TURN {
            let Some(room) = worker.room(slot, now, RAW_BYTES) else { return };
            let connection = &mut worker.connections[slot];
            let (state, generation) = (connection.state, connection.generation);
            match worker.sampled.receive(connection, &mut worker.transport.sessions.raw[..room]) {
                Ok(0) if state == ConnectionState::Handshaking => return worker.handshake_cut(slot, now),
                Ok(0) => return worker.on_end(slot, now),
                Ok(count) => {
                    worker.note_read(slot, now, count);
                    worker.decrypt(slot, count, now);
                    let connection = &worker.connections[slot];
                    let is_empty = count < room && !connection.has(PEER_CLOSED);
                    let rests = worker.limited.is_some() && state == ConnectionState::Busy;
                    if connection.generation != generation || is_empty || rests {
                        return;
                    }
                }
                Err(error) if would_block(error) => return,
                Err(error) => return worker.socket_failed(slot, now, error),
            }
        }
        worker.unread.push(slot as u32);
    }

    fn closed(&mut self, slot: usize) {
        self.sessions.of_slot[slot] = None;
    }

    fn report(&self, report: &mut crate::worker::WorkerReport) {
        report.tls = Some(self.sessions.tally.clone());
    }
}

impl<S: Source, A: WireProtocol> Worker<'_, S, Tls, A> {
    fn handshake_done(&mut self, slot: usize, now: u64) {
        let in_window = self.tally.covers(now);
        let sessions = &mut self.transport.sessions;
        sessions.tally.times.record_ns(now.saturating_sub(sessions.began_ns[slot]));
        sessions.tally.completed_in_window += u64::from(in_window);
        let kind = sessions.of_slot[slot].as_ref().and_then(|session| session.handshake_kind());
        sessions.tally.resumed += u64::from(kind == Some(rustls::HandshakeKind::Resumed));
        self.ready(slot, now);
    }

    fn tls_failed(&mut self, slot: usize, now: u64, error: &rustls::Error) {
        self.failed_by(slot, now, || error_text(error));
    }

    /// Handles a server that closed the connection during the handshake, or reset it because of unread bytes.
    fn handshake_cut(&mut self, slot: usize, now: u64) {
        self.failed_by(slot, now, || {
            "it closed the connection during the handshake: does it limit connections?".into()
        });
    }

    fn failed_by(&mut self, slot: usize, now: u64, words: impl FnOnce() -> String) {
        let sessions = &mut self.transport.sessions;
        sessions.tally.example.get_or_insert_with(words);
        self.lost(slot, now, Failure::Tls);
    }

    fn socket_failed(&mut self, slot: usize, now: u64, error: Errno) {
        match (self.connections[slot].state, Failure::from_errno(error)) {
            (ConnectionState::Handshaking, Failure::Reset) => self.handshake_cut(slot, now),
            (ConnectionState::Handshaking, failure) => self.connect_failed(slot, now, failure),
            _ => self.on_error(slot, now, error),
        }
    }

    fn flush(&mut self, slot: usize, now: u64) {
        let outcome = loop {
            match self.write(slot) {
                Ok(true) => {}
                outcome => break outcome,
            }
            let connection = &self.connections[slot];
            if !A::IS_PIPELINED && connection.state != ConnectionState::Busy {
                break Ok(true);
            }
            let bytes = self.protocol.bytes(&self.source, self.task.requests, slot, connection);
            let rest = &bytes[connection.written as usize..];
            let Some(session) = self.transport.sessions.of_slot[slot].as_mut() else { return };
            let Ok(taken) = session.writer().write(rest) else { return self.lost(slot, now, Failure::Tls) };
            if taken == 0 {
                break Ok(true);
            }
            let is_whole = taken == rest.len();
            self.connections[slot].written += taken as u32;
            if !is_whole {
                self.part_sent(slot, taken);
                continue;
            }
            self.all_sent(slot, taken);
            if A::IS_PIPELINED {
                self.connections[slot].written = 0;
            }
        };
        let changed = outcome.and_then(|is_empty| {
            let has_changed = is_empty == self.connections[slot].has(WATCHES_WRITABLE);
            if has_changed { self.watch_writable(slot, !is_empty) } else { Ok(()) }
        });
        if let Err(error) = changed {
            self.socket_failed(slot, now, error);
        }
    }

    /// Sends the session's bytes; false when the socket is full.
    fn write(&mut self, slot: usize) -> Result<bool, Errno> {
        let fd = self.connections[slot].fd;
        loop {
            let session = self.transport.sessions.of_slot[slot].as_mut();
            let Some(session) = session.filter(|session| session.wants_write()) else { return Ok(true) };
            if let Err(error) = session.write_tls(&mut Sink(fd)) {
                return match errno(error) {
                    error if would_block(error) => Ok(false),
                    // The server may have answered and closed: read its answer first.
                    Errno::PIPE | Errno::CONNRESET if self.connections[slot].state == ConnectionState::Busy => Ok(true),
                    error => Err(error),
                };
            }
        }
    }

    /// Ends early when the slot is closed or gets a new request.
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
            let has_ended = match session.process_new_packets() {
                Ok(state) => state.peer_has_closed(),
                Err(error) => {
                    // Sends the server the alert about the error.
                    let _ = session.write_tls(&mut Sink(self.connections[slot].fd));
                    return self.tls_failed(slot, now, &error);
                }
            };
            let (is_handshaking, wants_write) = (session.is_handshaking(), session.wants_write());
            if wants_write {
                self.flush(slot, now);
            }
            if self.connections[slot].generation != generation {
                return;
            }
            if self.connections[slot].state == ConnectionState::Handshaking && !is_handshaking {
                self.handshake_done(slot, now);
            }
            if has_ended && self.connections[slot].generation == generation {
                // Bytes before the close may complete a response.
                self.connections[slot].set(LAST_REQUEST, true);
            }
            let has_plain = self.take_plain(slot, generation, now);
            if self.connections[slot].generation != generation || (taken == 0 && !has_plain) {
                return;
            }
            if has_ended {
                return self.on_notice(slot, now);
            }
        }
    }

    /// Handles the server's end of TLS. The server may keep TCP open until the client has ended TLS, as asyncio does.
    fn on_notice(&mut self, slot: usize, now: u64) {
        let generation = self.connections[slot].generation;
        if !self.connections[slot].has(PEER_CLOSED)
            && let Some(session) = self.transport.sessions.of_slot[slot].as_mut()
        {
            session.send_close_notify();
            self.flush(slot, now);
        }
        match self.connections[slot].state {
            _ if self.connections[slot].generation != generation => {}
            ConnectionState::Handshaking => self.handshake_cut(slot, now),
            ConnectionState::Lingering => {}
            _ => self.ended(slot, now),
        }
    }

    fn take_plain(&mut self, slot: usize, generation: u16, now: u64) -> bool {
        let mut has_plain = false;
        while self.connections[slot].generation == generation {
            let Some(session) = self.transport.sessions.of_slot[slot].as_mut() else { break };
            // "Would block": no more bytes yet. The socket reports the end, with or without close_notify.
            let Ok(count @ 1..) = session.reader().read(&mut self.buffer) else { break };
            has_plain = true;
            self.take_bytes(slot, count, now);
        }
        has_plain
    }
}
