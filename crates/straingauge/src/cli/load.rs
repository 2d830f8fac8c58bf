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
    /// Take plans from standard input and answer on standard output, for a straingauge that was given --client;
    /// --source-address counts for this worker
    #[arg(long, conflicts_with_all = ["url", "scenario", "client", "out"], help_heading = "Other machines")]
    pub worker: bool,
    /// With --worker: connect from every address of this interface, for more ports
    #[arg(long, value_name = "NAME", requires = "worker", help_heading = "Other machines")]
    pub source_interface: Option<String>,
    #[command(flatten)]
    pub drive: DriveArgs,
    /// Exit with code 3 when this holds, as in 'p99 > 50ms', 'errors > 0.1%' or 'throughput < 10k' (repeatable)
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
}

/// Options of the engine.
#[derive(Debug, Default, Clone, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Connections held open, each sending its next request when a response is complete (closed loop) [default: 10];
    /// with --rate the most connections that may be used [default: 256]
    #[arg(long, short = 'c', value_name = "N", allow_hyphen_values = true)]
    pub connections: Option<Count>,
    /// Requests per second sent by a schedule that does not wait for responses (open loop)
    #[arg(long, short = 'r', value_name = "RATE", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Gaps of the open loop's schedule [default: poisson]
    #[arg(long, value_enum)]
    pub arrival: Option<ArrivalWord>,
    /// Length of the measured window [default: 10s]
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<Time>,
    /// Load before the window [default: 1s; find: 200ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub warmup: Option<Time>,
    /// Engine threads [default: one for each of the client's CPUs]
    #[arg(long, short = 't', value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<Count>,
    /// Hold this many more connections that are established and idle, as most are on the Internet [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cold: Option<Count>,
    /// Close and reopen a connection after this many requests; 1 = no keep-alive [default: never]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub requests_per_connection: Option<Count>,
    /// Give a request up after this long [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub timeout: Option<Time>,
    /// Give a connection attempt up after this long [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub connect_timeout: Option<Time>,
    /// Open at most this many connections per second [default: as fast as the server accepts]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub connect_rate: Option<Rate>,
    /// Request method [default: GET]
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// Extra header field, as 'Name: value' (repeatable)
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    pub header: Vec<String>,
    /// Request body
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,
    /// Request body from a file
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,
    /// Visit the paths or URLs of this file in turn, one a line; with a weight behind one of them, in proportion to the
    /// weights
    #[arg(long, value_name = "FILE")]
    pub urls: Option<PathBuf>,
    /// Pin the engine's threads to these CPUs, as in 0 or 0,2-3 [default: with a server to start, half of them]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Local address to connect from (repeatable) [default: the kernel's choice; on loopback more are added as needed]
    #[arg(long = "source-address", value_name = "ADDRESS")]
    pub source_address: Vec<std::net::IpAddr>,
    /// Seed of the schedule's random gaps [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Poll instead of sleeping in the last microseconds before a send; wants a CPU of its own
    #[arg(long)]
    pub precise: bool,
}

/// The words for arrival processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalWord {
    /// Equal gaps
    Constant,
    /// Exponential gaps, as of many independent users
    Poisson,
}

impl LoadOptions {
    /// What was typed, with the gaps filled from a scenario file.
    pub fn over(mut self, file: LoadOptions) -> Self {
        let typed = &mut self;
        if typed.body.is_none() && typed.body_file.is_none() {
            typed.body = file.body;
            typed.body_file = file.body_file;
        }
        overlay!(typed, file; connections, rate, arrival, duration, warmup, threads, cold, requests_per_connection, timeout,
            connect_timeout, connect_rate, method, urls, cpus, seed);
        if typed.header.is_empty() {
            typed.header = file.header;
        }
        if typed.source_address.is_empty() {
            typed.source_address = file.source_address;
        }
        typed.precise |= file.precise;
        self
    }
}
