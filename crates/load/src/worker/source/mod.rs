//! Where requests come from: a closed loop, an open loop's schedule, or a log.

mod closed;
mod open;
mod replay;

pub(crate) use closed::Closed;
pub(crate) use open::Open;
pub(crate) use replay::Replay;

use super::{Report, Transport, Worker};
use crate::connection::Connection;
use crate::framing::HeadCache;
use crate::request::Requests;
use crate::tally::Failure;

/// Decides which request leaves when, and on which connection. The [`Worker`] carries it there and back.
///
/// Functions that take a worker are called where a connection's life turns; they may send a request, or open or close
/// connections. The others answer a question of the worker's.
pub(crate) trait Source: Sized {
    /// Requests have an intended send of their own. Else a request is meant to leave when the one before it ends.
    const IS_SCHEDULED: bool;

    /// The load begins. The tally's window is set.
    fn begin<T: Transport>(worker: &mut Worker<'_, Self, T>, start_ns: u64, now: u64);

    /// A new connection is established and idle. A request may have waited for it.
    fn connected<T: Transport>(worker: &mut Worker<'_, Self, T>, slot: usize, now: u64);

    /// A response is complete, and its connection is idle again.
    fn answered<T: Transport>(worker: &mut Worker<'_, Self, T>, slot: usize, now: u64);

    /// A connection is closed, and may be opened again.
    fn closed<T: Transport>(worker: &mut Worker<'_, Self, T>, slot: usize);

    /// Sends every request that is due and finds a connection.
    fn send_due<T: Transport>(_worker: &mut Worker<'_, Self, T>, _now: u64) {}

    /// When [`send_due`](Self::send_due) has something to do; `u64::MAX` = never.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// When the thread is to wake up for a request. Not for one that must wait for an event.
    fn wake_ns(&self) -> u64 {
        self.due_ns()
    }

    /// The target of the next request on `slot`: an index into the [`HeadCache`].
    fn target(&mut self, requests: &Requests, slot: usize) -> usize;

    /// The class of the request under way on `slot`.
    fn class(&self, requests: &Requests, _slot: usize, target: usize) -> u8 {
        requests.class_of(target)
    }

    /// The bytes of the request under way on `slot`.
    #[inline]
    fn bytes<'b>(&'b self, requests: &'b Requests, _slot: usize, connection: &Connection) -> &'b [u8] {
        requests.of(connection)
    }

    /// The longest request that may come.
    fn longest(&self, requests: &Requests) -> usize {
        requests.longest()
    }

    /// What is remembered of response heads.
    fn heads(&self, requests: &Requests) -> HeadCache {
        HeadCache::new(requests.is_head, requests.targets.len())
    }

    /// Connections are opened when a request needs them, not before.
    fn opens_on_demand(&self) -> bool {
        false
    }

    /// The first request is known.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// The intended send of the request that an attempt to connect is for, if it is for one.
    fn carried_by(connection: &Connection, has_begun: bool) -> Option<u64> {
        let _ = has_begun;
        connection.carried_request()
    }

    /// Attempts to connect are for requests; so they are waited for at the end.
    fn attempts_are_requests(&self) -> bool {
        true
    }

    /// An attempt to connect has failed.
    fn attempt_failed(&mut self, _failure: Failure) {}

    /// A complete response to a request of the window.
    fn compare(&mut self, _slot: usize, _status: u16, _body_bytes: u64) {}

    /// No request is to leave any more.
    fn is_done(&self) -> bool {
        true
    }

    /// All there is was sent; so the window ends with the last response.
    fn ends_window(&self) -> bool {
        false
    }

    /// The run is cut short: nothing that is meant for `end_ns` or later leaves.
    fn cut(&mut self, _end_ns: u64) {}

    /// The window is over.
    fn window_ends(&mut self) {}

    /// Intended sends before `end_ns` of requests that have not left when the run ends.
    fn left_over(&mut self, _end_ns: u64) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }

    /// Adds the source's own figures and memory.
    fn report(&self, _report: &mut Report) {}
}
