//! The possible gain of a cache-aware memory layout, and which change is worthwhile.

/// Least gain that is worth a change of the source.
const LEAST_WON: f64 = 1.05;

/// Default share of the second-level cache that stingygen gives to a slab.
pub const SLAB_SHARE: f64 = 0.5;

/// Assumed size of the second-level cache if the machine's is not known, bytes.
pub const USUAL_CACHE_BYTES: u64 = 1 << 20;

/// Possible throughput of a CPU over the measured one: 1 = no gain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PossibleGain {
    /// Gain at the lower end of the growth of user time.
    pub at_least: f64,
    /// Gain at the upper end of the growth of user time.
    pub at_most: f64,
    /// Gain if all user time became 0 (Amdahl).
    pub amdahl: f64,
}

/// User time of a request that smaller state can save, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct UserTimeSaving {
    /// The least that can be saved.
    pub least_us: f64,
    /// The most that can be saved.
    pub most_us: f64,
}

impl PossibleGain {
    /// Computes the gains from the CPU and user time of a request, in microseconds. `None` for impossible times, and if
    /// all CPU time is user time, which has no bound.
    pub fn from_times(cpu_us: f64, user_us: f64, saved: UserTimeSaving) -> Option<Self> {
        let are_times = [cpu_us, user_us, saved.least_us, saved.most_us].iter().all(|us| us.is_finite());
        if !are_times || user_us < 0.0 || user_us >= cpu_us {
            return None;
        }
        let without = |us: f64| cpu_us / (cpu_us - us.clamp(0.0, user_us));
        let at_most = without(saved.most_us);
        Some(PossibleGain { at_least: without(saved.least_us).min(at_most), at_most, amdahl: without(user_us) })
    }
}

/// The worthwhile change of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Another event loop: admission, cold connections, batches.
    Loop,
    /// Only the slab: requests fit in it, but their present layout does not fit in the cache.
    Slab,
    /// No change.
    Neither,
}

/// Chooses by the memory that grew with the connections and by the cache lines of all requests (from memwalk), in
/// bytes. `None` if neither is known.
pub fn remedy(
    won: PossibleGain,
    grown_bytes: Option<f64>,
    lines_bytes: Option<f64>,
    cache_bytes: Option<u64>,
) -> Option<Remedy> {
    if won.at_most < LEAST_WON {
        return Some(Remedy::Neither);
    }
    let cache = cache_bytes.unwrap_or(USUAL_CACHE_BYTES) as f64;
    let is_grown = grown_bytes.map(|bytes| bytes >= cache);
    match (lines_bytes, is_grown) {
        (Some(lines), _) if lines > SLAB_SHARE * cache => Some(Remedy::Loop),
        (Some(_), Some(true)) => Some(Remedy::Slab),
        (None, Some(true)) => Some(Remedy::Loop),
        (_, Some(false)) => Some(Remedy::Neither),
        (_, None) => None,
    }
}
