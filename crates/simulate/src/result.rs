//! Converts the model's counts to the form that is kept and printed ([`record::simulation`]).

use crate::cache::{Counts, LevelCounts, Setup};
use crate::exchange::Account;
use record::simulation::{self, CacheCounts, Caches, Geometry, Level};

/// The meaning of a count.
pub const UNIT: &str = "events in the window; divide by sent for events a packet";

/// The geometries.
pub fn caches(setup: &Setup) -> Caches {
    let geometry = |geometry: &crate::cache::Geometry| Geometry {
        bytes: geometry.size_bytes(),
        ways: geometry.ways(),
        line_bytes: geometry.line_bytes(),
        replacement: geometry.replacement().word().into(),
    };
    Caches {
        format: "bytes/ways/line bytes/replacement".into(),
        l1i: geometry(&setup.l1i),
        l1d: geometry(&setup.l1d),
        l2: setup.l2.iter().map(geometry).collect(),
        l3: setup.l3.as_ref().map(geometry),
        itlb: setup.itlb.as_ref().map(geometry),
        dtlb: setup.dtlb.as_ref().map(geometry),
        next_line_prefetch: setup.next_line_prefetch,
    }
}

/// Misses of this many L2 geometries; `None` if no caches were simulated.
pub fn cache_counts(counts: &Counts, levels: usize) -> Option<CacheCounts> {
    let level = |level: &LevelCounts| Level {
        fetch_misses: level.fetch_misses,
        data_misses: level.data_misses,
        write_backs: level.write_backs,
        prefetches: level.prefetches,
        useful_prefetches: level.useful_prefetches,
    };
    (levels > 0).then(|| CacheCounts {
        l1i_misses: counts.l1i_misses,
        l1d_misses: counts.l1d_misses,
        l1d_write_backs: counts.l1d_write_backs,
        itlb_misses: counts.itlb_misses,
        dtlb_misses: counts.dtlb_misses,
        l2: counts.l2.iter().take(levels).map(level).collect(),
        l3: level(&counts.l3),
    })
}

/// An account's counts.
pub fn counts(account: &Account, levels: usize) -> simulation::Counts {
    simulation::Counts {
        instructions: account.instructions,
        repeats: account.repeats,
        reads: account.reads,
        writes: account.writes,
        caches: cache_counts(&account.caches, levels),
    }
}
