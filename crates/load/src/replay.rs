mod doubts;
mod feed;

pub(crate) use doubts::dominant_client_ratio;
pub use doubts::doubts;
pub(crate) use feed::{Feed, FeedReport, FeedStep, Next, feeder};

use record::workload::ReplayResult;

#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) client: u64,
    pub(crate) session: u64,
    /// Time since the first request; the engine thread converts it to an instant.
    pub(crate) intended_ns: u64,
    /// When the engine thread took it from the feed. Waiting after this time is not the generator's lateness.
    pub(crate) taken_ns: u64,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) is_head: bool,
    pub(crate) class: u8,
    pub(crate) status: Option<u16>,
    pub(crate) body_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplayComparison {
    pub(crate) expected_bytes: u64,
    pub(crate) got_bytes: u64,
    pub(crate) sizes_equal: u64,
    pub(crate) sizes_different: u64,
    pub(crate) statuses_equal: u64,
    pub(crate) statuses_different: u64,
    /// Sessions whose connection was closed for another client.
    pub(crate) evicted: u64,
    pub(crate) is_whole: bool,
}

impl ReplayComparison {
    pub(crate) fn answered(&mut self, request: &PendingRequest, status: u16, body_bytes: u64) {
        if let Some(logged) = request.status {
            *if logged == status { &mut self.statuses_equal } else { &mut self.statuses_different } += 1;
        }
        // Another status means another document, and a response to HEAD has no body, whatever size was logged.
        if let Some(expected) = request.body_bytes
            && request.status.is_none_or(|logged| logged == 200)
            && status == 200
            && !request.is_head
        {
            self.expected_bytes = self.expected_bytes.saturating_add(expected);
            self.got_bytes += body_bytes;
            *if expected == body_bytes { &mut self.sizes_equal } else { &mut self.sizes_different } += 1;
        }
    }

    pub(crate) fn add_to(&self, result: &mut ReplayResult) {
        result.expected_bytes = result.expected_bytes.saturating_add(self.expected_bytes);
        result.got_bytes += self.got_bytes;
        result.sizes_equal += self.sizes_equal;
        result.sizes_different += self.sizes_different;
        result.statuses_equal += self.statuses_equal;
        result.statuses_different += self.statuses_different;
        result.evicted += self.evicted;
        result.is_whole &= self.is_whole;
    }
}

/// All feeders read the same lines, but perhaps not equally far.
pub(crate) fn merged(reports: Vec<FeedReport>) -> Option<ReplayResult> {
    let mut whole: Option<ReplayResult> = None;
    for FeedReport { account, unsendable, failure } in reports {
        let result = whole.get_or_insert_with(|| ReplayResult {
            file: account.file.clone(),
            format: account.format.clone(),
            is_whole: true,
            ..ReplayResult::default()
        });
        if account.lines > result.lines {
            result.lines = account.lines;
            result.rejected = account.rejected;
            result.rejected_examples = account.rejected_examples;
            result.went_back = account.went_back;
            result.back_max_ns = account.back_max_ns;
            result.clamped = account.clamped;
            (result.gap_max_ns, result.gap_line) = (account.gap_max_ns, account.gap_line);
        }
        result.rounds = result.rounds.max(account.rounds);
        result.requests += account.requests;
        result.clients += account.clients;
        result.largest_client_requests = result.largest_client_requests.max(account.largest_client_requests);
        result.sessions += account.sessions;
        result.evicted += account.evicted;
        result.span_ns = result.span_ns.max(account.span_ns);
        result.unsendable += unsendable;
        result.is_whole &= failure.is_none();
        result.failure = result.failure.take().or(failure);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(status: Option<u16>, body_bytes: Option<u64>) -> PendingRequest {
        PendingRequest {
            client: 0,
            session: 0,
            intended_ns: 0,
            taken_ns: 0,
            bytes: Box::default(),
            is_head: false,
            class: 0,
            status,
            body_bytes,
        }
    }

    #[test]
    fn sizes_are_compared_only_where_both_sides_answered_200() {
        let mut comparison = ReplayComparison::default();
        comparison.answered(&logged(Some(200), Some(10)), 200, 10);
        comparison.answered(&logged(Some(200), Some(10)), 200, 9);
        comparison.answered(&logged(Some(304), None), 200, 10);
        comparison.answered(&logged(Some(404), Some(7)), 404, 100);
        comparison.answered(&logged(None, Some(10)), 200, 10);
        comparison.answered(&PendingRequest { is_head: true, ..logged(Some(200), Some(10)) }, 200, 0);
        assert_eq!((comparison.sizes_equal, comparison.sizes_different), (2, 1));
        assert_eq!((comparison.expected_bytes, comparison.got_bytes), (30, 29));
        assert_eq!((comparison.statuses_equal, comparison.statuses_different), (4, 1));
    }
}
