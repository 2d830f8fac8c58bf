use std::io;

/// An error of this crate. The message tells what failed, why, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The network namespace of another process cannot be entered.
    #[error(
        "cannot enter the network namespace of process {pid} ({source}): run straingauge as root, or watch from inside \
         that namespace"
    )]
    Namespace {
        /// The other process.
        pid: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// A process of another user listens.
    #[error(
        "something listens on port {port}, but its process cannot be seen: it belongs to another user (uid {uid}); run \
         straingauge as root or as that user"
    )]
    HiddenServer {
        /// The port.
        port: u16,
        /// Owner of the listening socket.
        uid: u32,
    },
    /// Only a service manager has the listening socket.
    #[error(
        "port {port} is socket-activated: systemd (process {manager}) holds its listening socket, and the server is \
         not running yet; start its service, or connect to the port once"
    )]
    NotStarted {
        /// The port.
        port: u16,
        /// The manager's process.
        manager: u32,
    },
    /// BPF programs see other process ids than /proc shows.
    #[error("this process id namespace is not the host's: run with the host's process ids (as docker run --pid host)")]
    ForeignProcessIds,
    /// The kernel's sockets cannot be listed.
    #[error("cannot list the listening sockets of port {port}: {source}")]
    Sockets {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// A counter that every Linux has could not be read.
    #[error("cannot read {path}: {source}; is /proc mounted?")]
    Unreadable {
        /// The file.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The watcher's thread could not be started.
    #[error("cannot start the watcher's thread: {0}")]
    Thread(io::Error),
    /// `window_ends` was called without `window_begins`.
    #[error("no window is open: begin one before ending it")]
    NoWindow,
}
