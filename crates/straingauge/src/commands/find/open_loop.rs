//! Chooses the connections of the open loop: those that the closed loop needed at its peak, with headroom, and more
//! only if a rate needs them and they increase the throughput. Many servers get slower with every open connection (a
//! scanned list, a worker for each).
//!
//! A server with a worker per connection leaves further connections unanswered at any rate, which would look like its
//! failing rate.

use record::units::grouped;
use record::{Arrival, Doubt, DoubtKind, LoadPlan, Outcomes, Pace, Point, Sweep, names};
use std::collections::BTreeMap;

/// Tolerated share of connections without any response byte, or closed by the server before a request.
const LOST_RATIO: f64 = 0.1;
/// Tolerated share of error responses: a full server may send errors.
const ERROR_RATIO: f64 = 0.5;
/// Each try uses the connections of the one before, divided by this.
const PART: u64 = 4;
/// With fewer connections than this, a silent server is slow, not out of workers.
const FEWEST: u64 = 16;
/// With fewer connections, a server that was out of workers answers this many times as much; a slow one does not.
const MORE_ANSWERS: u64 = 2;
/// A moderate load: about as many requests as most servers have workers.
const RATE_PER_SEC: f64 = 500.0;
const DURATION_NS: u64 = 400_000_000;
const TIMEOUT_NS: u64 = 400_000_000;

/// Connections if no closed loop was measured and the server serves that many.
pub(super) const UNKNOWN: u64 = 64;
/// Connections of the open loop as a multiple of those that reached nearly the peak, because arrivals come in bursts.
const HEAD_ROOM: u64 = 4;
const PEAK_RATIO: f64 = 0.95;
/// Below this share of the peak, the server is slower because of its connections.
const SLOWER_RATIO: f64 = 0.9;
/// A longer wait for a connection at p99 is significant.
const WAIT_US: f64 = 10e3;
/// More connections help if the throughput rises by this factor.
const MORE_RATIO: f64 = 1.05;
/// Maximum share of failed requests of a server that serves its connections.
const SERVED_ERROR_RATIO: f64 = 0.001;

pub(super) fn is_heard(point: &Point) -> bool {
    point.sweep == Sweep::Connections && point.outcomes.connections_silent == 0
}

/// The connections that a closed loop needed at its peak, with headroom as long as they did not slow the server down,
/// and their maximum. `None` without a closed loop.
pub fn needed(points: &[Point], most: u64) -> Option<(u64, u64)> {
    let is_served = |point: &Point| is_heard(point) && point.outcomes.failed_ratio() <= SERVED_ERROR_RATIO;
    let mut best: BTreeMap<u64, f64> = BTreeMap::new();
    for point in points.iter().filter(|point| point.sweep == Sweep::Connections) {
        let good = best.entry(point.connections).or_insert(0.0);
        *good = good.max(point.value(names::GOODPUT).unwrap_or(0.0));
    }
    for point in points.iter().filter(|point| point.sweep == Sweep::Connections && !is_served(point)) {
        best.insert(point.connections, 0.0);
    }
    let peak = best.values().copied().fold(0.0, f64::max);
    let (busy, _) = best.iter().find(|(_, good)| peak > 0.0 && **good >= PEAK_RATIO * peak)?;
    let wanted = (HEAD_ROOM * busy).max(FEWEST);
    let as_fast = best.range(busy..).take_while(|(_, good)| **good >= SLOWER_RATIO * peak).map(|(load, _)| *load);
    // The sweep shows nothing beyond its own connections.
    let slower_beyond = as_fast.last().filter(|last| best.keys().any(|load| load > last));
    let most = slower_beyond.unwrap_or(most).min(most);
    Some((wanted.min(most), most))
}

/// More connections for a load whose requests waited for a connection although the server can answer the rate.
/// `capacity_per_sec`: the highest rate of a closed loop.
pub fn more(point: &Point, capacity_per_sec: Option<f64>, most: u64) -> Option<u64> {
    let offered = point.offered_per_sec()?;
    let is_possible = capacity_per_sec.is_none_or(|capacity| offered <= capacity);
    let is_waiting = is_possible && point.value(names::CONNECTION_WAIT_P99)? > WAIT_US;
    let is_slow = point.value(names::GOODPUT)? < SLOWER_RATIO * offered;
    (is_waiting && is_slow && point.connections < most).then(|| (PART * point.connections).min(most))
}

/// Whether the server answered more requests and failed no more.
pub fn is_more(point: &Point, before: &Point) -> bool {
    let good = |point: &Point| point.value(names::GOODPUT).unwrap_or(0.0);
    let is_served = point.outcomes.failed_ratio() <= before.outcomes.failed_ratio().max(SERVED_ERROR_RATIO);
    is_served && good(point) >= MORE_RATIO * good(before)
}

pub struct TriedConnections {
    pub connections: u64,
    outcomes: Outcomes,
}

impl TriedConnections {
    fn is_served(&self) -> bool {
        self.outcomes.silent_ratio().is_none_or(|ratio| ratio <= LOST_RATIO)
            && !self.is_limited()
            && self.outcomes.non_2xx as f64 <= self.outcomes.completed() as f64 * ERROR_RATIO
    }

    fn is_limited(&self) -> bool {
        self.outcomes.closed_unused as f64 > self.connections as f64 * LOST_RATIO
    }

    /// Explains why the open loop uses these connections and not more.
    pub fn doubt(&self, more: &TriedConnections) -> Doubt {
        DoubtKind::SilentConnections.warning(
            format!("open loop: {}, {}, which it uses", more.outcome(), self.outcome()),
            "check how many connections the server serves at a time (its workers, its backlog), or limit those of the \
             open loop (--set find.open-connections=N)",
        )
    }

    /// The result in words: `0 of 250 connections answered with 1,024 open`.
    pub fn outcome(&self) -> String {
        let Outcomes { connections_silent: silent, connections_used: used, closed_unused, non_2xx, .. } = self.outcomes;
        let answered = used.saturating_sub(silent);
        let mut words =
            format!("{answered} of {used} connections answered with {} open", grouped(self.connections as f64));
        if self.is_limited() {
            words.push_str(&format!(" ({closed_unused} closed before any request)"));
        } else if non_2xx > 0 {
            words.push_str(&format!(" ({non_2xx} of {} answers were errors)", self.outcomes.completed()));
        }
        words
    }
}

/// Tries the most connections, then fewer. Returns `None` if the server serves the most, or if fewer do not help.
/// Otherwise returns the first try and the largest number that is served and gets more responses. `known`: most
/// connections of a closed loop with responses, 0 without one.
pub fn served<E>(
    plan: &LoadPlan,
    most: u64,
    known: u64,
    mut load: impl FnMut(&LoadPlan) -> Result<Outcomes, E>,
) -> Result<Option<[TriedConnections; 2]>, E> {
    let mut at = |connections: u64| {
        let pace = Pace::Open { rate_per_sec: RATE_PER_SEC, arrival: Arrival::Constant };
        let mut tried =
            LoadPlan { connections, pace, duration_ns: DURATION_NS, warmup_ns: 0, threads: 1, ..plan.clone() };
        tried.timeout_ns = plan.timeout_ns.min(TIMEOUT_NS);
        load(&tried).map(|outcomes| TriedConnections { connections, outcomes })
    };
    let first = at(most)?;
    if first.is_served() {
        return Ok(None);
    }
    let mut connections = if known >= FEWEST && known < most { known } else { most / PART };
    while connections >= FEWEST {
        let next = at(connections)?;
        let is_better = first.is_limited() || next.outcomes.ok >= MORE_ANSWERS * first.outcomes.ok.max(1);
        if next.is_served() && is_better {
            return Ok(Some([first, next]));
        }
        connections /= PART;
    }
    Ok(None)
}
