//! Converts the model's counts to the form that is kept and printed ([`crate::simulation`]).

use crate::cache::{Counts, LevelCounts, Setup};
use crate::exchange::Account;
use crate::simulation::{self, CacheCounts, Caches, Level};

/// The meaning of a count.
pub const UNIT: &str = "events in the window; divide by sent for events per packet";

/// The geometries.
pub fn caches(setup: &Setup) -> Caches {
    let Setup { l1i, l1d, l2, l3, itlb, dtlb, next_line_prefetch, .. } = setup.clone();
    let format = "bytes/ways/line bytes/replacement".into();
    Caches { format, l1i, l1d, l2, l3, itlb, dtlb, next_line_prefetch }
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
