//! How much a cache-aware memory layout can win, and what of it would.

/// Less than this is not worth a change of the source.
const LEAST_WON: f64 = 1.05;

/// The share of the second-level cache that a slab gets where stingygen is not told otherwise.
pub const SLAB_SHARE: f64 = 0.5;

/// Second-level cache where the machine's is not known, bytes.
pub const USUAL_CACHE_BYTES: u64 = 1 << 20;

/// How many times the requests a CPU would serve: 1 is no gain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Won {
    /// If the growth of user time is as small as its errors allow.
    pub at_least: f64,
    /// If it is as large as they allow.
    pub at_most: f64,
    /// If the whole user time became 0 (Amdahl).
    pub amdahl: f64,
}

impl Won {
    /// From the CPU and user time of a request, and the least and the most of the user time that can go away, all in
    /// microseconds. `None` for times that are impossible, and where all CPU time is user time: that has no bound.
    pub fn of(cpu_us: f64, user_us: f64, gone_us: (f64, f64)) -> Option<Self> {
        let are_times = [cpu_us, user_us, gone_us.0, gone_us.1].iter().all(|us| us.is_finite());
        if !are_times || user_us < 0.0 || user_us >= cpu_us {
            return None;
        }
        let without = |us: f64| cpu_us / (cpu_us - us.clamp(0.0, user_us));
        let at_most = without(gone_us.1);
        Some(Won { at_least: without(gone_us.0).min(at_most), at_most, amdahl: without(user_us) })
    }
}

/// What would win it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Another event loop: admission, cold connections, batches.
    Loop,
    /// The slab alone: requests fit in it, and do not fit in the cache as they lie now.
    Slab,
    /// Nothing here.
    Neither,
}

/// What would win, from the memory that grew with the connections and, by memwalk, the lines of all requests, both in
/// bytes. `None` where neither is known.
pub fn remedy(
    won: Won,
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
