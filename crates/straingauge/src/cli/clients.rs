//! Options for the kind of clients that make up the load.

use super::overlay;
use crate::quantity::{Bits, Bytes};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Slow clients, clients of fixed bandwidth, TLS, and who closes first.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Clients")]
pub struct ClientOptions {
    /// Each connection reads at most this many bytes per second, as over a slow link [default: no limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub read_rate: Option<Bytes>,
    /// Each connection has this fixed bandwidth, in bits per second, as in 400k (SPECweb99) [default: none]
    #[arg(long, value_name = "BITS", allow_hyphen_values = true, conflicts_with = "read_rate")]
    pub asked_bandwidth: Option<Bits>,
    /// A connection conforms when it gets this bandwidth [default: {demanded_share} of --asked-bandwidth]
    #[arg(long, value_name = "BITS", allow_hyphen_values = true)]
    pub demanded_bandwidth: Option<Bits>,
    /// Time the gaps between the parts of a response: events, lines of JSON, messages of gRPC
    ///
    /// The type of the response says what a part is; where it does not, each read with bytes of the body is one. Events that come in
    /// one read have no gap between them. The time to the first byte is measured in any case.
    #[arg(long)]
    pub parts: bool,
    /// With --requests-per-connection, which end closes after the last one and so keeps the TIME_WAIT [default: the
    /// server, asked by 'Connection: close', or the client where the server does not]
    #[arg(long, value_enum)]
    pub close_first: Option<CloseWord>,
    /// https: resume the TLS sessions of earlier connections [default: {tls_resumption}]
    #[arg(long, value_enum)]
    pub tls_resumption: Option<SwitchWord>,
    /// https: trust the authorities in this PEM file [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// https: take any certificate
    #[arg(long)]
    pub tls_insecure: bool,
}
overlay!(ClientOptions; read_rate, asked_bandwidth, demanded_bandwidth, close_first, tls_resumption, tls_ca, parts,
    tls_insecure);

/// Which end closes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CloseWord {
    /// The client, when the last response is complete
    Client,
    /// The server; waited for as long as for a response
    Server,
}

/// On or off.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchWord {
    /// Yes
    #[default]
    On,
    /// No
    Off,
}
