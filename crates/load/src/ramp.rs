//! A server's accept queue holds 5 to 4,096 connections; a connection that finds it full is dropped and retried after
//! a second. So the ramp starts slowly, doubles while no attempt hangs, and slows down when one does.

use std::num::NonZeroU64;

/// An attempt hangs if it takes longer than this and twice the shortest handshake. A dropped SYN adds a second.
pub const HANGS_AFTER_NS: u64 = 200_000_000;
/// Time between two bursts.
pub const TICK_NS: u64 = 1_000_000;
const GENTLE: u64 = 16;
const MOST_PER_TICK: u64 = 64;
const MOST_UNDER_WAY: u64 = 1024;

/// Decides how many connection attempts may begin.
#[derive(Debug)]
pub struct ConnectRamp {
    burst: u64,
    under_way: u64,
    next_tick_ns: u64,
    /// Gap between attempts at a fixed rate; `None` = adaptive.
    gap_ns: Option<NonZeroU64>,
    last_fall_ns: u64,
    good_ticks: u32,
    shortest_ns: Option<u64>,
}

impl ConnectRamp {
    /// A ramp of a fixed rate, or an adaptive one if the rate is 0.
    pub fn new(rate_per_sec: f64) -> Self {
        let gap_ns =
            (rate_per_sec > 0.0).then(|| NonZeroU64::new((1e9 / rate_per_sec) as u64).unwrap_or(NonZeroU64::MIN));
        ConnectRamp {
            burst: GENTLE,
            under_way: 4 * GENTLE,
            next_tick_ns: 0,
            gap_ns,
            last_fall_ns: 0,
            good_ticks: 0,
            shortest_ns: None,
        }
    }

    /// Takes the length of a handshake.
    pub fn succeeded(&mut self, after_ns: u64) {
        self.shortest_ns = Some(self.shortest_ns.map_or(after_ns, |shortest| shortest.min(after_ns)));
    }

    pub(crate) fn shortest_ns(&self) -> u64 {
        self.shortest_ns.unwrap_or(0)
    }

    /// Whether an attempt of this age hangs.
    pub fn hangs(&self, age_ns: u64) -> bool {
        age_ns > HANGS_AFTER_NS.max(self.shortest_ns() * 2)
    }

    /// Number of attempts that may begin now, while `under_way` are in progress. The caller must begin them all.
    pub fn allowance(&mut self, now_ns: u64, under_way: u64) -> u64 {
        if now_ns < self.next_tick_ns {
            return 0;
        }
        if let Some(gap_ns) = self.gap_ns {
            // Late ticks catch up for at most a millisecond, so that no burst follows a pause.
            let missed_ns = if self.next_tick_ns == 0 { 0 } else { (now_ns - self.next_tick_ns).min(TICK_NS) };
            self.next_tick_ns = now_ns + gap_ns.get();
            return 1 + missed_ns / gap_ns;
        }
        let free = self.under_way.saturating_sub(under_way);
        if free == 0 {
            return 0;
        }
        self.next_tick_ns = now_ns + TICK_NS;
        self.good_ticks += 1;
        if self.good_ticks >= 8 {
            self.good_ticks = 0;
            self.burst = (self.burst * 2).min(MOST_PER_TICK);
            self.under_way = (self.under_way * 2).min(MOST_UNDER_WAY);
        }
        self.burst.min(free)
    }

    pub(crate) fn next_ns(&self) -> u64 {
        self.next_tick_ns
    }

    /// Slows down because an attempt hangs or failed, at most once per `HANGS_AFTER_NS`.
    pub fn fall_back(&mut self, now_ns: u64) {
        if now_ns < self.last_fall_ns + HANGS_AFTER_NS && self.last_fall_ns != 0 {
            return;
        }
        self.last_fall_ns = now_ns;
        self.good_ticks = 0;
        self.burst = (self.burst / 4).max(1);
        self.under_way = (self.under_way / 2).max(4);
        self.next_tick_ns = now_ns + 10 * TICK_NS;
    }
}
