//! TLS on the engine's connections: the handshake after the connect, and then the bytes of requests and responses.

use super::Worker;
use crate::connection::{PEER_CLOSED, State, WATCHES_WRITABLE};
use crate::poller::{READABLE, WRITABLE_TOO};
use crate::socket::{self, Errno};
use crate::tally::Failure;
use crate::tls::{RAW_BYTES, words};
use std::io::{self, Read, Write};

/// Reads from one connection in a row.
const READS_A_TURN: usize = 32;

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

impl Worker<'_> {
    /// TCP is established: the handshake begins. The attempt counts as under way until it is over.
    pub(super) fn begin_handshake(&mut self, slot: usize, now: u64) {
        self.connections[slot].state = State::Handshaking;
        let Some(tls) = self.tls.as_deref_mut() else { return };
        tls.began_ns[slot] = now;
        match tls.setting.connection() {
            Ok(connection) => tls.of_slot[slot] = Some(Box::new(connection)),
            Err(error) => return self.tls_failed(slot, now, &error),
        }
        self.flush_tls(slot, now);
    }

    pub(super) fn on_handshaking(&mut self, slot: usize, conditions: u32, now: u64) {
        if conditions & libc::EPOLLRDHUP as u32 != 0 {
            self.connections[slot].set(PEER_CLOSED, true);
        }
        if self.connections[slot].has(WATCHES_WRITABLE) && conditions & libc::EPOLLOUT as u32 != 0 {
            self.flush_tls(slot, now);
        }
        if self.connections[slot].state == State::Handshaking {
            self.receive_tls(slot, now);
        }
    }

    fn handshake_done(&mut self, slot: usize, now: u64) {
        let in_window = self.tally.covers(now);
        if let Some(tls) = self.tls.as_deref_mut() {
            tls.times.record_ns(now.saturating_sub(tls.began_ns[slot]));
            tls.completed_in_window += u64::from(in_window);
            let kind = tls.of_slot[slot].as_ref().and_then(|session| session.handshake_kind());
            tls.resumed += u64::from(kind == Some(rustls::HandshakeKind::Resumed));
        }
        self.ready(slot, now);
    }

    /// The session is of no use any more: the attempt, or the request under way, has failed.
    fn tls_failed(&mut self, slot: usize, now: u64, error: &rustls::Error) {
        if let Some(tls) = self.tls.as_deref_mut() {
            tls.failed += 1;
            tls.example.get_or_insert_with(|| words(error));
        }
        self.lost(slot, now, Failure::Tls);
    }

    fn lost(&mut self, slot: usize, now: u64, failure: Failure) {
        match self.connections[slot].state {
            State::Connecting | State::Handshaking => self.connect_failed(slot, now, failure),
            State::Busy => self.request_failed(slot, now, failure),
            _ => {
                self.drop_socket(slot, now, true);
                self.want_again(slot);
            }
        }
    }

    /// Gives a request to the session, and the session's bytes to the socket.
    pub(super) fn send_tls(&mut self, slot: usize, bytes: &[u8], now: u64) {
        let written = match self.tls.as_deref_mut().and_then(|tls| tls.of_slot[slot].as_mut()) {
            Some(session) => session.writer().write_all(bytes).is_ok(),
            None => false,
        };
        if !written {
            return self.lost(slot, now, Failure::Tls);
        }
        self.tally.sent(self.connections[slot].intended_ns, bytes.len());
        self.flush_tls(slot, now);
    }

    /// Sends what the session holds; watches for room when the socket takes no more.
    pub(super) fn flush_tls(&mut self, slot: usize, now: u64) {
        let fd = self.connections[slot].fd;
        let mut calls = 0;
        let outcome = loop {
            let Some(session) = self.tls.as_deref_mut().and_then(|tls| tls.of_slot[slot].as_mut()) else { return };
            if !session.wants_write() {
                break Ok(true);
            }
            calls += 1;
            match session.write_tls(&mut Sink(fd)) {
                Ok(_) => {}
                Err(error) => match Errno(error.raw_os_error().unwrap_or(libc::EIO)) {
                    errno if errno.would_block() => break Ok(false),
                    // The server may have answered and closed: its answer is read first.
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

    /// Reads what the socket holds and gives the plain bytes to whom they are for.
    pub(super) fn receive_tls(&mut self, slot: usize, now: u64) {
        for _ in 0..READS_A_TURN {
            let Some(room) = self.paced_room(slot, now, RAW_BYTES) else { return };
            let connection = &self.connections[slot];
            let generation = connection.generation;
            let Some(tls) = self.tls.as_deref_mut() else { return };
            self.system_calls += 1;
            match socket::receive(connection.fd, &mut tls.raw[..room]) {
                Ok(0) if connection.state == State::Handshaking => {
                    return self.connect_failed(slot, now, Failure::Reset);
                }
                Ok(0) => return self.on_end(slot, now),
                Ok(count) => {
                    let is_paced = self.pacing.is_some() && connection.state == State::Busy;
                    if is_paced {
                        self.paced_took(slot, now, count);
                    }
                    self.decrypt(slot, count, now);
                    let connection = &self.connections[slot];
                    if connection.generation != generation || is_paced {
                        return;
                    }
                    if count < room && !connection.has(PEER_CLOSED) {
                        return;
                    }
                }
                Err(error) if error.would_block() => return,
                Err(error) if self.connections[slot].state == State::Handshaking => {
                    return self.connect_failed(slot, now, Failure::from_errno(error));
                }
                Err(error) => return self.on_error(slot, now, error),
            }
        }
        self.unread.push(slot as u32);
    }

    /// Takes `count` raw bytes through the session. Ends early when the slot turns to something else.
    fn decrypt(&mut self, slot: usize, count: usize, now: u64) {
        let generation = self.connections[slot].generation;
        let mut at = 0;
        while at < count {
            let Some(tls) = self.tls.as_deref_mut() else { return };
            let Some(session) = tls.of_slot[slot].as_mut() else { return };
            let mut rest = &tls.raw[at..count];
            let taken = match session.read_tls(&mut rest) {
                Ok(taken) => taken,
                Err(_) => return self.lost(slot, now, Failure::Tls),
            };
            at += taken;
            if let Err(error) = session.process_new_packets() {
                // The server must get the alert for it.
                let _ = session.write_tls(&mut Sink(self.connections[slot].fd));
                return self.tls_failed(slot, now, &error);
            }
            let (is_handshaking, wants_write) = (session.is_handshaking(), session.wants_write());
            if wants_write {
                self.flush_tls(slot, now);
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

    /// Takes the plain bytes that a session holds; whether there were any.
    fn take_plain(&mut self, slot: usize, generation: u16, now: u64) -> bool {
        let mut has_plain = false;
        while self.connections[slot].generation == generation {
            let Some(tls) = self.tls.as_deref_mut() else { break };
            let Some(session) = tls.of_slot[slot].as_mut() else { break };
            // "Would block": nothing more yet. An end, with or without notice, comes from the socket, too.
            let Ok(count @ 1..) = session.reader().read(&mut self.buffer) else { break };
            has_plain = true;
            match self.connections[slot].state {
                State::Busy => {
                    self.take_response_bytes(slot, count, now);
                }
                State::Idle => {
                    self.tally.stray(&self.buffer[..count]);
                    self.drop_socket(slot, now, true);
                    self.want_again(slot);
                }
                _ => self.tally.stray(&self.buffer[..count]),
            }
        }
        has_plain
    }
}
