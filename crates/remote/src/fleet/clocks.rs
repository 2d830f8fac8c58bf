//! The error of a comparison is at most half the round trip. If all exchanges began at once, most would queue here, so
//! only a few are in progress at a time. A slow exchange does not count towards that limit, so that it delays no other
//! worker.

use super::Fleet;
use crate::protocol::LEASE_NS;
use record::time::monotonic_ns;
use std::collections::VecDeque;

/// Minimum exchanges with a worker.
pub const LEAST: u64 = 8;
/// Maximum exchanges with a worker whose clock is not yet known to [`GOAL_NS`].
const MOST: u64 = 64;
/// A clock with at most this uncertainty needs no more exchanges.
const GOAL_NS: u64 = 250_000;
/// Time limit for exchanges beyond the minimum: this, and a little more for each worker.
const MORE_NS: u64 = 400_000_000;
const MORE_OF_EACH_NS: u64 = 100_000;
/// Maximum number of exchanges in progress: as many as this process can handle within a fraction of [`GOAL_NS`].
pub const UNDER_WAY: usize = 16;
/// A longer exchange no longer counts as in progress.
const QUICK_NS: u64 = 1_000_000;
const CHECK_NS: u64 = 20_000_000;

struct PingExchange {
    index: usize,
    began_ns: u64,
    pongs: u64,
}

impl Fleet {
    /// Exchanges pings one at a time with each worker. Returns false as soon as `must_end` does.
    #[doc(hidden)]
    pub fn compare_clocks(&mut self, live: &[usize], must_end: impl Fn(&Fleet) -> bool) -> bool {
        for index in live {
            self.links[*index].clock = None;
        }
        let before: Vec<u64> = self.links.iter().map(|link| link.pongs).collect();
        let begun_ns = monotonic_ns();
        let more_until_ns = begun_ns + MORE_NS + MORE_OF_EACH_NS * live.len() as u64;
        let needs = |fleet: &Fleet, index: usize| {
            let link = &fleet.links[index];
            let heard = link.pongs.saturating_sub(before[index]);
            let is_known = link.clock.is_some_and(|clock| clock.uncertainty_ns <= GOAL_NS);
            heard < LEAST || (heard < MOST && !is_known && monotonic_ns() < more_until_ns)
        };
        let mut waiting: VecDeque<usize> = live.iter().copied().collect();
        let mut under_way: Vec<PingExchange> = Vec::new();
        let mut next_check_ns = begun_ns;
        loop {
            let now = monotonic_ns();
            if now >= next_check_ns {
                self.pump(0, 0);
                if must_end(self) {
                    return false;
                }
                next_check_ns = now + CHECK_NS;
            }
            under_way.retain(|exchange| {
                let link = &self.links[exchange.index];
                let is_answered = link.pongs > exchange.pongs;
                if is_answered && needs(self, exchange.index) {
                    waiting.push_back(exchange.index);
                }
                !is_answered && !link.is_lost()
            });
            let mut quick = under_way.iter().filter(|exchange| now < exchange.began_ns + QUICK_NS).count();
            while quick < UNDER_WAY
                && let Some(index) = waiting.pop_front()
            {
                let link = &self.links[index];
                under_way.push(PingExchange { index, began_ns: monotonic_ns(), pongs: link.pongs });
                link.ping();
                quick += 1;
            }
            if under_way.is_empty() || now > begun_ns + LEASE_NS {
                return true;
            }
            self.handle_events(QUICK_NS);
        }
    }
}
