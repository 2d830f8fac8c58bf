use crate::protocol::ProtocolError;
use load::LoadError;
use observe::ObserveError;

/// Why cold connections do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// One line for each machine with its resources.
    pub table: Vec<String>,
    /// One sentence.
    pub why: String,
}

/// Why workers could not do their share.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A signal ended the wait for the workers.
    #[error("interrupted while {0}")]
    Interrupted(&'static str),
    /// A worker, or the command that starts it, cannot be used. Holds a sentence.
    #[error("{0}")]
    Unusable(String),
    /// Cold connections do not fit the machines.
    #[error("{}", .0.why)]
    NoRoom(NoRoom),
    /// A process, a thread or a socket could not be created.
    #[error("{what}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
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
        /// The action that failed.
        what: &'static str,
        /// The observer's error.
        source: ObserveError,
    },
    /// A result could not be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// The result of this crate's operations.
pub type Result<T, E = RemoteError> = std::result::Result<T, E>;

pub(crate) fn unusable(why: impl Into<String>) -> RemoteError {
    RemoteError::Unusable(why.into())
}

pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> RemoteError {
    move |source| RemoteError::System { what: what.into(), source }
}
