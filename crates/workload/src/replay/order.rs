//! Sorts requests within a window of log time.

use super::PlannedRequest;
use record::workload::ReplayResult;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Mean bytes of text per held request above which the window is shortened.
const TEXT_BYTES: usize = 256;

/// A request that waits in the window.
#[derive(Debug)]
pub struct HeldRequest {
    /// Time by the log.
    pub time_ns: i64,
    /// Resolution of that time.
    pub resolution_ns: u64,
    /// Without its connection and intended time.
    pub request: PlannedRequest,
}

impl PartialEq for HeldRequest {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for HeldRequest {}

impl PartialOrd for HeldRequest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeldRequest {
    /// The order is reversed, so that the heap's greatest request is the earliest. Equal times keep the log's order.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.request.line).cmp(&(self.time_ns, self.request.line))
    }
}

/// The sorting window.
///
/// Invariant: requests leave in ascending order, and all requests earlier than `floor_ns` have left.
#[derive(Debug)]
pub struct SortingWindow {
    heap: BinaryHeap<HeldRequest>,
    width_ns: i64,
    limit: usize,
    /// Bytes of all texts in the heap. A hostile log has long targets.
    text_bytes: usize,
    /// The latest time so far in the whole log.
    pub(super) latest_ns: i64,
    floor_ns: i64,
    /// How far the times of the whole log are from being sorted.
    pub disorder: ReplayResult,
}

impl SortingWindow {
    /// A window of `width_ns` that holds at most `limit` requests.
    pub fn new(width_ns: u64, limit: usize) -> Self {
        SortingWindow {
            heap: BinaryHeap::new(),
            width_ns: i64::try_from(width_ns).unwrap_or(i64::MAX),
            limit: limit.max(1),
            text_bytes: 0,
            latest_ns: i64::MIN,
            floor_ns: i64::MIN,
            disorder: ReplayResult::default(),
        }
    }

    /// Takes the time of the next line, which may belong to another share; returns the time to use for it.
    #[inline]
    pub fn advance(&mut self, time_ns: i64, line: u64) -> i64 {
        if time_ns >= self.latest_ns {
            let gap_ns = time_ns.abs_diff(self.latest_ns);
            if gap_ns > self.disorder.gap_max_ns && self.latest_ns != i64::MIN {
                (self.disorder.gap_max_ns, self.disorder.gap_line) = (gap_ns, line);
            }
            self.latest_ns = time_ns;
            self.floor_ns = self.floor_ns.max(time_ns.saturating_sub(self.width_ns));
            return time_ns;
        }
        self.disorder.went_back += 1;
        self.disorder.back_max_ns = self.disorder.back_max_ns.max(time_ns.abs_diff(self.latest_ns));
        if time_ns < self.floor_ns {
            self.disorder.clamped += 1;
            return self.floor_ns;
        }
        time_ns
    }

    /// Takes a request into the window.
    pub fn hold(&mut self, held: HeldRequest) {
        self.text_bytes += held.request.text.len();
        self.heap.push(held);
    }

    /// Returns the earliest request if no later line can precede it, or if too many are held.
    #[inline]
    pub fn release(&mut self) -> Option<HeldRequest> {
        let first = self.heap.peek()?;
        // A line that is moved up to the floor later has a higher number, so requests at the floor may leave.
        if first.time_ns > self.floor_ns {
            if self.heap.len() <= self.limit && self.text_bytes <= self.limit.saturating_mul(TEXT_BYTES) {
                return None;
            }
            self.floor_ns = first.time_ns;
        }
        self.drain()
    }

    /// Returns the earliest request at the end of the log.
    pub fn drain(&mut self) -> Option<HeldRequest> {
        let first = self.heap.pop()?;
        self.text_bytes -= first.request.text.len();
        Some(first)
    }
}
