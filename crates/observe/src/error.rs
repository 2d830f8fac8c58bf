//! Why the server or the machine could not be watched at all. What can merely not be read becomes a figure without a
//! value ("not measured: why"), not an error.

use std::io;

/// An error of this room. The message is one sentence: what, why, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The namespace of another process may not be entered.
    #[error(
        "cannot look into the network namespace of process {pid} ({source}): run it as root, or watch from inside that namespace"
    )]
    Namespace {
        /// Whose namespace.
        pid: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something listens, but its process belongs to another user.
    #[error(
        "something listens on port {port}, but its process cannot be seen: it belongs to another user (uid {uid}); run it as root or as that user"
    )]
    HiddenServer {
        /// Which port.
        port: u16,
        /// Owner of the listening socket.
        uid: u32,
    },
    /// The kernel does not say who listens.
    #[error("cannot list the listening sockets of port {port}: {source}")]
    Sockets {
        /// Which port.
        port: u16,
        /// What the kernel said.
        source: io::Error,
    },
    /// A counter that every Linux has could not be read.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Unreadable {
        /// Which file.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The watcher's thread could not be started.
    #[error("cannot start the watcher's thread: {0}")]
    Thread(io::Error),
    /// `window_ends` without `window_begins`.
    #[error("no window is open: begin one before ending it")]
    NoWindow,
}
