//! Inputs that a plan names but does not contain: the arrivals of a measured rate series, and the requests of a log.
//! The caller supplies them; each engine thread takes its part.

use record::workload::ReplayResult;
use record::{LoadPlan, LoadShare};

/// Gives each engine thread its part of the inputs. Every thread asks once; each part belongs to one thread of one
/// machine.
pub trait Supply: Sync {
    /// With [`record::Arrival::Series`]: intended sends in nanoseconds since the window's begin, never decreasing, each
    /// less than the window's length. The plan's rate is the mean over all threads of all machines.
    fn arrivals<'a>(&'a self, plan: &LoadPlan, share: LoadShare) -> Option<Box<dyn Iterator<Item = u64> + Send + 'a>> {
        let _ = (plan, share);
        None
    }

    /// With [`record::Workload::trace`]: the requests of this part, in their order. All requests of a client are in one
    /// part.
    fn replay<'a>(&'a self, plan: &LoadPlan, share: LoadShare) -> Option<Result<Box<dyn ReplaySource + 'a>, String>> {
        let _ = (plan, share);
        None
    }
}

/// Supplies nothing: for plans that name neither a series nor a log.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSupply;

impl Supply for NoSupply {}

/// The steps of a replay, read ahead by a separate thread.
pub trait ReplaySource: Send {
    /// The next step; `None` at the end of the log. An error (one sentence) ends the replay after the steps before
    /// it.
    fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>>;

    /// The reader's counts: the fields of [`ReplayResult`] that concern the log. Counts of lines are of the whole log,
    /// `requests`, `sessions` and `evicted` of this part.
    fn account(&self) -> ReplayResult;
}

/// A step of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStep<'a> {
    /// Send a request.
    Request(ReplayRequest<'a>),
    /// The session has ended: close its connection once the last response is complete.
    Close {
        /// As in [`ReplayRequest::client`].
        client: u64,
        /// As in [`ReplayRequest::session`].
        session: u64,
        /// Nanoseconds since the first request of the log.
        at_ns: u64,
    },
}

/// One request of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRequest<'a> {
    /// Requests of one client are sent one after another.
    pub client: u64,
    /// Requests of one session share a connection. A session belongs to one client.
    pub session: u64,
    /// Nanoseconds since the first request of the log, at the replay's speed; never decreasing. Ignored if the replay
    /// is as fast as the server answers.
    pub intended_ns: u64,
    /// A token of 1 to 32 characters.
    pub method: &'a [u8],
    /// The request target as it is sent: not empty, without spaces and control bytes. Untrusted.
    pub target: &'a [u8],
    /// Status in the log.
    pub status: Option<u16>,
    /// Body bytes in the log; absent if the log has none.
    pub body_bytes: Option<u64>,
}
