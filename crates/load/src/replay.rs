//! Replays of logs: the read-ahead, and the comparison of answers.

mod doubts;
mod feed;

pub(crate) use doubts::dominant_client_ratio;
pub use doubts::doubts;
pub use feed::{BATCHES, Feed, FeedStep, Feeder, Next, STEPS, TEXT_BYTES, feeder};

use record::workload::ReplayResult;

/// A request of a log that waits to be sent.
#[derive(Debug)]
pub struct PendingRequest {
    pub(crate) client: u64,
    pub(crate) session: u64,
    /// Time since the first request; the engine thread converts it to an instant.
    pub(crate) intended_ns: u64,
    /// When the engine thread took it from the feed. Waiting after this time is not the generator's lateness.
    pub(crate) taken_ns: u64,
    /// The request as it is sent.
    pub bytes: Box<[u8]>,
    pub(crate) is_head: bool,
    pub(crate) class: u8,
    pub(crate) status: Option<u16>,
    pub(crate) body_bytes: Option<u64>,
}

/// Compares an answer with the log's.
pub fn compare(result: &mut ReplayResult, request: &PendingRequest, status: u16, body_bytes: u64) {
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
