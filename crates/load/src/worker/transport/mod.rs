//! The transport of a connection: plain or TLS, paced, and sampled for its reap delay.

mod pace;
mod plain;
pub mod reap;
mod tls;

pub use pace::LimitedPace;
pub(crate) use plain::Plain;
pub use reap::ArrivalTime;
pub(crate) use reap::SampledPace;
pub(crate) use tls::Tls;

use super::{Source, WireProtocol, Worker};

/// Maximum consecutive reads from one connection before others have their turn.
const READS_A_TURN: usize = 32;

pub(crate) trait Transport: Sized {
    /// Called when TCP is established. Calls [`Worker::ready`], at once or after a handshake.
    fn connected<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    fn on_handshaking<S: Source, A: WireProtocol>(
        _worker: &mut Worker<'_, S, Self, A>,
        _slot: usize,
        _conditions: u32,
        _now: u64,
    ) {
    }

    fn send<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    fn send_rest<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    fn receive<S: Source, A: WireProtocol>(worker: &mut Worker<'_, S, Self, A>, slot: usize, now: u64);

    fn closed(&mut self, _slot: usize) {}

    fn report(&self, _report: &mut super::WorkerReport) {}
}
