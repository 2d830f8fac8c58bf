//! Why workers could not be used, and the one sentence that an error becomes on the wire.

use crate::protocol::ProtocolError;
use load::LoadError;
use observe::ObserveError;

/// Why workers could not do what they were asked for.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A signal ended the wait for them.
    #[error("interrupted while {0}")]
    Interrupted(&'static str),
    /// A worker, or what starts it, cannot do its part; one sentence.
    #[error("{0}")]
    Unusable(String),
    /// A process, a thread or a socket could not be had.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The other end does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The engine cannot drive the load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server cannot be watched.
    #[error("{what}")]
    Observe {
        /// What was tried.
        what: &'static str,
        /// What the observer said.
        source: ObserveError,
    },
    /// A result could not be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What the operations of this crate return.
pub type Result<T, E = RemoteError> = std::result::Result<T, E>;

/// An error of one sentence.
pub(crate) fn unusable(why: impl Into<String>) -> RemoteError {
    RemoteError::Unusable(why.into())
}

/// An error of the system with what was tried.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RemoteError {
    move |source| RemoteError::System { what: what.into(), source }
}
