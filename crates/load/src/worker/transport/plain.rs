use super::{READS_A_TURN, Transport};
use crate::connection::{ConnectionState, PEER_CLOSED, WATCHES_WRITABLE};
use crate::socket::{self, Errno, would_block};
use crate::tally::Failure;
use crate::worker::protocol::Stream;
use crate::worker::{Source, WireProtocol, Worker};
use record::time::monotonic_ns;

/// Minimum number of known body bytes that are discarded without copying.
const DISCARD_FROM: u64 = 16 * 1024;
const DISCARD_AT_ONCE: u64 = 1 << 20;

pub(crate) struct Plain;

impl Transport for Plain {
    fn connected<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        worker.ready(slot, now);
    }

    #[inline]
    fn send<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        if A::IS_PIPELINED && worker.connections[slot].has(WATCHES_WRITABLE) {
            // The rest of earlier requests is sent first, then these.
            return;
        }
        loop {
            let connection = &worker.connections[slot];
            let bytes = worker.protocol.bytes(&worker.source, worker.task.requests, slot, connection);
            match socket::send(connection.fd, bytes) {
                Ok(sent) if sent == bytes.len() => {
                    worker.all_sent(slot, sent);
                    if worker.connections[slot].stream.has_unsent() {
                        continue;
                    }
                }
                Ok(sent) => worker.sent_in_part(slot, sent),
                Err(error) if would_block(error) => worker.sent_in_part(slot, 0),
                Err(error) => worker.on_error(slot, now, error),
            }
            return;
        }
    }

    fn send_rest<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        loop {
            let connection = &worker.connections[slot];
            let bytes = worker.protocol.bytes(&worker.source, worker.task.requests, slot, connection);
            let rest = &bytes[connection.written as usize..];
            match socket::send(connection.fd, rest) {
                Ok(sent) => {
                    let is_whole = sent == rest.len();
                    let connection = &mut worker.connections[slot];
                    connection.written += sent as u32;
                    if !is_whole {
                        worker.part_sent(slot, sent);
                        continue;
                    }
                    worker.all_sent(slot, sent);
                    let connection = &mut worker.connections[slot];
                    connection.written = 0;
                    if connection.stream.has_unsent() {
                        continue;
                    }
                    if let Err(error) = worker.watch_writable(slot, false) {
                        worker.lost(slot, now, Failure::from_errno(error));
                    }
                    return;
                }
                Err(error) if would_block(error) => return,
                // The server may have answered and closed without reading the rest: read its answer first.
                Err(Errno::PIPE | Errno::CONNRESET) => return,
                Err(error) => return worker.on_error(slot, now, error),
            }
        }
    }

    fn receive<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64) {
        for _ in 0..READS_A_TURN {
            let connection = &worker.connections[slot];
            let (fd, is_busy) = (connection.fd, connection.state == ConnectionState::Busy);
            let skippable = if is_busy { connection.stream.skippable() } else { 0 };
            let is_skipped = skippable >= DISCARD_FROM;
            let most = if is_skipped { skippable.min(DISCARD_AT_ONCE) as usize } else { worker.buffer.len() };
            let Some(room) = worker.room(slot, now, most) else { return };
            let result = if is_skipped {
                socket::discard(fd, room)
            } else {
                worker.sampled.receive(&mut worker.connections[slot], &mut worker.buffer[..room])
            };
            match result {
                Ok(0) => return worker.on_end(slot, now),
                Ok(count) => {
                    worker.note_read(slot, now, count);
                    if is_skipped {
                        worker.skip_response_bytes(slot, count, now);
                    } else if worker.take_bytes(slot, count, now) {
                        return;
                    }
                    // Edge-triggered: a short read has emptied the socket, and later bytes cause another event. The
                    // end of a connection is reported only once, though.
                    let is_empty = count < room && !worker.connections[slot].has(PEER_CLOSED);
                    if is_empty || (is_busy && worker.limited.is_some()) {
                        return;
                    }
                }
                Err(error) if would_block(error) => return,
                Err(error) => return worker.on_error(slot, now, error),
            }
        }
        worker.unread.push(slot as u32);
    }
}

impl<S: Source, A: WireProtocol> Worker<'_, S, Plain, A> {
    fn sent_in_part(&mut self, slot: usize, sent: usize) {
        self.connections[slot].written = sent as u32;
        self.part_sent(slot, sent);
        if let Err(error) = self.watch_writable(slot, true) {
            self.lost(slot, monotonic_ns(), Failure::from_errno(error));
        }
    }
}
