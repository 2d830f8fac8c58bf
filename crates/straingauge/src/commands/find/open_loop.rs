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
pub(super) fn needed(points: &[Point], most: u64) -> Option<(u64, u64)> {
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
pub(super) fn more(point: &Point, capacity_per_sec: Option<f64>, most: u64) -> Option<u64> {
    let offered = point.offered_per_sec()?;
    let is_possible = capacity_per_sec.is_none_or(|capacity| offered <= capacity);
    let is_waiting = is_possible && point.value(names::CONNECTION_WAIT_P99)? > WAIT_US;
    let is_slow = point.value(names::GOODPUT)? < SLOWER_RATIO * offered;
    (is_waiting && is_slow && point.connections < most).then(|| (PART * point.connections).min(most))
}

/// Whether the server answered more requests and failed no more.
pub(super) fn is_more(point: &Point, before: &Point) -> bool {
    let good = |point: &Point| point.value(names::GOODPUT).unwrap_or(0.0);
    let is_served = point.outcomes.failed_ratio() <= before.outcomes.failed_ratio().max(SERVED_ERROR_RATIO);
    is_served && good(point) >= MORE_RATIO * good(before)
}

pub(super) struct TriedConnections {
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
             open loop (--open-connections)",
        )
    }

    /// The result in words: `0 of 250 connections answered with 1,024 open`.
    fn outcome(&self) -> String {
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
pub(super) fn served<E>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The result for a server that answers this many of 250 requests with a given number of connections, of which it
    /// serves at most `most`; also the numbers tried.
    fn found_with(known: u64, most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
        let mut tried = Vec::new();
        let result = served(
            &LoadPlan::simple(([127, 0, 0, 1], 80).into()),
            most,
            known,
            |plan| -> Result<Outcomes, Infallible> {
                tried.push(plan.connections);
                let used = plan.connections.min(250);
                let heard = used.min(pool(plan.connections));
                let ok = answered.min(250 * heard / used);
                let connections_silent = used - heard.min(ok);
                Ok(Outcomes { sent: 250, ok, connections_used: used, connections_silent, ..Outcomes::default() })
            },
        );
        let found = result.unwrap_or_else(|never| match never {});
        (found.map_or(most, |[_, served]| served.connections), tried)
    }

    fn found(most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
        found_with(0, most, answered, pool)
    }

    fn point(sweep: Sweep, connections: u64, pace: Pace, good: f64, wait_ms: f64) -> Point {
        let mut point = Point { duration_ns: 1_000_000_000, ..Point::new(sweep, 0, connections, pace) };
        for (name, value) in [(names::GOODPUT, good), (names::CONNECTION_WAIT_P99, wait_ms * 1e3)] {
            point.figures.measured(name, value, 1_000, record::Origin::Counted);
        }
        point
    }

    #[test]
    fn the_open_loop_has_the_peaks_connections_with_headroom() {
        let needed = |closed: &[(u64, f64)]| {
            let of = |&(connections, good): &_| point(Sweep::Connections, connections, Pace::Closed, good, 0.0);
            super::needed(&closed.iter().map(of).collect::<Vec<_>>(), 1024)
        };
        let flat = [(1, 30e3), (2, 58e3), (4, 80e3), (8, 83e3), (16, 82e3), (64, 80e3), (256, 79e3)];
        assert_eq!(needed(&flat), Some((16, 1024)));
        // The server scans a list of connections.
        let scanned = [(1, 30e3), (2, 58e3), (4, 70e3), (8, 83e3), (16, 81e3), (32, 60e3), (256, 12e3)];
        assert_eq!(needed(&scanned), Some((16, 16)), "32 were slower");
        assert_eq!(needed(&[(1, 10.0), (64, 640.0), (1024, 9e3)]), Some((1024, 1024)), "the most");
        assert_eq!(needed(&[(1, 80e3)]), Some((16, 1024)));
        let mut silent = [(8, 190.0), (16, 330.0), (32, 500.0), (64, 1.1e3), (128, 900.0), (256, 2.2e3)]
            .map(|(connections, good)| point(Sweep::Connections, connections, Pace::Closed, good, 0.0));
        silent[4..].iter_mut().for_each(|point| point.outcomes.connections_silent = 60);
        assert_eq!(super::needed(&silent, 1024), Some((64, 64)), "128 got no answer");
        assert_eq!(needed(&[]), None);
        assert_eq!(needed(&[(1, 0.0)]), None);
    }

    #[test]
    fn more_connections_are_opened_if_requests_wait_for_a_connection() {
        let pace = Pace::Open { rate_per_sec: 10e3, arrival: Arrival::Poisson };
        let more = |connections, good, wait_ms, capacity| {
            super::more(&point(Sweep::Rate, connections, pace, good, wait_ms), capacity, 1024)
        };
        assert_eq!(more(64, 6e3, 200.0, Some(20e3)), Some(256));
        assert_eq!(more(512, 6e3, 200.0, None), Some(1024));
        assert_eq!(more(1024, 6e3, 200.0, None), None, "the most");
        assert_eq!(more(64, 6e3, 200.0, Some(9e3)), None, "beyond the server's own limit");
        assert_eq!(more(64, 6e3, 0.1, Some(20e3)), None, "none waited");
        let [few, many] = [6e3, 6.1e3].map(|good| point(Sweep::Rate, 64, pace, good, 0.0));
        assert!(!is_more(&many, &few) && is_more(&point(Sweep::Rate, 256, pace, 9e3, 0.0), &few));
    }

    #[test]
    fn a_server_that_answers_all_connections_is_tried_once() {
        assert_eq!(found(1024, 250, |held| held), (1024, vec![1024]));
    }

    #[test]
    fn idle_connections_do_not_use_up_all_workers() {
        // Apache, which loses connections beyond its backlog, and a server with 64 processes.
        assert_eq!(found(1024, 250, |held| if held > 512 { 0 } else { held }), (256, vec![1024, 256]));
        assert_eq!(found(1024, 250, |_| 64), (64, vec![1024, 256, 64]));
        assert_eq!(found_with(64, 1024, 250, |_| 64), (64, vec![1024, 64]), "a closed loop went as far as 64");
        assert_eq!(found_with(2048, 1024, 250, |_| 64), (64, vec![1024, 256, 64]));
    }

    #[test]
    fn connections_with_errors_or_closed_by_the_server_count_as_unserved() {
        let found = |of: fn(u64) -> Outcomes| {
            let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
            let load = |plan: &LoadPlan| Ok::<_, Infallible>(of(plan.connections));
            served(&plan, 1024, 0, load).unwrap_or_else(|never| match never {})
        };
        let closing = |connections: u64| Outcomes {
            ok: 250,
            connections_used: 128.min(connections),
            closed_unused: connections.saturating_sub(128),
            ..Outcomes::default()
        };
        let [more, served] = found(closing).expect("fewer are served");
        assert_eq!((more.connections, served.connections), (1024, 64));
        assert!(more.outcome().ends_with("with 1,024 open (896 closed before any request)"), "{}", more.outcome());
        let refusing = |connections: u64| {
            let ok = if connections > 128 { 50 } else { 250 };
            Outcomes { ok, non_2xx: 250 - ok, connections_used: 250.min(connections), ..Outcomes::default() }
        };
        let [more, served] = found(refusing).expect("fewer are served");
        assert_eq!(served.connections, 64);
        assert!(more.outcome().ends_with("with 1,024 open (200 of 250 answers were errors)"), "{}", more.outcome());
        let missing = |_| Outcomes { non_2xx: 250, connections_used: 250, ..Outcomes::default() };
        assert!(found(missing).is_none(), "a page that is not there is an error over any number");
    }

    #[test]
    fn slow_and_dead_servers_do_not_change_the_number_of_connections() {
        assert_eq!(found(1024, 50, |held| held), (1024, vec![1024, 256, 64, 16]));
        assert_eq!(found(1024, 0, |_| 0).0, 1024);
        assert_eq!(found(20, 0, |_| 0), (20, vec![20]));
    }
}
