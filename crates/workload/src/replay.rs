//! Turns a log into a plan that says when to send which request on which connection.
//!
//! Requests of one client that arrive within 15 s of each other share one persistent connection (Kim & Rixner,
//! Performance Characterization of the FreeBSD Network Stack, 2005, section 3); the plan keeps the log's arrival
//! times, scales them by a speed, or drops them. Several replayers split one log by client, so that no client is
//! reordered.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use workload::replay::{Plan, ReplayOptions, PlanStep};
//! use workload::trace::{LogFormat, TraceReader};
//! let reader = TraceReader::open("access.log".as_ref(), &LogFormat::Auto)?;
//! for step in Plan::new(reader, ReplayOptions::default()) {
//!     match step? {
//!         PlanStep::Request(request) => println!("{} ns: connection {}", request.intended_ns, request.connection),
//!         PlanStep::Close { connection, .. } => println!("nothing more on connection {connection}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Times that go back
//!
//! Apache logs when a request arrived, but writes the line when it was answered, so the times of a log go back. The
//! plan sorts within a window of log time ([`ReplayOptions::reorder_ns`], 60 s); requests of equal time keep the
//! log's order. A line that is older than the window allows is moved up to the window's edge and counted
//! ([`ReplayResult::clamped`]).
//!
//! # Times of whole seconds
//!
//! Most logs have whole seconds only. Requests of one second are spread over it as independent arrivals would be
//! (sorted uniform times, seeded), in the log's order; otherwise every second would begin with a burst that did not
//! happen. Grouping uses the logged times only.

pub mod connections;
pub mod order;
mod origin;
mod plan;
mod shape;
mod split;
pub mod spread;

pub use connections::ConnectionGrouping;
pub use plan::Plan;
pub use shape::LogShape;
pub use split::split;

use crate::trace::{RejectedLine, TraceReader};
use record::LoadShare;
use record::workload::ReplayResult;

/// How a log is replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayOptions {
    /// When requests are sent.
    pub pace: ReplayPace,
    /// The requests that share a connection.
    pub grouping: ConnectionGrouping,
    /// The share of the clients in this plan. All shares of a log have the same start time.
    pub share: LoadShare,
    /// Log time of the plan's start, if the log is a part of another ([`split()`]). Otherwise the plan starts at its
    /// earliest request.
    pub origin_ns: Option<i64>,
    /// Whether to send the scheme and host of targets that were logged as whole URLs.
    pub has_host: bool,
    /// Window of log time within which lines are sorted. With 0 the log's order is kept, and earlier times are moved
    /// up to the latest.
    pub reorder_ns: u64,
    /// Seed for spreading requests with equal times over the log's resolution (usually one second).
    pub seed: u64,
    /// Maximum number of requests that are held for sorting and spreading. Beyond it, the earliest leave before their
    /// window ends.
    pub held_limit: usize,
    /// Maximum number of clients with an open connection. Beyond it, the connection that has been idle longest is
    /// closed early.
    pub clients_limit: usize,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions {
            pace: ReplayPace::Original { speed: 1.0 },
            grouping: ConnectionGrouping::IdleGap { limit_ns: 15_000_000_000 },
            share: LoadShare::WHOLE,
            origin_ns: None,
            has_host: false,
            reorder_ns: 60_000_000_000,
            seed: 1,
            held_limit: 1 << 18,
            clients_limit: 1 << 20,
        }
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayPace {
    /// At their times in the log, `speed` times as fast (2 = in half the time).
    Original {
        /// Positive and finite.
        speed: f64,
    },
    /// As fast as the server answers. Every intended time is 0, and only the order on each connection is kept.
    AsFastAsPossible,
}

/// A step of the replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanStep {
    /// Send a request.
    Request(PlannedRequest),
    /// Close the connection once its last answer is complete, because no request follows.
    Close {
        /// As in [`PlannedRequest::client`].
        client: u64,
        /// As in [`PlannedRequest::connection`].
        connection: u64,
        /// End of the grouping's period, or of the log if that is earlier, in nanoseconds since the plan's start (0
        /// when as fast as possible).
        at_ns: u64,
    },
}

/// One request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Key of the client: a hash of its address, equal in every run and on every machine.
    pub client: u64,
    /// Number of the connection in this plan, from 0. A connection belongs to one client and carries its requests in
    /// this order.
    pub connection: u64,
    /// Intended time of sending, in nanoseconds since the plan's start. It never decreases.
    pub intended_ns: u64,
    /// Line of the log.
    pub line: u64,
    /// Status in the log.
    pub status: Option<u16>,
    /// Size in the log; see [`crate::trace::TraceReader::size_meaning`].
    pub bytes: Option<u64>,
    pub(crate) text: Box<[u8]>,
    pub(crate) method_len: u8,
}

impl PlannedRequest {
    /// The method: 1 to 32 token characters.
    pub fn method(&self) -> &[u8] {
        &self.text[..usize::from(self.method_len)]
    }

    /// The target as a client would send it. It is not empty and contains no space or control byte. Untrusted bytes.
    pub fn target(&self) -> &[u8] {
        &self.text[usize::from(self.method_len)..]
    }
}

/// Adds the log as read so far.
fn account_of(reader: &TraceReader, planned: ReplayResult) -> ReplayResult {
    let (name, counts) = (reader.name(), reader.counts());
    let example = |line: &RejectedLine| format!("{name}: {line}");
    ReplayResult {
        file: name.into(),
        format: reader.format().to_string(),
        lines: counts.lines,
        rejected: counts.rejected.total(),
        rejected_examples: counts.rejected.examples().iter().take(10).map(example).collect(),
        ..planned
    }
}
