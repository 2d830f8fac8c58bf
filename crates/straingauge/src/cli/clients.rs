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
    /// Each connection reads at most this many bytes per second, as over a slow link [default: no limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub read_rate: Option<Bytes>,
    /// Each connection has this fixed bandwidth, in bits per second, as in 400k (SPECweb99), and conforms when it gets
    /// {demanded_share} of it [default: none]
    #[arg(long, value_name = "BITS", allow_hyphen_values = true, conflicts_with = "read_rate")]
    pub asked_bandwidth: Option<Bits>,
    // In scenario files alone, as all that is skipped here: a connection conforms when it gets this bandwidth.
    #[arg(skip)]
    pub demanded_bandwidth: Option<Bits>,
    /// Time the gaps between the parts of a response: events, lines of JSON, messages of gRPC
    ///
    /// The type of the response says what a part is; where it does not, each read with bytes of the body is one. Events
    /// that come in one read have no gap between them. The time to the first byte is measured in any case.
    #[arg(long)]
    pub parts: bool,
    // With --requests-per-connection, which end closes after the last one and so keeps the TIME_WAIT: without it the
    // server, asked by 'Connection: close', or the client where the server does not.
    #[arg(skip)]
    pub close_first: Option<CloseWord>,
    /// https: ca=FILE trusts the authorities in a PEM file, insecure takes any certificate, no-resumption begins every
    /// connection with a full handshake (repeatable) [default: the system's authorities]
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
    /// The server; waited for as long as for a response
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
