//! The kind of clients of a load. By default they are as fast as they can, over plain TCP.

use serde::{Deserialize, Serialize};

/// The kind of every client of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ClientPlan {
    /// Each connection reads at most this many bytes per second; 0 = no limit.
    pub read_bytes_per_sec: u64,
    /// Fixed bandwidth of each connection, of which it needs a part to conform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<FixedBandwidth>,
    /// The end that closes a connection after its last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_first: Option<CloseFirst>,
    /// Whether the gaps between the parts of a response are timed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub times_parts: bool,
    /// TLS below HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
}

impl ClientPlan {
    /// Bytes per second at which each connection reads; `None` = as fast as it can.
    pub fn pace_bytes_per_sec(&self) -> Option<f64> {
        match &self.bandwidth {
            Some(bandwidth) => Some(bandwidth.asked_bits_per_sec / 8.0),
            None => (self.read_bytes_per_sec > 0).then_some(self.read_bytes_per_sec as f64),
        }
    }
}

/// Connections of fixed bandwidth, after SPECweb99: each reads at most the first rate, and conforms if it gets the
/// second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FixedBandwidth {
    /// The most that each connection reads, bits per second.
    pub asked_bits_per_sec: f64,
    /// The least bandwidth with which a connection conforms, bits per second.
    pub demanded_bits_per_sec: f64,
}

/// The end that closes a connection first. Its port stays in TIME_WAIT for a minute; the other end's port is free at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloseFirst {
    /// The client, as soon as the last response is complete.
    Client,
    /// The server: the last request has `Connection: close`, and the client waits for the end.
    Server,
}

/// The TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TlsPlan {
    /// Name or address that the certificate must be for; a name is sent as SNI.
    pub server_name: String,
    /// Whether sessions of earlier connections are resumed.
    pub has_resumption: bool,
    /// Whether the certificate remains unchecked.
    pub is_insecure: bool,
    /// Certificates of the authorities to trust, PEM; absent = the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// The content of that file. Not stored with the run, because the repeat command names the file.
    #[serde(skip)]
    pub ca_pem: Vec<u8>,
}
