//! Options for the kind of clients.

use super::overlay;
use crate::quantity::{Bits, Bytes, read_as_typed};
use clap::Args;
use record::CloseFirst;
use serde::Deserialize;
use std::path::PathBuf;
use std::str::FromStr;

/// Slow clients, clients of fixed bandwidth, TLS, and who closes first.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Clients")]
pub struct ClientOptions {
    /// Read at most this many bytes per second on each connection [default: no limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub read_rate: Option<Bytes>,
    /// Fixed bandwidth of each connection, in bits per second, e.g. 400k [default: none]
    ///
    /// As in SPECweb99: a connection conforms if it gets {demanded_share} of it.
    #[arg(long, value_name = "BITS", allow_hyphen_values = true)]
    pub asked_bandwidth: Option<Bits>,
    // These keys exist only in scenario files, like all fields skipped here. Minimum bandwidth of a conforming
    // connection.
    #[arg(skip)]
    pub demanded_bandwidth: Option<Bits>,
    /// Time the gaps between the parts of a response
    ///
    /// Parts are events, lines of JSON or gRPC messages, by the content type. In other responses, each read of body
    /// bytes is a part. Parts that arrive in one read have no gap between them. The time to the first byte is always
    /// measured.
    #[arg(long)]
    pub parts: bool,
    // With --requests-per-connection: the end that closes after the last response and so keeps the TIME_WAIT. By
    // default the server, which gets 'Connection: close', or the client if the server does not close.
    #[arg(skip)]
    pub close_first: Option<CloseFirst>,
    /// https: ca=FILE, insecure or no-resumption
    ///
    /// ca=FILE trusts the authorities in a PEM file. insecure accepts any certificate. no-resumption begins every
    /// connection with a full handshake. [default: the system's authorities] Repeatable.
    #[arg(long, value_name = "WORD")]
    pub tls: Vec<TlsWord>,
}
overlay!(ClientOptions; read_rate, asked_bandwidth, demanded_bandwidth, close_first, tls, parts);

/// TLS settings, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsWord {
    /// Trust the authorities in this PEM file.
    Ca(PathBuf),
    /// Accept any certificate.
    Insecure,
    /// Do not resume sessions.
    NoResumption,
}

impl FromStr for TlsWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("ca", file)) if !file.is_empty() => Ok(TlsWord::Ca(file.into())),
            None if text == "insecure" => Ok(TlsWord::Insecure),
            None if text == "no-resumption" => Ok(TlsWord::NoResumption),
            _ => Err("use ca=FILE, insecure or no-resumption".into()),
        }
    }
}

read_as_typed!(TlsWord);
