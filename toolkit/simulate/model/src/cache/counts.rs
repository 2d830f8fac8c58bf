//! Counts of the model for one row of a table.

/// Maximum number of L2 geometries that one pass simulates.
pub const MOST_L2: usize = 8;

/// The levels that a data access missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Misses(u16);

impl Misses {
    /// L1D missed; the other levels are not known yet.
    pub(super) fn of_l1d() -> Misses {
        Misses(1)
    }

    pub(super) fn add_l2(&mut self, index: usize) {
        self.0 |= 2 << index;
    }

    /// L1D missed.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// The L2 with this index missed.
    #[inline]
    pub fn of_l2(self, index: usize) -> bool {
        self.0 & 2 << index != 0
    }
}

/// Counts of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelCounts {
    /// Instruction fetches that missed.
    pub fetch_misses: u64,
    /// Reads and writes that missed.
    pub data_misses: u64,
    /// Dirty lines that were replaced.
    pub write_backs: u64,
    /// Lines that the prefetcher loaded. It loads them into an L2; those of the first L2 come through the L3.
    pub prefetches: u64,
    /// Prefetched lines that were used before they were replaced, counted for an L2, where they are used.
    pub useful_prefetches: u64,
}

impl LevelCounts {
    /// All misses.
    pub fn misses(&self) -> u64 {
        self.fetch_misses + self.data_misses
    }
}

/// Simulated events; exact for the model, not for a real processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Instruction fetches that missed L1I, one per line.
    pub l1i_misses: u64,
    /// Reads and writes that missed L1D, one per line.
    pub l1d_misses: u64,
    /// Dirty lines that left L1D.
    pub l1d_write_backs: u64,
    /// The L2 geometries in the order of the setup.
    pub l2: [LevelCounts; MOST_L2],
    /// The L3 after the first L2.
    pub l3: LevelCounts,
    /// Instruction pages that missed the ITLB.
    pub itlb_misses: u64,
    /// Data pages that missed the DTLB.
    pub dtlb_misses: u64,
}
