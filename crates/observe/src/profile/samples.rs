//! What the sampler's programs counted, free of how it lies in the kernel's memory: samples by place, packets, losses.

use record::profile::Losses;
use std::collections::HashMap;

/// Parts of the window that are counted apart, so that the spread between them gives the intervals.
pub const BLOCKS: u32 = 10;
/// No process: the CPU had nothing to do.
pub const TGID_IDLE: u32 = 0;
/// A process that is not the server's.
pub const TGID_OTHERS: u32 = u32::MAX;

/// Whose packet a CPU took up last in its network softirq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// None of the port's.
    Nobody,
    /// Received by the server's end.
    Server,
    /// Received by the other end, on this machine.
    Peer,
}

/// Where a sample fell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleKey {
    /// Kernel stack by hash, 0 = none.
    pub kernel_stack: u64,
    /// User stack by hash, 0 = none.
    pub user_stack: u64,
    /// One of the server's processes, [`TGID_IDLE`] or [`TGID_OTHERS`].
    pub tgid: u32,
    /// Number of the perf event.
    pub event: u8,
    /// Whose packet was under way on the CPU.
    pub side: Side,
    /// The CPU was in user mode.
    pub is_user: bool,
    /// The table of stacks was full.
    pub is_stack_lost: bool,
    /// Which tenth of the window.
    pub block: u8,
}

/// Interrupts of the sampling clock, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Interrupts {
    /// That came.
    pub arrived: u64,
    /// Periods that passed without one, because the one before came late.
    pub late: u64,
}

impl Interrupts {
    /// Those after `earlier`.
    pub fn since(&self, earlier: &Interrupts) -> Interrupts {
        Interrupts {
            arrived: self.arrived.saturating_sub(earlier.arrived),
            late: self.late.saturating_sub(earlier.late),
        }
    }
}

/// Everything that a window left in the kernel.
#[derive(Debug, Clone, Default)]
pub struct RawSamples {
    /// Samples by place.
    pub samples: Vec<(SampleKey, u64)>,
    /// Kernel stacks by hash.
    pub kernel_stacks: HashMap<u64, Vec<u64>>,
    /// User stacks by hash.
    pub user_stacks: HashMap<u64, Vec<u64>>,
    /// What found no room.
    pub losses: Losses,
}
