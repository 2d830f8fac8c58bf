//! `straingauge load`, and the options of the engine.

use super::drive::DriveArgs;
use super::overlay;
use crate::quantity::{Count, Rate, Time};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `straingauge load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Serve another straingauge on standard input and output: send the load that --client asks for;
    /// --cpus, --threads and --source-address count for this worker
    #[arg(long, help_heading = "Other machines")]
    pub worker: bool,
    /// Connect from every address of this interface, for more ports, with --worker
    #[arg(long, value_name = "NAME", requires = "worker", help_heading = "Other machines")]
    pub source_interface: Option<String>,
    /// Local address to connect from (repeatable) [default: the kernel's choice; on loopback more are added as needed]
    #[arg(long, value_name = "ADDRESS", help_heading = "Other machines")]
    pub source_address: Vec<std::net::IpAddr>,
    #[command(flatten)]
    pub drive: DriveArgs,
    /// Print everything: every figure with its origin
    ///
    /// And all percentiles, classes, clients and doubts, where otherwise a summary of 15 lines is printed.
    #[arg(long, help_heading = "Output")]
    pub full: bool,
    /// Exit with code 3 if this holds, as 'p99 > 50ms'
    ///
    /// Also 'errors > 0.1%', 'throughput < 10k'. Repeatable.
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
}

/// Options of the engine.
#[derive(Debug, Default, Clone, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Connections [default: {connections}; with --rate: {open_loop_connections}]
    ///
    /// Held open; each sends its next request when a response is complete (closed loop). With --rate: the most that may
    /// be used.
    #[arg(long, short = 'c', value_name = "N", allow_hyphen_values = true)]
    pub connections: Option<Count>,
    /// Requests per second (open loop)
    ///
    /// Sent by a schedule that does not wait for responses.
    #[arg(long, short = 'r', value_name = "RATE", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Gaps of the open loop's schedule [default: {arrival}]
    #[arg(long, value_enum)]
    pub arrival: Option<ArrivalWord>,
    /// Length of the window [default: {duration}]
    ///
    /// After the warm-up. A bare number is seconds.
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    #[serde(deserialize_with = "crate::quantity::some_seconds")]
    pub duration: Option<Time>,
    /// Load before the window [default: {warmup}]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    #[serde(deserialize_with = "crate::quantity::some_seconds")]
    pub warmup: Option<Time>,
    /// Threads [default: one a CPU; loopback: half as many]
    ///
    /// Of the CPUs in --cpus, or of the client's half where a server is started. A client that is not pinned has one
    /// for each CPU of the machine, or for half of them where the URL is on loopback.
    #[arg(long, short = 't', value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<Count>,
    /// Cold connections beside the load [default: none]
    ///
    /// They are established before it and send nothing, as most connections on the Internet do.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cold: Option<Count>,
    /// Close a connection after N requests
    ///
    /// And open another; 1 = no keep-alive; 0 = send none: connect, with the TLS handshake, and close at once.
    /// [default: never]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub requests_per_connection: Option<Count>,
    /// Give a request up after this long [default: {timeout}]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    #[serde(deserialize_with = "crate::quantity::some_seconds")]
    pub timeout: Option<Time>,
    // In scenario files alone, as all that is skipped here: give a connection attempt up after this long.
    #[arg(skip)]
    #[serde(deserialize_with = "crate::quantity::some_seconds")]
    pub connect_timeout: Option<Time>,
    // Open at most this many connections per second.
    #[arg(skip)]
    pub connect_rate: Option<Rate>,
    /// Request method [default: GET; with a body: POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// Extra header field, as 'Name: value'
    ///
    /// Repeatable.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    pub header: Vec<String>,
    /// Request body; @FILE reads it from a file
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Request the URLs of this file in turn
    ///
    /// One a line, or paths; with a weight after any of them, in proportion to the weights.
    #[arg(long, value_name = "FILE")]
    pub urls: Option<PathBuf>,
    /// Pin the client to these CPUs, as 0 or 0,2-3 [default: with a server to start, half of them]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    // Local addresses to connect from; `load` takes them on the command line, too.
    #[arg(skip)]
    pub source_address: Vec<std::net::IpAddr>,
    /// Seed of what is random: gaps, orders, losses [default: {seed}]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    // Poll instead of sleeping in the last microseconds before a send; needs a dedicated CPU.
    #[arg(skip)]
    pub precise: bool,
}
overlay!(LoadOptions; connections, rate, arrival, duration, warmup, threads, cold, requests_per_connection, timeout,
    connect_timeout, connect_rate, method, body, urls, cpus, seed, header, source_address, precise);

/// The words for arrival processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalWord {
    /// Equal gaps
    Constant,
    /// Exponential gaps, as of many independent users
    #[default]
    Poisson,
}
