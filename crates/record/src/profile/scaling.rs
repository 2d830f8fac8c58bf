//! The cost of calls over many descriptors on a kernel.

use serde::Serialize;

/// All calls and their costs.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Scaling {
    /// The kernel's release.
    pub kernel: String,
    /// How many descriptors the process may have (RLIMIT_NOFILE, hard).
    pub descriptor_limit: u64,
    /// The calls.
    pub calls: Vec<CallScaling>,
    /// Whether it was ended early.
    pub is_interrupted: bool,
}

/// A call's costs and their growth.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CallScaling {
    /// The call.
    pub call: Call,
    /// Costs by number of descriptors.
    pub costs: Vec<Cost>,
    /// Exponent e of cost ~ descriptors^e; 0 = flat, 1 = proportional.
    pub exponent: Option<f64>,
    /// In words.
    pub growth: Growth,
    /// Added cost of a further idle descriptor, nanoseconds.
    pub ns_per_descriptor: Option<f64>,
}

crate::worded! {
    /// A call that is measured.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Call {
        /// select() over all descriptors.
        Select = "select",
        /// poll() over all descriptors.
        Poll = "poll",
        /// epoll_wait() with all descriptors registered.
        EpollWait = "epoll_wait",
        /// accept() of a connection that waits.
        Accept = "accept",
        /// The next descriptor after a low one was freed and taken again: the kernel searches for the lowest that is free.
        DescriptorAllocation = "descriptor allocation",
    }
}

/// Cost of a call at one number of descriptors, CPU nanoseconds a call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cost {
    /// Idle descriptors.
    pub descriptors: usize,
    /// Median of the batches.
    pub median_ns: f64,
    /// Lower quartile.
    pub lower_ns: f64,
    /// Upper quartile.
    pub upper_ns: f64,
    /// Batches.
    pub batches: usize,
}

/// The growth of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// Hardly or not at all.
    Flat,
    /// Less than in proportion.
    Slow,
    /// In proportion to the descriptors.
    Proportional,
    /// Faster than that.
    Faster,
    /// Fewer than two points.
    Unknown,
}
