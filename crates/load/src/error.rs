//! Errors of a load or a probe, with the remedy.

use std::net::{IpAddr, SocketAddr};

/// The load could not start, or the probe found no usable server.
///
/// Failures of single requests during a load are not errors; [`record::Outcomes`](record::Outcomes) counts them.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A part of the plan is invalid or cannot be sent.
    #[error("{0}")]
    Plan(String),
    /// More connections than file descriptors.
    #[error(
        "{wanted} connections need {needed} file descriptors, but this process may open {limit} ({in_use} are in use): \
         {fits} connections fit; ask for fewer, raise the limit (ulimit -n {needed}, or LimitNOFILE= of the service), \
         or divide them over several --client"
    )]
    Descriptors {
        /// Number of connections.
        wanted: u64,
        /// File descriptors needed, including the engine's own.
        needed: u64,
        /// Hard limit of the process.
        limit: u64,
        /// Descriptors open already.
        in_use: u64,
        /// Connections for which there are enough descriptors.
        fits: u64,
    },
    /// More connections than local ports.
    #[error(
        "{wanted} connections to {target} need more local ports than there are: {fits} fit ({sources} source \
         address(es), ports {low} to {high}); give more source addresses, or widen net.ipv4.ip_local_port_range"
    )]
    Ports {
        /// Number of connections.
        wanted: u64,
        /// The server.
        target: SocketAddr,
        /// Connections for which there are enough ports.
        fits: u64,
        /// Usable source addresses.
        sources: usize,
        /// First ephemeral port.
        low: u16,
        /// Last ephemeral port.
        high: u16,
    },
    /// A source address does not belong to this machine.
    #[error(
        "the source address {address} cannot be used: {cause}; give an address of this machine (ip address shows them)"
    )]
    Source {
        /// The address.
        address: IpAddr,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// A log cannot be read; the text is a sentence.
    #[error("{0}")]
    Log(String),
    /// The engine itself could not be set up.
    #[error("the load engine could not {what}: {cause}")]
    Machine {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// The server's port is closed.
    #[error("nothing listens on {0} (connection refused): is the server running, on this port?")]
    Refused(SocketAddr),
    /// No answer to the connection attempt.
    #[error(
        "{address} did not accept a connection within {after_ms} ms: is the address right, and no firewall between?"
    )]
    ConnectTimeout {
        /// The server.
        address: SocketAddr,
        /// The timeout.
        after_ms: u64,
    },
    /// Another network error on the way to the server.
    #[error("{address} cannot be reached: {cause}")]
    Network {
        /// The server.
        address: SocketAddr,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// The server accepted the connection but sent no complete response in time.
    #[error(
        "{address} accepted the connection but sent {received} bytes and no complete response within {after_ms} ms: \
         the server may be overloaded, or wait for another protocol"
    )]
    ResponseTimeout {
        /// The server.
        address: SocketAddr,
        /// Bytes received until then.
        received: u64,
        /// The timeout.
        after_ms: u64,
    },
    /// The server speaks TLS.
    #[error("{0} speaks TLS, but the URL begins with http: write https, or give the server's plain HTTP port")]
    Tls(SocketAddr),
    /// The TLS handshake failed.
    #[error("no TLS connection to {address}: {why}")]
    Handshake {
        /// The server.
        address: SocketAddr,
        /// Why, and the remedy.
        why: String,
    },
    /// The response begins with an HTTP/2 frame.
    #[error("{address}: {why}")]
    Http2 {
        /// The server.
        address: SocketAddr,
        /// The problem and the remedy.
        why: &'static str,
    },
    /// The response is not HTTP/1.x.
    #[error("{address} does not answer in HTTP/1.x: {why}; it began with {start}")]
    NotHttp {
        /// The server.
        address: SocketAddr,
        /// The HTTP rule that the response breaks.
        why: String,
        /// The first bytes, made printable.
        start: String,
    },
    /// A server of a protocol other than HTTP answers wrongly.
    #[error("{address}: {why}")]
    Foreign {
        /// The server.
        address: SocketAddr,
        /// The event and the remedy.
        why: String,
    },
    /// The body ended before its announced length.
    #[error(
        "{address} closed the connection before the response was complete ({received} bytes came): the body ends early"
    )]
    Truncated {
        /// The server.
        address: SocketAddr,
        /// Bytes received.
        received: u64,
    },
    /// The connection was closed or reset without a response.
    #[error("{address} {how} without sending a response: does this port speak HTTP?")]
    NoResponse {
        /// The server.
        address: SocketAddr,
        /// `closed the connection` or `reset the connection`.
        how: &'static str,
    },
}
