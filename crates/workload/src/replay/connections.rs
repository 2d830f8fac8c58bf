use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// When a client's next request uses its open connection. "Within" includes the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionGrouping {
    /// When it comes within the limit after the client's previous request, as with a server's keep-alive timeout.
    /// This is the usual reading of Kim & Rixner's "arrive within a fifteen-second period".
    IdleGap {
        /// Maximum gap.
        limit_ns: u64,
    },
    /// Never: every request has its own connection.
    Never,
}

#[derive(Debug)]
struct OpenConnection {
    connection: u64,
    /// The last log time at which a request can still join.
    due_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndedConnection {
    pub(super) client: u64,
    pub(super) connection: u64,
    pub(super) due_ns: i64,
}

/// The open connections by client.
///
/// Invariant: `order` holds exactly one pair for each client of `open`, with a time not later than its `due_ns`.
#[derive(Debug)]
pub(super) struct Connections {
    grouping: ConnectionGrouping,
    limit: usize,
    open: HashMap<u64, OpenConnection>,
    order: BinaryHeap<Reverse<(i64, u64)>>,
    /// Number of connections so far, which is the number of the next one.
    pub(super) opened: u64,
    /// Connections that were ended early because too many clients had one.
    pub(super) evicted: u64,
}

impl Connections {
    pub(super) fn new(grouping: ConnectionGrouping, limit: usize) -> Self {
        Connections {
            grouping,
            limit: limit.max(1),
            open: HashMap::new(),
            order: BinaryHeap::new(),
            opened: 0,
            evicted: 0,
        }
    }

    /// Returns the next connection that no request at `now_ns` or later can join. Call it until `None` before every
    /// [`Connections::join`].
    pub(super) fn expire(&mut self, now_ns: i64) -> Option<EndedConnection> {
        while self.order.peek().is_some_and(|Reverse((due_ns, _))| *due_ns < now_ns) {
            if let Some(ended) = self.end_first(now_ns) {
                return Some(ended);
            }
        }
        None
    }

    /// Ends the connection that has been idle longest if there is no room for another client.
    pub(super) fn make_room(&mut self, client: u64) -> Option<EndedConnection> {
        if self.open.len() < self.limit || self.open.contains_key(&client) {
            return None;
        }
        self.end().inspect(|_| self.evicted += 1)
    }

    /// Ends the first connection of `order` if it is due before `before_ns`; otherwise moves it to its current place.
    fn end_first(&mut self, before_ns: i64) -> Option<EndedConnection> {
        let Reverse((noted_ns, client)) = self.order.pop()?;
        let due_ns = self.open.get(&client)?.due_ns;
        if due_ns > noted_ns && (due_ns >= before_ns || self.order.peek().is_some_and(|Reverse(next)| next.0 < due_ns))
        {
            self.order.push(Reverse((due_ns, client)));
            return None;
        }
        self.open.remove(&client).map(|open| EndedConnection {
            client,
            connection: open.connection,
            due_ns: open.due_ns,
        })
    }

    /// The connection of a client's request at `now_ns`. Times must not decrease.
    pub(super) fn join(&mut self, client: u64, now_ns: i64) -> u64 {
        let connection = self.opened;
        if let ConnectionGrouping::IdleGap { limit_ns } = self.grouping {
            let due_ns = now_ns.saturating_add(i64::try_from(limit_ns).unwrap_or(i64::MAX));
            if let Some(open) = self.open.get_mut(&client) {
                open.due_ns = due_ns;
                return open.connection;
            }
            self.open.insert(client, OpenConnection { connection, due_ns });
            self.order.push(Reverse((due_ns, client)));
        }
        self.opened += 1;
        connection
    }

    pub(super) fn is_single(&self) -> bool {
        self.grouping == ConnectionGrouping::Never
    }

    pub(super) fn end(&mut self) -> Option<EndedConnection> {
        while !self.order.is_empty() {
            if let Some(ended) = self.end_first(i64::MAX) {
                return Some(ended);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs (time, client) pairs. Returns the connection of each, and the connections that were closed before each.
    fn run(requests: &[(i64, u64)], grouping: ConnectionGrouping, limit: usize) -> (Vec<u64>, Vec<(u64, i64)>) {
        let mut connections = Connections::new(grouping, limit);
        let (mut of, mut closed) = (Vec::new(), Vec::new());
        for (now, client) in requests {
            while let Some(ended) = connections.expire(*now) {
                closed.push((ended.connection, ended.due_ns));
            }
            closed.extend(connections.make_room(*client).map(|ended| (ended.connection, ended.due_ns)));
            of.push(connections.join(*client, *now));
        }
        while let Some(ended) = connections.end() {
            closed.push((ended.connection, ended.due_ns));
        }
        (of, closed)
    }

    #[test]
    fn the_longest_idle_connection_makes_room() {
        let gap = ConnectionGrouping::IdleGap { limit_ns: 100 };
        let (of, closed) = run(&[(0, 1), (1, 2), (2, 1), (3, 3), (4, 1), (5, 2)], gap, 2);
        assert_eq!(of, [0, 1, 0, 2, 0, 3]);
        assert_eq!(closed[..2], [(1, 101), (2, 103)]);
    }

    proptest! {
        #[test]
        fn grouping_equals_a_naive_count(
            gaps in proptest::collection::vec((0i64..12, 0u64..6), 0..200), limit_ns in 0u64..20
        ) {
            let mut now = 0;
            let requests: Vec<(i64, u64)> = gaps.iter().map(|(gap, client)| { now += gap; (now, *client) }).collect();
            let (of, closed) = run(&requests, ConnectionGrouping::IdleGap { limit_ns }, 1000);
            // A naive model, which remembers every client forever.
            let mut known: std::collections::HashMap<u64, (u64, i64)> = Default::default();
            let mut next = 0;
            for ((now, client), connection) in requests.iter().zip(&of) {
                let expected = match known.get_mut(client) {
                    Some((connection, base)) if now - *base <= limit_ns as i64 => {
                        *base = *now;
                        *connection
                    }
                    _ => {
                        known.insert(*client, (next, *now));
                        next += 1;
                        next - 1
                    }
                };
                prop_assert_eq!(*connection, expected);
            }
            // Every connection is closed once, in the order of time.
            let mut numbers: Vec<u64> = closed.iter().map(|(connection, _)| *connection).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..next).collect::<Vec<_>>());
            prop_assert!(closed.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        }
    }
}
