//! Groups the requests of a client into connections.

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

/// A connection that no further request joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedConnection {
    /// Number of the client.
    pub client: u64,
    /// Number of the connection.
    pub connection: u64,
    /// The last log time at which a request could have joined.
    pub due_ns: i64,
}

/// The open connections by client.
///
/// Invariant: `order` holds exactly one pair for each client of `open`, with a time not later than its `due_ns`.
#[derive(Debug)]
pub struct Connections {
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
    /// Keeps at most `limit` connections open.
    pub fn new(grouping: ConnectionGrouping, limit: usize) -> Self {
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
    pub fn expire(&mut self, now_ns: i64) -> Option<EndedConnection> {
        while self.order.peek().is_some_and(|Reverse((due_ns, _))| *due_ns < now_ns) {
            if let Some(ended) = self.end_first(now_ns) {
                return Some(ended);
            }
        }
        None
    }

    /// Ends the connection that has been idle longest if there is no room for another client.
    pub fn make_room(&mut self, client: u64) -> Option<EndedConnection> {
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
    pub fn join(&mut self, client: u64, now_ns: i64) -> u64 {
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

    /// Ends a connection at the end of the log.
    pub fn end(&mut self) -> Option<EndedConnection> {
        while !self.order.is_empty() {
            if let Some(ended) = self.end_first(i64::MAX) {
                return Some(ended);
            }
        }
        None
    }
}
