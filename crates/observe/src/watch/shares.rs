//! The watched part of a point's window: all of it is counted and a fifth is timed, or less if that would exceed the
//! budget.

use rand::{Rng, RngExt};
use record::watch::Mode;
use std::ops::Range;

/// Maximum share of a window in which phases are timed.
pub const MOST_TIMED: f64 = 0.2;
/// A smaller share is too little to justify attaching hooks.
const LEAST_TIMED: f64 = 0.02;
const LEAST_COUNTED: f64 = 0.05;
/// Share of the budget to aim at, because the calibration is not more accurate than that.
const AIM: f64 = 0.8;
/// Assumed sends per read, until a window has measured them.
const SENDS: f64 = 2.0;

/// Calibrated cost of events, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EventPrices {
    /// Cost of a read that counts, plus the client's read of the response if the client is on this machine.
    pub receive_ns: f64,
    /// Cost that a window adds to each read.
    pub window_receive_ns: f64,
    pub send_ns: f64,
    /// Sends per read, if windows have measured them.
    pub sends_per_receive: Option<f64>,
    /// Cost that the probes of a pack add to a request; `None` without a pack.
    pub pack_request_ns: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// Share of the window in which requests are counted.
    pub counted: f64,
    /// Share in which phases are timed, within the counted share.
    pub timed: f64,
}

impl Shares {
    /// Watches nothing.
    pub const NONE: Shares = Shares { counted: 0.0, timed: 0.0 };

    /// The shares for a mode. `cpu_ns`: the server's CPU time per read in the warm-up or an earlier point, if known.
    /// `budget`: the limit of the watch's cost, as a share of the server's CPU time. It applies only to the default
    /// mode; the modes for counts or exact phases ignore the cost.
    pub fn for_mode(mode: Mode, prices: &EventPrices, cpu_ns: Option<f64>, budget: f64) -> Shares {
        match mode {
            Mode::Zero => Shares::NONE,
            Mode::Counts => Shares { counted: 1.0, timed: 0.0 },
            Mode::Exact => Shares { counted: 1.0, timed: 1.0 },
            Mode::Budgeted => Shares::within(prices, cpu_ns, AIM * budget),
        }
    }

    fn within(prices: &EventPrices, cpu_ns: Option<f64>, budget: f64) -> Shares {
        let Some(cpu_ns) = cpu_ns.filter(|ns| ns.is_finite() && *ns > 0.0) else {
            return Shares { counted: 1.0, timed: 0.0 };
        };
        let counting = prices.receive_ns / cpu_ns;
        let timing = (prices.window_receive_ns + prices.sends_per_receive.unwrap_or(SENDS) * prices.send_ns) / cpu_ns;
        if counting + MOST_TIMED * timing <= budget {
            return Shares { counted: 1.0, timed: MOST_TIMED };
        }
        let timed = (budget - counting) / timing;
        if timed >= LEAST_TIMED {
            return Shares { counted: 1.0, timed };
        }
        // Counting everything would leave nothing for phases, so a part is counted, and a fifth of it is timed.
        let counted = (budget / (counting + MOST_TIMED * timing)).min(1.0);
        if counted < LEAST_COUNTED { Shares::NONE } else { Shares { counted, timed: MOST_TIMED * counted } }
    }
}

/// The share of a window in which functions of a pack may be probed: `budget` of the server's CPU time, or a fifth in
/// modes without a budget.
pub fn pack_share(mode: Mode, prices: &EventPrices, cpu_ns: Option<f64>, budget: f64) -> f64 {
    match (mode, prices.pack_request_ns) {
        (Mode::Counts, Some(_)) => MOST_TIMED,
        (Mode::Budgeted, Some(request_ns)) if request_ns > 0.0 => {
            cpu_ns.map_or(0.0, |cpu_ns| (AIM * budget * cpu_ns / request_ns).min(MOST_TIMED))
        }
        _ => 0.0,
    }
}

/// Windows of a point, nanoseconds from the start of the point's window.
///
/// The spread of several short windows gives the interval. The counted time is divided into at most `most` equal parts,
/// each with one window at a random place.
pub fn windows(shares: Shares, window_ns: u64, most: u64, random: &mut impl Rng) -> Vec<Range<u64>> {
    let timed_ns = (shares.timed * window_ns as f64) as u64;
    let counted_ns = (shares.counted * window_ns as f64) as u64;
    if timed_ns < SHORTEST_NS || most == 0 {
        return Vec::new();
    }
    let number = (timed_ns / SHORTEST_NS).clamp(1, MOST_WINDOWS.min(most));
    let (length_ns, part_ns) = (timed_ns / number, counted_ns / number);
    let free_ns = part_ns.saturating_sub(length_ns + drain_ns(length_ns));
    let window = |index| {
        let opens_ns = index * part_ns + random.random_range(0..=free_ns);
        opens_ns..opens_ns + length_ns
    };
    (0..number).map(window).collect()
}

/// Requests that began in a window must have time to end.
const SHORTEST_NS: u64 = 40_000_000;
const MOST_WINDOWS: u64 = 8;

/// The number of windows that a point can afford: each costs every CPU 150 us, independent of the load. They may use
/// a fifth of the budget. `server_cpu_ns`: the server's expected CPU time in the point.
pub fn affordable(server_cpu_ns: f64, cpus: u64, budget: f64) -> u64 {
    (0.2 * budget * server_cpu_ns / (WINDOW_COST_PER_CPU_NS * cpus.max(1) as f64)) as u64
}

/// Cost for each CPU of attaching and detaching the hooks of a window (the kernel patches its code while it runs).
pub const WINDOW_COST_PER_CPU_NS: f64 = 150_000.0;

/// Maximum time after a window for its requests to end: the window's length, at most 50 ms.
pub fn drain_ns(length_ns: u64) -> u64 {
    length_ns.min(50_000_000)
}
