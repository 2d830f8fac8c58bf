//! Drives load and observes servers from other machines. A *worker* is any command that speaks the protocol on its
//! standard input and output (`straingauge load --worker` or `straingauge watch --worker`, over ssh or on this
//! machine); the *driver* is the straingauge that started it. The protocol is described in `docs/worker-protocol.md`.

mod account;
mod error;
mod inputs;
mod link;
mod observation;
mod options;
mod permit;
mod process;
mod ray;
mod requests;
mod serve;
mod serve_watch;
mod session;

// Public for tests/all only.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod cold;
#[doc(hidden)]
pub mod fleet;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod merge;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod protocol;
#[doc(hidden)]
pub mod shares;
#[doc(hidden)]
pub mod watcher;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod worker_io;

pub use account::leave_out_uncounted;
pub use error::{NoRoom, RemoteError};
pub use fleet::{Fleet, OnLoss};
pub use inputs::{FileParts, InputFiles, InputStore};
pub use link::WorkerSource;
pub use options::WorkerOptions;
pub use permit::{can_be_split, permit};
#[doc(hidden)]
pub use protocol::check_lines;
pub use protocol::{ColdHeld, HostPlace, InputKind, InputPiece, MAX_PIECE_BYTES, TimeWaitCount};
pub use ray::{Nodes, RayPlan};
pub use requests::{RequestWatch, RequestWatchPlan};
pub use serve::serve as serve_load;
pub use serve_watch::{StartedProcesses, serve as serve_watch};
pub use watcher::RemoteWatcher;

/// Sampling interval of a server's connection states during a window.
pub const STATES_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
