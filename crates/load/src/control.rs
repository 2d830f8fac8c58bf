//! State shared by the calling thread and the engine threads. An engine thread reads and publishes it once per batch
//! of events, not per request.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Control {
    /// When requests begin, on the monotonic clock; 0 = not yet decided.
    start_ns: AtomicU64,
    /// When the run was cut short; 0 = it was not.
    cut_ns: AtomicU64,
    ready: AtomicUsize,
}

impl Control {
    pub(crate) fn start_ns(&self) -> Option<u64> {
        Some(self.start_ns.load(Ordering::Acquire)).filter(|start| *start > 0)
    }

    pub(crate) fn start_at(&self, start_ns: u64) {
        self.start_ns.store(start_ns.max(1), Ordering::Release);
    }

    pub(crate) fn cut_ns(&self) -> Option<u64> {
        Some(self.cut_ns.load(Ordering::Acquire)).filter(|cut| *cut > 0)
    }

    pub(crate) fn cut_at(&self, cut_ns: u64) {
        let _ = self.cut_ns.compare_exchange(0, cut_ns.max(1), Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn report_ready(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LiveCounters {
    pub(crate) connected: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) completed_total: AtomicU64,
    pub(crate) failed: AtomicU64,
}
