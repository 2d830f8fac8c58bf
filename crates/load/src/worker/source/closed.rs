//! Closed loop: each connection sends its next request when the response to the last one is complete.

use super::Source;
use crate::connection::ConnectionState;
use crate::request::{Requests, TargetChoice};
use crate::worker::{Task, Transport, WireProtocol, Worker};
use record::time::monotonic_ns;

pub(crate) struct ClosedLoop {
    choice: TargetChoice,
}

impl ClosedLoop {
    pub(crate) fn new(task: &Task<'_>) -> Self {
        ClosedLoop { choice: TargetChoice::new(task.requests, task.plan.seed, task.share) }
    }
}

impl Source for ClosedLoop {
    const IS_SCHEDULED: bool = false;

    fn begin<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, _start_ns: u64, now: u64) {
        if A::CONNECTS_ONLY {
            return worker.to_open.extend(0..worker.connections.len() as u32);
        }
        let mut now = now;
        for slot in 0..worker.connections.len() {
            if worker.connections[slot].state == ConnectionState::Idle {
                worker.fill(slot, now);
                now = monotonic_ns();
            }
        }
    }

    fn connected<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64) {
        if A::CONNECTS_ONLY {
            // The attempt began before the window's end, and the request is answered after it.
            return worker.send_request(slot, now, now);
        }
        if worker.is_loading() && now < worker.tally.end_ns {
            worker.fill(slot, now);
        }
    }

    /// Requests sent for the remaining events at the end of the window would belong to no window.
    #[inline]
    fn answered<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize, now: u64) {
        if worker.is_loading() && now < worker.tally.end_ns {
            worker.send_request(slot, now, now);
        }
    }

    fn closed<T: Transport, A: WireProtocol>(worker: &mut Worker<'_, Self, T, A>, slot: usize) {
        worker.to_open.push_back(slot as u32);
    }

    #[inline]
    fn target(&mut self, requests: &Requests, _slot: usize) -> usize {
        self.choice.next(requests)
    }
}
