//! The longest stall of a server: a time in which requests were in flight and no response came. A closed loop sends
//! nothing meanwhile, so even a long stall leaves few slow requests. A request that timed out counts as in flight
//! until the next response, because the server was silent since.

use std::ops::Range;

/// Number of longest waits that each thread keeps. The server's stall is among them unless this many waits of the
/// thread's own connections were longer.
const KEPT: usize = 32;

#[derive(Debug, Clone, Default)]
pub(crate) struct StallLog {
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
    pub(crate) fn answered(&mut self, sent_ns: u64, now_ns: u64, window: Range<u64>) {
        let sent_ns = self.given_up_ns.take().map_or(sent_ns, |given_up_ns| given_up_ns.min(sent_ns));
        let (from_ns, to_ns) = (self.answered_ns.max(sent_ns).max(window.start), now_ns.min(window.end));
        self.answered_ns = now_ns;
        if from_ns <= to_ns && (self.longest.len() < KEPT || to_ns - from_ns > self.shortest_ns) {
            self.keep(from_ns..to_ns);
        }
    }

    pub(crate) fn gave_up(&mut self, sent_ns: u64) {
        self.given_up_ns = Some(self.given_up_ns.map_or(sent_ns, |given_up_ns| given_up_ns.min(sent_ns)));
    }

    pub(crate) fn end(&mut self, window: Range<u64>) {
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
    pub(crate) fn merge(&mut self, other: StallLog) {
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

    pub(crate) fn longest_ns(&self) -> Option<u64> {
        self.longest.iter().map(length).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(responses: &[(u64, u64)]) -> StallLog {
        let mut stalls = StallLog::default();
        responses.iter().for_each(|(sent, came)| stalls.answered(*sent, *came, 100..10_000));
        stalls
    }

    #[test]
    fn time_without_requests_and_before_the_window_is_not_a_stall() {
        assert_eq!(StallLog::default().longest_ns(), None);
        assert_eq!(seen(&[(10, 130)]).longest_ns(), Some(30), "from the window's begin");
        assert_eq!(
            seen(&[(100, 110), (1000, 1020), (1020, 1025)]).longest_ns(),
            Some(20),
            "nothing was asked before 1000"
        );
        assert_eq!(seen(&[(100, 110), (105, 150), (106, 152)]).longest_ns(), Some(40), "two were in flight");
    }

    #[test]
    fn abandoned_requests_and_the_end_of_the_window_do_not_end_a_stall() {
        let mut stalls = seen(&[(100, 200)]);
        [210, 410, 610].into_iter().for_each(|sent| stalls.gave_up(sent));
        stalls.answered(810, 900, 100..2_000);
        assert_eq!(stalls.longest_ns(), Some(690));
        stalls.answered(900, 901, 100..2_000);
        let mut late = stalls.clone();
        late.answered(901, 5_000, 100..2_000);
        assert_eq!(late.longest_ns(), Some(1_099), "answered after the window");
        late.answered(5_000, 9_000, 100..2_000);
        late.end(100..2_000);
        assert_eq!(late.longest_ns(), Some(1_099), "after it nothing counts");
        stalls.gave_up(950);
        stalls.end(100..2_000);
        assert_eq!(stalls.longest_ns(), Some(1_050), "still in flight at the end");
    }

    #[test]
    fn only_the_longest_stalls_are_kept() {
        let mut stalls = StallLog::default();
        (1..1000).for_each(|at| stalls.answered(at * 1000, at * 1000 + at * 7 % 1000, 0..u64::MAX));
        let mut kept: Vec<u64> = stalls.longest.iter().map(length).collect();
        kept.sort_unstable();
        assert_eq!(kept, (1000 - KEPT as u64..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_stall_must_affect_all_threads() {
        let merged = |a: &[(u64, u64)], b: &[(u64, u64)]| {
            let mut both = seen(a);
            both.merge(seen(b));
            both.longest_ns()
        };
        assert_eq!(merged(&[(100, 300)], &[(150, 310)]), Some(150));
        assert_eq!(merged(&[(100, 200)], &[(250, 400)]), Some(0), "one of them was always answered");
        assert_eq!(merged(&[(100, 200)], &[]), Some(100));
        assert_eq!(merged(&[], &[]), None);
        // Both threads stalled from 300 to 800; then the first one had a longer wait of its own.
        let pause_and_own = [(100, 300), (300, 800), (800, 810), (810, 1500)];
        let pause = [(100, 290), (290, 800), (800, 900), (900, 1000), (1000, 1100), (1100, 1500)];
        assert_eq!(merged(&pause_and_own, &pause), Some(500), "the longest of all, not of what was longest for each");
    }
}
