//! The counts of the sampler's programs, independent of their form in the kernel: samples by place, packets, losses.

use record::profile::Losses;
use std::collections::{HashMap, HashSet};

/// Parts of the window that are counted separately; their spread gives the intervals.
pub const BLOCKS: u32 = 10;
/// No process, because the CPU was idle.
pub const TGID_IDLE: u32 = 0;
/// A process other than the server's.
pub const TGID_OTHERS: u32 = u32::MAX;

/// The receiver of the packet that a CPU handled last in its network softirq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PacketReceiver {
    /// No packet of the port.
    Nobody,
    Server,
    /// The other end, on this machine.
    Peer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleKey {
    /// Hash of the kernel stack; 0 = none.
    pub kernel_stack: u64,
    /// Hash of the user stack; 0 = none.
    pub user_stack: u64,
    /// A process of the server, [`TGID_IDLE`] or [`TGID_OTHERS`].
    pub tgid: u32,
    /// A process with the same program in memory, which may live longer.
    pub image: u32,
    /// Number of the perf event.
    pub event: u8,
    pub side: PacketReceiver,
    pub is_user: bool,
    /// Tenth of the window.
    pub block: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Interrupts {
    pub arrived: u64,
    /// Periods without an interrupt, because the one before came late.
    pub late: u64,
}

record::grows!(Interrupts { arrived, late });

#[derive(Debug, Clone, Default)]
pub struct RawSamples {
    pub samples: Vec<(SampleKey, u64)>,
    pub kernel_stacks: HashMap<u64, Vec<u64>>,
    pub user_stacks: HashMap<u64, Vec<u64>>,
    pub losses: Losses,
    /// Processes of the server that still live.
    pub living: HashSet<u32>,
}

impl RawSamples {
    /// The process whose memory names the functions of a sample: the process itself while it lives.
    pub fn named_by(&self, key: &SampleKey) -> u32 {
        if self.living.contains(&key.tgid) || key.image == 0 { key.tgid } else { key.image }
    }
}
