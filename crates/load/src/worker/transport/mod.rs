//! How requests and responses cross an established connection: plain or over TLS, and the pace of reading.

mod pace;
mod plain;
mod reap;
mod tls;

pub(crate) use pace::{Limited, Pace};
pub(crate) use plain::Plain;
pub(crate) use reap::{Arrival, Sampled};
pub(crate) use tls::Tls;

use super::{Protocol, Source, Worker};

/// Maximum consecutive reads from one connection before others have their turn.
const READS_A_TURN: usize = 32;

/// The transport of a connection's bytes, chosen once for each thread like its [`Source`].
pub(crate) trait Transport: Sized {
    /// How fast responses are read.
    type Pace: Pace;

    fn pace(&self) -> &Self::Pace;

    fn pace_mut(&mut self) -> &mut Self::Pace;

    /// Called when TCP is established. Calls [`Worker::ready`], at once or after a handshake.
    fn connected<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    /// Handles an event on a connection during its handshake.
    fn on_handshaking<S: Source, A: Protocol>(
        _worker: &mut Worker<'_, S, Self, A>,
        _slot: usize,
        _conditions: u32,
        _now: u64,
    ) {
    }

    fn send<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    /// Called when the socket has room again for the rest of a request.
    fn send_rest<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    /// Reads until the socket is empty, the response is complete, or the turn is over.
    fn receive<S: Source, A: Protocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    fn closed(&mut self, _slot: usize) {}

    fn report(&self, _report: &mut super::Report) {}
}
