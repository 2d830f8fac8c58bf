use super::{Source, Transport, WireProtocol, Worker};
use crate::socket::Errno;
use record::time::monotonic_ns;

/// Maximum wait before the thread checks for orders of the calling thread.
const LONGEST_WAIT_NS: u64 = 50_000_000;
/// On a dedicated CPU, the thread wakes up this long before an intended send and then polls.
const POLL_AHEAD_NS: u64 = 30_000;

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    pub(super) fn wait(&mut self, now: u64) -> Result<usize, Errno> {
        if !self.unread.is_empty() || !self.to_open.is_empty() {
            return self.poller.wait(0);
        }
        // A closed loop may wake up a few microseconds late; a schedule needs the exact time.
        let now = if S::IS_SCHEDULED { monotonic_ns() } else { now };
        let mut until = self.sweep.next_ns.min(now + LONGEST_WAIT_NS);
        if let Some(limited) = &self.limited {
            until = until.min(limited.next_due_ns());
        }
        if self.opened_first < self.connections.len() {
            until = until.min(self.ramp.next_ns().max(now + 100_000));
        }
        if self.has_begun() {
            for edge in [self.tally.begin_ns, self.tally.end_ns] {
                if edge > now {
                    until = until.min(edge);
                }
            }
        } else if let Some(start_ns) = self.task.control.start_ns() {
            until = until.min(start_ns);
        } else {
            until = until.min(now + 2_000_000);
        }
        let due = self.source.wake_ns();
        if due < until {
            return self.wait_for_send(now, due);
        }
        self.poller.wait(until.saturating_sub(now))
    }

    /// On a dedicated CPU, sleeps until shortly before the intended send, then polls.
    fn wait_for_send(&mut self, now: u64, due: u64) -> Result<usize, Errno> {
        let gap = due.saturating_sub(now);
        // The kernel does not suspend a real-time thread that polls at most half of the time.
        if !self.task.plan.precise || gap < 2 * POLL_AHEAD_NS {
            return self.poller.wait(gap);
        }
        let count = self.poller.wait(gap - POLL_AHEAD_NS)?;
        if count > 0 {
            return Ok(count);
        }
        let mut at = monotonic_ns();
        let polling_since = at;
        let mut count = 0;
        while at < due && count == 0 {
            count = self.poller.wait(0)?;
            at = monotonic_ns();
        }
        self.polling_ns += at - polling_since;
        Ok(count)
    }
}
