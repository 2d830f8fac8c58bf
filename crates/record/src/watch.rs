//! The watch of a running server: the contents of a reading, the rates between two readings, and the lines that are
//! printed as JSON and kept in a run directory (`watch.jsonl`). `straingauge watch` writes them, `straingauge report`
//! reads them.

pub mod counters;
mod counts;
mod headroom;
mod histogram;
mod limits;
mod line;
mod rates;
mod reading;
pub mod system;

pub use counters::Counter;
pub use counts::Counts;
pub use headroom::{Headroom, Limit, LimitKind, Range, UnknownLimit};
pub use histogram::{BUCKETS, Log2Histogram, bucket_end_ns};
pub use limits::{BusyThread, CpuQuota, Descriptors, LimitTotals};
pub use line::{Beginning, Line, Taken, Watching};
pub use rates::{ClassRates, Rates};
pub use reading::*;

use serde::{Deserialize, Serialize};

/// The file's name in a run directory.
pub const FILE: &str = "watch.jsonl";

crate::worded! {
    /// The level of detail.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Mode {
        /// Connection states and the kernel's own counters of closed connections; nothing runs per request.
        Zero = "zero",
        /// Every request is counted with its bytes and CPU time; no phases.
        Counts = "counts",
        /// Requests are counted, all or in windows, and phases are timed in windows, as far as the overhead limit
        /// allows.
        #[default]
        Budgeted = "budgeted",
        /// Every request is counted and its phases are timed.
        Exact = "exact",
    }
}

impl Mode {
    /// Whether requests are counted.
    pub fn counts_requests(self) -> bool {
        self != Mode::Zero
    }
}

/// Class of response sizes: `[from, below)` bytes of head and body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct SizeClass {
    /// Name, shown in tables.
    pub name: String,
    /// Smallest response of the class, head and body, bytes.
    pub from_bytes: u64,
    /// First size of the next class; `None` for the last class.
    pub below_bytes: Option<u64>,
}
