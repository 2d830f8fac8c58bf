//! How many connections the open loop may use: as many as asked for, unless the server serves fewer at a time.
//!
//! A server with a thread or process for each connection leaves the others unanswered, at any rate: what is then found is that
//! limit, and not the rate at which the server fails.

use record::units::grouped;
use record::{Arrival, Doubt, DoubtKind, LoadPlan, Outcomes, Pace};

/// The share of the connections with a request that may get no byte of a response.
const SILENT_RATIO: f64 = 0.1;
/// Each try has this part of the connections of the one before.
const PART: u64 = 4;
/// With fewer, a silent server is slow and not out of workers.
const FEWEST: u64 = 16;
/// A slow server answers as much over fewer connections, one that is out of workers more.
const MORE_ANSWERS: u64 = 2;
/// A moderate load, whose requests are about as many as the connections of most servers with a worker for each.
const RATE_PER_SEC: f64 = 500.0;
const DURATION_NS: u64 = 400_000_000;
/// Longer is not waited for answers: no try shall take much of the budget.
const TIMEOUT_NS: u64 = 400_000_000;

/// A number of connections, and what became of the requests over them.
pub(super) struct Tried {
    pub connections: u64,
    outcomes: Outcomes,
}

impl Tried {
    fn is_served(&self) -> bool {
        self.outcomes.silent_ratio().is_none_or(|ratio| ratio <= SILENT_RATIO)
    }

    /// Why the open loop uses these instead of more.
    pub fn doubt(&self, more: &Tried) -> Doubt {
        DoubtKind::SilentConnections.warning(
            format!("open loop: {}, {}, which it uses", more.words(), self.words()),
            "check how many connections the server serves at a time (its workers, its backlog), or say how many the open loop may \
             use (--open-connections)",
        )
    }

    /// What came of it: `0 of 250 connections answered with 1,024 open`.
    fn words(&self) -> String {
        let (silent, used) = (self.outcomes.connections_silent, self.outcomes.connections_used);
        let answered = used.saturating_sub(silent);
        format!("{answered} of {used} connections answered with {} open", grouped(self.connections as f64))
    }
}

/// The connections for the open loop: the most, or the largest part of them that the server serves where it answers more over
/// them; then the first try, too. `known`: a closed loop got answers over so many, 0 where there was none. `load` sends a load and
/// returns its outcomes.
pub(super) fn served<E>(
    plan: &LoadPlan,
    most: u64,
    known: u64,
    mut load: impl FnMut(&LoadPlan) -> Result<Outcomes, E>,
) -> Result<Option<[Tried; 2]>, E> {
    let mut at = |connections: u64| {
        let pace = Pace::Open { rate_per_sec: RATE_PER_SEC, arrival: Arrival::Constant };
        let mut tried =
            LoadPlan { connections, pace, duration_ns: DURATION_NS, warmup_ns: 0, threads: 1, ..plan.clone() };
        tried.timeout_ns = plan.timeout_ns.min(TIMEOUT_NS);
        load(&tried).map(|outcomes| Tried { connections, outcomes })
    };
    let first = at(most)?;
    if first.is_served() {
        return Ok(None);
    }
    let mut connections = if known >= FEWEST && known < most { known } else { most / PART };
    while connections >= FEWEST {
        let next = at(connections)?;
        if next.is_served() && next.outcomes.completed() >= MORE_ANSWERS * first.outcomes.completed().max(1) {
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

    /// What is found of a server that answers this many of 250 requests over so many connections, at most this many of which it
    /// serves; and the numbers that were tried.
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

    #[test]
    fn a_server_that_answers_all_is_asked_once() {
        assert_eq!(found(1024, 250, |held| held), (1024, vec![1024]));
    }

    #[test]
    fn workers_held_by_idle_connections_are_not_outnumbered() {
        // Apache, which loses its connections where there are more than its backlog, and a pool of 64 processes.
        assert_eq!(found(1024, 250, |held| if held > 512 { 0 } else { held }), (256, vec![1024, 256]));
        assert_eq!(found(1024, 250, |_| 64), (64, vec![1024, 256, 64]));
        assert_eq!(found_with(64, 1024, 250, |_| 64), (64, vec![1024, 64]), "a closed loop went as far as 64");
        assert_eq!(found_with(2048, 1024, 250, |_| 64), (64, vec![1024, 256, 64]));
    }

    #[test]
    fn a_slow_server_keeps_the_connections_and_so_does_a_dead_one() {
        assert_eq!(found(1024, 50, |held| held), (1024, vec![1024, 256, 64, 16]));
        assert_eq!(found(1024, 0, |_| 0).0, 1024);
        assert_eq!(found(20, 0, |_| 0), (20, vec![20]));
    }
}
