//! The counts of the sampler's programs, independent of their form in the kernel: samples by place, packets, losses.

use crate::bpf::types::profile::Sample;
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

impl PacketReceiver {
    /// From the value of `enum side` in `bpf/profile.h`.
    pub fn from_side(side: u8) -> PacketReceiver {
        match side {
            1 => PacketReceiver::Server,
            2 => PacketReceiver::Peer,
            _ => PacketReceiver::Nobody,
        }
    }
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
    pub samples: Vec<(Sample, u64)>,
    pub kernel_stacks: HashMap<u64, Vec<u64>>,
    pub user_stacks: HashMap<u64, Vec<u64>>,
    pub losses: Losses,
    /// Processes of the server that still live.
    pub living: HashSet<u32>,
}

impl RawSamples {
    /// The process whose memory names the functions of a sample: the process itself while it lives.
    pub fn named_by(&self, key: &Sample) -> u32 {
        if self.living.contains(&key.tgid) || key.image == 0 { key.tgid } else { key.image }
    }
}
