//! What the sampler's programs counted, free of how it lies in the kernel's memory: samples by place, packets, losses.

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

/// Packets of the port, over all CPUs; in, out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PacketCounts {
    /// Packets as an interface counts them.
    pub packets: [u64; 2],
    /// Segments in them: several where segmentation is left to the interface (TSO, GRO).
    pub segments: [u64; 2],
    /// Packets with payload.
    pub data_packets: [u64; 2],
    /// Payload.
    pub payload_bytes: [u64; 2],
    /// Packets whose headers could not be read.
    pub unread: u64,
    /// Packets received by the other end of the connections, on this machine.
    pub peer_packets: u64,
}

impl PacketCounts {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &PacketCounts) -> PacketCounts {
        let less = |now: [u64; 2], then: [u64; 2]| [now[0].saturating_sub(then[0]), now[1].saturating_sub(then[1])];
        PacketCounts {
            packets: less(self.packets, earlier.packets),
            segments: less(self.segments, earlier.segments),
            data_packets: less(self.data_packets, earlier.data_packets),
            payload_bytes: less(self.payload_bytes, earlier.payload_bytes),
            unread: self.unread.saturating_sub(earlier.unread),
            peer_packets: self.peer_packets.saturating_sub(earlier.peer_packets),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &PacketCounts) -> PacketCounts {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        PacketCounts {
            packets: sum(self.packets, other.packets),
            segments: sum(self.segments, other.segments),
            data_packets: sum(self.data_packets, other.data_packets),
            payload_bytes: sum(self.payload_bytes, other.payload_bytes),
            unread: self.unread + other.unread,
            peer_packets: self.peer_packets + other.peer_packets,
        }
    }

    /// Both directions.
    pub fn total(&self) -> u64 {
        self.packets[0] + self.packets[1]
    }
}

/// What was lost for want of room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Losses {
    /// Samples whose stack found no room; they are unattributed.
    pub stacks: u64,
    /// Samples that were not counted at all.
    pub samples: u64,
}

impl Losses {
    /// What was lost after `earlier`.
    pub fn since(&self, earlier: &Losses) -> Losses {
        Losses {
            stacks: self.stacks.saturating_sub(earlier.stacks),
            samples: self.samples.saturating_sub(earlier.samples),
        }
    }
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
