//! The longest stall of a server: a time in which requests were in flight and no response came. A closed loop sends
//! nothing meanwhile, so even a long stall leaves few slow requests. A request that timed out counts as in flight
//! until the next response, because the server was silent since.

use std::ops::Range;

/// Number of longest waits that each thread keeps. The server's stall is among them unless this many waits of the
/// thread's own connections were longer.
pub const KEPT: usize = 32;

/// The longest waits of a thread.
#[derive(Debug, Clone, Default)]
pub struct StallLog {
    answered_ns: u64,
    given_up_ns: Option<u64>,
    /// Waits, unordered.
    longest: Vec<Range<u64>>,
    shortest_ns: u64,
}

fn length(wait: &Range<u64>) -> u64 {
    wait.end - wait.start
}

impl StallLog {
    /// Counts a response at `now_ns` to a request sent at `sent_ns`, clipped to the window.
    #[inline]
    pub fn answered(&mut self, sent_ns: u64, now_ns: u64, window: Range<u64>) {
        let sent_ns = self.given_up_ns.take().map_or(sent_ns, |given_up_ns| given_up_ns.min(sent_ns));
        let (from_ns, to_ns) = (self.answered_ns.max(sent_ns).max(window.start), now_ns.min(window.end));
        self.answered_ns = now_ns;
        if from_ns <= to_ns && (self.longest.len() < KEPT || to_ns - from_ns > self.shortest_ns) {
            self.keep(from_ns..to_ns);
        }
    }

    /// Counts a request without a response as in flight until the next one.
    pub fn gave_up(&mut self, sent_ns: u64) {
        self.given_up_ns = Some(self.given_up_ns.map_or(sent_ns, |given_up_ns| given_up_ns.min(sent_ns)));
    }

    /// Ends the log with the window.
    pub fn end(&mut self, window: Range<u64>) {
        if let Some(given_up_ns) = self.given_up_ns {
            self.answered(given_up_ns, window.end, window);
        }
    }

    fn keep(&mut self, stall: Range<u64>) {
        if self.longest.len() == KEPT
            && let Some(shortest) = self.longest.iter_mut().min_by_key(|one| length(one))
        {
            *shortest = stall;
        } else {
            self.longest.push(stall);
        }
        if self.longest.len() == KEPT {
            self.shortest_ns = self.longest.iter().map(length).min().unwrap_or(0);
        }
    }

    /// Merges another thread's waits: the server stalled while neither thread had a response. A thread without any
    /// response waited all the time.
    pub fn merge(&mut self, other: StallLog) {
        if self.longest.is_empty() {
            *self = other;
        } else if !other.longest.is_empty() {
            let both = |(mine, theirs): (&Range<u64>, &Range<u64>)| {
                let from_ns = mine.start.max(theirs.start);
                from_ns..mine.end.min(theirs.end).max(from_ns)
            };
            let pairs = self.longest.iter().flat_map(|mine| other.longest.iter().map(move |theirs| (mine, theirs)));
            let mut found: Vec<_> = pairs.map(both).collect();
            found.sort_unstable_by_key(|one| std::cmp::Reverse(length(one)));
            found.truncate(KEPT);
            self.longest = found;
        }
    }

    /// Lengths of the kept waits, unordered.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.longest.iter().map(length)
    }

    /// Length of the longest stall; `None` without a response.
    pub fn longest_ns(&self) -> Option<u64> {
        self.longest.iter().map(length).max()
    }
}
