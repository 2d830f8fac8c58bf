//! The records that the programs of `bpf/profile.bpf.c` fill; `bpf/profile.h` is the other side.

use record::profile::{Losses, PacketCounts};
use std::collections::HashMap;

/// Deepest kernel stack that is kept.
pub const KERNEL_FRAMES: usize = 96;
/// Deepest user stack that is kept.
pub const USER_FRAMES: usize = 24;
/// Parts of the window that are counted apart, so that the spread between them gives the intervals.
pub const BLOCKS: u32 = 10;
/// No process: the CPU had nothing to do.
pub const TGID_IDLE: u32 = 0;
/// A process that is not the server's.
pub const TGID_OTHERS: u32 = u32::MAX;

const FLAG_USER: u8 = 1;
const FLAG_STACK_LOST: u8 = 2;
const SAMPLE_BYTES: usize = 24;
const ROW_BYTES: usize = 128;

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

impl SampleKey {
    /// Reads the key of the map; `None` if the length is another program's.
    pub fn parse(bytes: &[u8]) -> Option<SampleKey> {
        let bytes: &[u8; SAMPLE_BYTES] = bytes.try_into().ok()?;
        Some(SampleKey {
            kernel_stack: u64_at(bytes, 0),
            user_stack: u64_at(bytes, 8),
            tgid: u64_at(bytes, 16) as u32,
            event: bytes[20],
            side: match bytes[21] {
                1 => Side::Server,
                2 => Side::Peer,
                _ => Side::Nobody,
            },
            is_user: bytes[22] & FLAG_USER != 0,
            is_stack_lost: bytes[22] & FLAG_STACK_LOST != 0,
            block: bytes[23],
        })
    }
}

/// The frames of a stack record, innermost first.
pub fn parse_stack(bytes: &[u8]) -> Vec<u64> {
    if bytes.len() < 8 {
        return Vec::new();
    }
    let kept = bytes.len() / 8 - 1;
    let count = usize::try_from(u64_at(bytes, 0)).unwrap_or(0).min(kept);
    (1..=count).map(|index| u64_at(bytes, index * 8)).take_while(|frame| *frame != 0).collect()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
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

/// Sums the per-CPU rows (`struct cpu_row`).
pub fn parse_rows(bytes: &[u8]) -> (PacketCounts, Losses, Interrupts) {
    let (mut packets, mut losses) = (PacketCounts::default(), Losses::default());
    let mut interrupts = Interrupts::default();
    for row in bytes.chunks_exact(ROW_BYTES) {
        let word = |index: usize| u64_at(row, index * 8);
        for way in 0..2 {
            packets.packets[way] += word(1 + way);
            packets.segments[way] += word(3 + way);
            packets.data_packets[way] += word(5 + way);
            packets.payload_bytes[way] += word(7 + way);
        }
        packets.unread += word(9);
        losses.stacks += word(10);
        losses.samples += word(11);
        packets.peer_packets += word(12);
        interrupts.arrived += word(14);
        interrupts.late += word(15);
    }
    (packets, losses, interrupts)
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

/// The gate (`struct gate`).
pub fn gate_bytes(is_open: bool, block: u32, opened_ns: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&u32::from(is_open).to_ne_bytes());
    bytes[4..8].copy_from_slice(&block.to_ne_bytes());
    bytes[8..].copy_from_slice(&opened_ns.to_ne_bytes());
    bytes
}

/// What is profiled (`struct target`); `period_ns` of the clock, 0 where none samples.
pub fn target_bytes(port: u16, netns_inode: u32, period_ns: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&u32::from(port).to_ne_bytes());
    bytes[4..8].copy_from_slice(&netns_inode.to_ne_bytes());
    bytes[8..].copy_from_slice(&period_ns.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_size_is_refused() {
        assert_eq!(SampleKey::parse(&[0; 23]), None);
        assert_eq!(parse_stack(&[1, 2, 3]), Vec::<u64>::new());
    }

    #[test]
    fn a_stack_never_reads_beyond_its_record() {
        let mut record = vec![0u8; 8 * 4];
        record[0] = 200;
        record[8] = 7;
        record[16] = 9;
        assert_eq!(parse_stack(&record), vec![7, 9]);
    }
}
