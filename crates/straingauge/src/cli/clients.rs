//! Options for the kind of clients that make up the load.

use super::overlay;
use crate::quantity::{Bits, Bytes, read_as_typed};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize, Serializer};
use std::path::PathBuf;
use std::str::FromStr;

/// Slow clients, clients of fixed bandwidth, TLS, and who closes first.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Clients")]
pub struct ClientOptions {
    /// Read at most this many bytes per second on each connection [default: no limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub read_rate: Option<Bytes>,
    /// Fixed bandwidth of each connection, in bits per second, as 400k [default: none]
    ///
    /// As in SPECweb99: a connection conforms if it gets {demanded_share} of it.
    #[arg(long, value_name = "BITS", allow_hyphen_values = true, conflicts_with = "read_rate")]
    pub asked_bandwidth: Option<Bits>,
    // In scenario files alone, as all that is skipped here: a connection conforms when it gets this bandwidth.
    #[arg(skip)]
    pub demanded_bandwidth: Option<Bits>,
    /// Time the gaps between the parts of a response
    ///
    /// Parts are events, lines of JSON or messages of gRPC, by the type of the response; in other responses each read
    /// with bytes of the body. Parts that arrive in one read have no gap between them. The time to the first byte is
    /// always measured.
    #[arg(long)]
    pub parts: bool,
    // With --requests-per-connection, which end closes after the last one and so keeps the TIME_WAIT: without it the
    // server, asked by 'Connection: close', or the client where the server does not.
    #[arg(skip)]
    pub close_first: Option<CloseWord>,
    /// https: ca=FILE, insecure or no-resumption
    ///
    /// ca=FILE trusts the authorities in a PEM file. insecure accepts any certificate. no-resumption begins every
    /// connection with a full handshake. Repeatable. [default: the system's authorities]
    #[arg(long, value_name = "WORD")]
    pub tls: Vec<TlsWord>,
}
overlay!(ClientOptions; read_rate, asked_bandwidth, demanded_bandwidth, close_first, tls, parts);

/// Which end closes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CloseWord {
    /// The client, when the last response is complete
    Client,
    /// The server; the client waits as long as for a response
    Server,
}

/// How connections are secured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsWord {
    /// Trust the authorities in this file.
    Ca(PathBuf),
    /// Take any certificate.
    Insecure,
    /// Resume no session.
    NoResumption,
}

impl FromStr for TlsWord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("ca", file)) if !file.is_empty() => Ok(TlsWord::Ca(file.into())),
            None if text == "insecure" => Ok(TlsWord::Insecure),
            None if text == "no-resumption" => Ok(TlsWord::NoResumption),
            _ => Err("it is one of ca=FILE, insecure and no-resumption".into()),
        }
    }
}

impl std::fmt::Display for TlsWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TlsWord::Ca(file) => write!(f, "ca={}", file.display()),
            TlsWord::Insecure => f.write_str("insecure"),
            TlsWord::NoResumption => f.write_str("no-resumption"),
        }
    }
}

impl Serialize for TlsWord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

read_as_typed!(TlsWord);
