use super::PlannedRequest;
use record::workload::ReplayResult;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Mean bytes of text per held request above which the window is shortened.
const TEXT_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) time_ns: i64,
    pub(super) resolution_ns: u64,
    /// Without its connection and intended time.
    pub(super) request: PlannedRequest,
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
pub(super) struct SortingWindow {
    heap: BinaryHeap<HeldRequest>,
    width_ns: i64,
    limit: usize,
    /// Bytes of all texts in the heap. A hostile log has long targets.
    text_bytes: usize,
    /// The latest time so far in the whole log.
    pub(super) latest_ns: i64,
    floor_ns: i64,
    /// How far the times of the whole log are from being sorted.
    pub(super) disorder: ReplayResult,
}

impl SortingWindow {
    pub(super) fn new(width_ns: u64, limit: usize) -> Self {
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
    pub(super) fn advance(&mut self, time_ns: i64, line: u64) -> i64 {
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

    pub(super) fn hold(&mut self, held: HeldRequest) {
        self.text_bytes += held.request.text.len();
        self.heap.push(held);
    }

    /// Returns the earliest request if no later line can precede it, or if too many are held.
    #[inline]
    pub(super) fn release(&mut self) -> Option<HeldRequest> {
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

    pub(super) fn drain(&mut self) -> Option<HeldRequest> {
        let first = self.heap.pop()?;
        self.text_bytes -= first.request.text.len();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(time_ns: i64, line: u64) -> HeldRequest {
        let request = PlannedRequest {
            client: line,
            connection: 0,
            intended_ns: 0,
            line,
            status: None,
            bytes: None,
            text: Box::from(&b"GET/"[..]),
            method_len: 3,
        };
        HeldRequest { time_ns, resolution_ns: 1_000_000_000, request }
    }

    fn sort(times: &[i64], width_ns: u64, limit: usize) -> (Vec<(i64, u64)>, SortingWindow) {
        let mut window = SortingWindow::new(width_ns, limit);
        let mut out = Vec::new();
        for (line, time) in times.iter().enumerate() {
            let time = window.advance(*time, line as u64);
            window.hold(held(time, line as u64));
            while let Some(next) = window.release() {
                out.push((next.time_ns, next.request.line));
            }
        }
        while let Some(next) = window.drain() {
            out.push((next.time_ns, next.request.line));
        }
        (out, window)
    }

    #[test]
    fn without_a_window_the_order_of_the_log_is_kept() {
        let (out, window) = sort(&[5, 3, 9, 9, 1], 0, 100);
        assert_eq!(out, [(5, 0), (5, 1), (9, 2), (9, 3), (9, 4)]);
        // The longest step is from 5 to 9.
        let counts =
            ReplayResult { clamped: 2, went_back: 2, back_max_ns: 8, gap_max_ns: 4, gap_line: 2, ..Default::default() };
        assert_eq!(window.disorder, counts);
    }

    proptest! {
        #[test]
        fn a_wide_window_sorts_stably(times in proptest::collection::vec(0i64..100, 0..200)) {
            let mut expected: Vec<(i64, u64)> = times.iter().zip(0..).map(|(time, line)| (*time, line)).collect();
            expected.sort();
            let (out, window) = sort(&times, 100, 1000);
            prop_assert_eq!(out, expected);
            prop_assert_eq!(window.disorder.clamped, 0);
        }

        #[test]
        fn any_window_keeps_all_requests_and_never_goes_back_in_time(
            times in proptest::collection::vec(0i64..100, 0..200), width in 0u64..120, limit in 1usize..50
        ) {
            let (out, _) = sort(&times, width, limit);
            prop_assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            let mut lines: Vec<u64> = out.iter().map(|(_, line)| *line).collect();
            lines.sort_unstable();
            prop_assert_eq!(lines, (0..times.len() as u64).collect::<Vec<_>>());
        }
    }
}
