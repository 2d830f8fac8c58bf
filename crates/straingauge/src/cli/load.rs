//! `straingauge load`, and the options of the engine.

use super::drive::DriveArgs;
use super::overlay;
use crate::quantity::{Count, Rate, Seconds};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;

/// `straingauge load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Serve another straingauge on standard input and output
    ///
    /// Sends the load for --client of the other straingauge. --cpus, --threads and --source-address apply to this
    /// worker.
    #[arg(long, help_heading = "Other machines")]
    pub worker: bool,
    /// Connect from every address of this interface, for more ports
    ///
    /// Only with --worker.
    #[arg(long, value_name = "NAME", requires = "worker", help_heading = "Other machines")]
    pub source_interface: Option<String>,
    /// Local address to connect from
    ///
    /// Repeatable. [default: the kernel's choice; on loopback more are added as needed]
    #[arg(long, value_name = "ADDRESS", help_heading = "Other machines")]
    pub source_address: Vec<std::net::IpAddr>,
    #[command(flatten)]
    pub drive: DriveArgs,
    /// Print everything: every figure with its origin
    ///
    /// Also all percentiles, classes, clients and doubts. Default: a summary of 15 lines.
    #[arg(long, help_heading = "Output")]
    pub full: bool,
    /// Exit with code 3 if this is true, e.g. 'p99 > 50ms'
    ///
    /// Also 'errors > 0.1%', 'throughput < 10k'. Repeatable.
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
}

/// Options for the engine's load.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Number of connections [default: {connections}; with --rate: {open_loop_connections}]
    ///
    /// They stay open, and each sends its next request when a response is complete (closed loop). With --rate: the
    /// maximum number.
    #[arg(long, short = 'c', value_name = "N", allow_hyphen_values = true)]
    pub connections: Option<Count>,
    /// Requests per second (open loop)
    ///
    /// The schedule does not wait for responses.
    #[arg(long, short = 'r', value_name = "RATE", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Distribution of the gaps in the open loop [default: {arrival}]
    #[arg(long, value_enum)]
    pub arrival: Option<ArrivalWord>,
    /// Measure for this long [default: {duration}]
    ///
    /// After the warm-up. A bare number is seconds.
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<Seconds>,
    /// Send load for this long before measuring [default: {warmup}]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub warmup: Option<Seconds>,
    /// Threads to use [default: one per CPU; loopback: half]
    ///
    /// Counts the CPUs in --cpus, or the client's half if straingauge starts the server. Without pinning: one thread
    /// per CPU of the machine, or per two CPUs if the URL is on loopback.
    #[arg(long, short = 't', value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<Count>,
    /// Idle connections held open [default: none]
    ///
    /// Opened before the load. They send nothing, like most connections on the Internet.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cold: Option<Count>,
    /// Close each connection after N requests
    ///
    /// Then another one is opened. 1: no keep-alive. 0: send no request, only connect, do the TLS handshake, and
    /// close. [default: never]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub requests_per_connection: Option<Count>,
    /// Give up a request after this long [default: {timeout}]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub timeout: Option<Seconds>,
    // This key exists only in scenario files, like all fields skipped here. Timeout of a connection attempt.
    #[arg(skip)]
    pub connect_timeout: Option<Seconds>,
    // Maximum connections opened per second.
    #[arg(skip)]
    pub connect_rate: Option<Rate>,
    /// HTTP method [default: GET; with a body: POST]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// Add a header field, e.g. 'Name: value'
    ///
    /// Repeatable.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    pub header: Vec<String>,
    /// Give each request a random trace id
    ///
    /// In the header field 'traceparent' (W3C Trace Context). The slowest requests are printed with their ids, to be
    /// looked up in a tracing system.
    #[arg(long)]
    pub traceparent: bool,
    /// Body of the requests; @FILE reads it from a file
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Request the URLs of this file in turn
    ///
    /// One URL or path per line. If weights follow the URLs, the requests are distributed by the weights.
    #[arg(long, value_name = "FILE")]
    pub urls: Option<PathBuf>,
    /// Pin the client to these CPUs, e.g. 0 or 0,2-3 [default: half of them if straingauge starts the server]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    // Local addresses to connect from; `load` also takes them on the command line.
    #[arg(skip)]
    pub source_address: Vec<std::net::IpAddr>,
    /// Seed of random choices: gaps, orders, losses [default: {seed}]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    // Poll instead of sleeping in the last microseconds before a send; needs a dedicated CPU.
    #[arg(skip)]
    pub precise: bool,
}
overlay!(LoadOptions; connections, rate, arrival, duration, warmup, threads, cold, requests_per_connection, timeout,
    connect_timeout, connect_rate, method, body, urls, cpus, seed, header, traceparent, source_address, precise);

/// Distributions of gaps, as typed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalWord {
    /// Equal gaps between requests
    Constant,
    /// Exponential gaps, as from many independent users
    #[default]
    Poisson,
}
