//! Why a load could not be run or a server could not be probed, with the remedy.

use std::net::{IpAddr, SocketAddr};

/// The load could not start, or the probe found no usable HTTP server.
///
/// Failures of single requests *during* a load are no errors: they are counted in
/// [`record::Outcomes`](record::Outcomes).
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A part of the plan makes no sense or could not be sent as HTTP.
    #[error("{0}")]
    Plan(String),
    /// More connections than descriptors.
    #[error(
        "{wanted} connections need {needed} file descriptors, but this process may open {limit} ({in_use} are in use): \
         {fits} connections fit; ask for fewer, raise the limit (ulimit -n {needed}, or LimitNOFILE= of the service), \
         or divide them over several --client"
    )]
    Descriptors {
        /// Number of connections.
        wanted: u64,
        /// Descriptors they need, with the engine's own.
        needed: u64,
        /// Hard limit of the process.
        limit: u64,
        /// Descriptors open already.
        in_use: u64,
        /// Connections that would fit.
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
        /// Connections that would fit.
        fits: u64,
        /// Source addresses that can be used.
        sources: usize,
        /// Ephemeral port range.
        low: u16,
        /// Ephemeral port range.
        high: u16,
    },
    /// A source address is not one of this machine's.
    #[error(
        "the source address {address} cannot be used: {cause}; give an address of this machine (ip address shows them)"
    )]
    Source {
        /// The address.
        address: IpAddr,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// A log cannot be read. The text is a sentence.
    #[error("{0}")]
    Log(String),
    /// The engine's own machinery could not be set up.
    #[error("the load engine could not {what}: {cause}")]
    Machine {
        /// The action that failed.
        what: &'static str,
        /// The kernel's error.
        cause: std::io::Error,
    },
    /// Nothing listens.
    #[error("{0} refuses connections: is the server running, and on this port?")]
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
    /// Connected, but no complete response in time.
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
    /// The first bytes are a frame of HTTP/2.
    #[error("{address}: {why}")]
    Http2 {
        /// The server.
        address: SocketAddr,
        /// The problem and the remedy.
        why: &'static str,
    },
    /// The bytes are not HTTP/1.x.
    #[error("{address} does not answer in HTTP/1.x: {why}; it began with {start}")]
    NotHttp {
        /// The server.
        address: SocketAddr,
        /// The rule that was broken.
        why: String,
        /// The first bytes, made printable.
        start: String,
    },
    /// The server does not answer as its protocol demands; for protocols other than HTTP.
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
