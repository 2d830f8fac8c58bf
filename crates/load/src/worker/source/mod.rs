mod closed;
mod open;
mod replay;

pub(crate) use closed::ClosedLoop;
pub(crate) use open::OpenLoop;
pub(crate) use replay::Replay;

use super::{Transport, WireProtocol, Worker, WorkerReport};
use crate::replay::PendingRequest;
use crate::request::Requests;

/// Chooses the next request, its time and its connection. The [`Worker`] sends it and reads the response.
///
/// Functions that take a worker are called when a connection changes its state; they may send a request, or open or
/// close connections. The others return information to the worker.
pub(crate) trait Source: Sized {
    /// Whether requests have intended sends of their own. Otherwise a request is intended when the one before it
    /// ends.
    const IS_SCHEDULED: bool;

    /// Whether the requests are those of a log.
    const IS_LOG: bool = false;

    fn begin<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, start_ns: u64, now: u64);

    fn connected<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64);

    fn answered<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64);

    fn closed<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize);

    fn send_due<T: Transport, A: WireProtocol>(_worker: &mut Worker<'_, Self, T, A>, _now: u64) {}

    /// When [`send_due`](Self::send_due) next has work to do; `u64::MAX`: never.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// When the thread must wake up for a request. Requests that wait for an event do not count.
    fn wake_ns(&self) -> u64 {
        self.due_ns()
    }

    /// The target of the next request on `slot`: an index into the kept heads.
    fn target(&mut self, requests: &Requests, slot: usize) -> usize;

    /// The log's request on `slot`.
    #[inline]
    fn logged(&self, _slot: usize) -> Option<&PendingRequest> {
        None
    }

    /// Whether connections are opened only when a request needs them.
    fn opens_on_demand(&self) -> bool {
        false
    }

    fn is_ready(&mut self) -> bool {
        true
    }

    fn compare(&mut self, _slot: usize, _status: u16, _body_bytes: u64) {}

    fn is_done(&self) -> bool {
        true
    }

    /// Whether the window ends with the last response because everything was sent.
    fn ends_window(&self) -> bool {
        false
    }

    /// Cuts the run short: requests intended for `end_ns` or later are not sent.
    fn cut(&mut self, _end_ns: u64) {}

    fn window_ends(&mut self) {}

    /// The intended sends before `end_ns` of the requests that are unsent when the run ends.
    fn left_over(&mut self, _end_ns: u64) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }

    fn report(&self, _report: &mut WorkerReport) {}
}
