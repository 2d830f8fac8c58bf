//! Readings before and after a load, where the server's counts must equal those of a client. They are taken while no
//! request ends, and before a load only after the requests of the last one have ended.
//!
//! A reading adds the requests that an event has ended to those that are answered and wait for their event. A request
//! whose event comes between the two counts would be counted twice, and many events come when a client has just
//! closed its connections.

use super::watcher::Watcher;
use record::time::monotonic_ns;
use record::watch::Reading;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestProgress {
    /// Requests ended by an event.
    pub finished: u64,
    /// Requests that are answered but not ended by an event yet.
    pub answered: u64,
    /// Requests that are not answered or not fully acknowledged, and connections that the client but not the server
    /// has closed, whose unread bytes may become requests.
    pub unfinished: u64,
}

/// Maximum wait of a load for earlier requests: in total, and without any change. A server that never answers some
/// requests must not delay every load.
pub const MOST_NS: u64 = 2_000_000_000;
pub const STILL_NS: u64 = 1_000_000_000;
const REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(20);
/// Maximum readings to get one during which no request ends; with other clients on the port there may be none.
const MOST_READINGS: usize = 20;
/// Index of CLOSE_WAIT in [`crate::sock_diag::STATES`].
const CLOSE_WAIT: usize = 8;

impl Watcher {
    /// The requests by progress; `None` if they are not counted.
    pub fn progress(&mut self) -> Option<RequestProgress> {
        if !self.options.mode.counts_requests() {
            return None;
        }
        let closing = self.states()[CLOSE_WAIT];
        self.tracer.as_mut()?.progress(closing)
    }

    /// A reading during which no request ended, if possible.
    pub fn read_still(&mut self) -> Reading {
        let (mut before, mut rest) = (self.progress(), REST);
        for _ in 1..MOST_READINGS {
            let reading = self.read();
            let after = self.progress();
            if counts_of(before) == counts_of(after) {
                return reading;
            }
            before = after;
            std::thread::sleep(rest);
            rest = (rest * 2).min(LONGEST_REST);
        }
        self.read()
    }
}

fn counts_of(progress: Option<RequestProgress>) -> Option<(u64, u64)> {
    progress.map(|progress| (progress.finished, progress.answered))
}

#[derive(Debug, Default)]
pub struct LoadGaps {
    /// Requests that were unfinished after the longest wait; the next load does not wait for them.
    pub stuck: u64,
}

impl LoadGaps {
    pub fn waits(&self, progress: RequestProgress, waited_ns: u64, still_ns: u64) -> bool {
        progress.unfinished > self.stuck && waited_ns < MOST_NS && still_ns < STILL_NS
    }

    /// Waits until the requests in progress have ended, within limits.
    pub fn wait_until_over(&mut self, watcher: &mut Watcher) {
        let began_ns = monotonic_ns();
        let (mut last, mut moved_ns, mut rest) = (None, began_ns, REST);
        while let Some(progress) = watcher.progress() {
            let now_ns = monotonic_ns();
            if last.replace(progress) != Some(progress) {
                moved_ns = now_ns;
            }
            if !self.waits(progress, now_ns - began_ns, now_ns - moved_ns) {
                self.stuck = progress.unfinished;
                return;
            }
            std::thread::sleep(rest);
            rest = (rest * 2).min(LONGEST_REST);
        }
    }
}
