mod doubts;
mod feed;

pub(crate) use doubts::dominant_client_ratio;
pub use doubts::doubts;
pub(crate) use feed::{Feed, FeedStep, Next, feeder};

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

/// Compares an answer with the log's.
pub(crate) fn compare(result: &mut ReplayResult, request: &PendingRequest, status: u16, body_bytes: u64) {
    if let Some(logged) = request.status {
        *if logged == status { &mut result.statuses_equal } else { &mut result.statuses_different } += 1;
    }
    // Another status means another document, and a response to HEAD has no body, whatever size was logged.
    if let Some(expected) = request.body_bytes
        && request.status.is_none_or(|logged| logged == 200)
        && status == 200
        && !request.is_head
    {
        result.expected_bytes = result.expected_bytes.saturating_add(expected);
        result.got_bytes += body_bytes;
        *if expected == body_bytes { &mut result.sizes_equal } else { &mut result.sizes_different } += 1;
    }
}

/// All feeders read the same lines, but perhaps not equally far: those of the farthest one count.
pub(crate) fn merged(mut accounts: Vec<ReplayResult>) -> Option<ReplayResult> {
    accounts.sort_by_key(|account| std::cmp::Reverse(account.lines));
    accounts.into_iter().reduce(|mut whole, part| {
        whole.add(&ReplayResult { lines: 0, rejected: 0, went_back: 0, clamped: 0, ..part });
        whole
    })
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
        let mut comparison = ReplayResult::default();
        let mut answered = |request: PendingRequest, status, bytes| compare(&mut comparison, &request, status, bytes);
        answered(logged(Some(200), Some(10)), 200, 10);
        answered(logged(Some(200), Some(10)), 200, 9);
        answered(logged(Some(304), None), 200, 10);
        answered(logged(Some(404), Some(7)), 404, 100);
        answered(logged(None, Some(10)), 200, 10);
        answered(PendingRequest { is_head: true, ..logged(Some(200), Some(10)) }, 200, 0);
        assert_eq!((comparison.sizes_equal, comparison.sizes_different), (2, 1));
        assert_eq!((comparison.expected_bytes, comparison.got_bytes), (30, 29));
        assert_eq!((comparison.statuses_equal, comparison.statuses_different), (4, 1));
    }
}
