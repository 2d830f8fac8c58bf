//! The longest stall of a server: a time in which requests were under way and no response came. A closed loop sends
//! nothing meanwhile, so a stall leaves few slow requests, whatever its length.

/// What one thread saw, or what all threads saw at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stalls {
    /// When the last response came.
    answered_ns: u64,
    longest: Option<(u64, u64)>,
}

impl Stalls {
    /// A response came at `now_ns`, to a request that left at `sent_ns`; what was before `begin_ns` does not count.
    #[inline]
    pub(crate) fn answered(&mut self, sent_ns: u64, now_ns: u64, begin_ns: u64) {
        let from_ns = self.answered_ns.max(sent_ns).max(begin_ns);
        self.answered_ns = now_ns;
        if self.longest_ns().is_none_or(|longest_ns| now_ns.saturating_sub(from_ns) > longest_ns) {
            self.longest = Some((from_ns, now_ns.max(from_ns)));
        }
    }

    /// Adds another thread: the server stalled while neither had a response. A thread without any response waited all the time.
    pub(crate) fn merge(&mut self, other: Stalls) {
        self.longest = match (self.longest, other.longest) {
            (Some(mine), Some(theirs)) => {
                let from_ns = mine.0.max(theirs.0);
                Some((from_ns, mine.1.min(theirs.1).max(from_ns)))
            }
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// The longest one; `None`: no response came.
    pub(crate) fn longest_ns(&self) -> Option<u64> {
        self.longest.map(|(from_ns, to_ns)| to_ns - from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(responses: &[(u64, u64)]) -> Stalls {
        let mut stalls = Stalls::default();
        responses.iter().for_each(|(sent, came)| stalls.answered(*sent, *came, 100));
        stalls
    }

    #[test]
    fn time_without_a_request_and_time_before_the_window_are_no_stall() {
        assert_eq!(Stalls::default().longest_ns(), None);
        assert_eq!(seen(&[(10, 130)]).longest_ns(), Some(30), "from the window's begin");
        assert_eq!(
            seen(&[(100, 110), (1000, 1020), (1020, 1025)]).longest_ns(),
            Some(20),
            "nothing was asked before 1000"
        );
        assert_eq!(seen(&[(100, 110), (105, 150), (106, 152)]).longest_ns(), Some(40), "two were under way");
    }

    #[test]
    fn threads_stall_together_or_not_at_all() {
        let merged = |a: &[(u64, u64)], b: &[(u64, u64)]| {
            let mut both = seen(a);
            both.merge(seen(b));
            both.longest_ns()
        };
        assert_eq!(merged(&[(100, 300)], &[(150, 310)]), Some(150));
        assert_eq!(merged(&[(100, 200)], &[(250, 400)]), Some(0), "one of them was always answered");
        assert_eq!(merged(&[(100, 200)], &[]), Some(100));
        assert_eq!(merged(&[], &[]), None);
    }
}
