//! `straingauge profile`.

use crate::quantity::{Count, Time};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How layers are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// calibrated where this kernel permits it, else sampled
    Auto,
    /// a timer interrupts every CPU and the stacks are counted
    Sampled,
    /// hooks at the functions where one layer calls another, in bursts
    Exact,
    /// sampled, with the layers' shares corrected by bursts of exact
    Calibrated,
}

/// `straingauge profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The server's port: :8080; with --axis and -- SERVER its URL
    pub port: Option<String>,
    /// Length of the window [default: 10s; of a point of --axis 4s]
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    pub duration: Option<Time>,
    /// How to measure; hooks cost the server something, so they are asked for [default: sampled]
    #[arg(long, value_enum, value_name = "HOW", conflicts_with_all = ["diff", "kernel_scaling"])]
    pub accounting: Option<Method>,
    /// Length of one of the ten bursts of exact [default: 100ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub burst: Option<Time>,
    /// Samples a second on each CPU; 199 to 997 is usual [default: 997]
    #[arg(long, short = 'F', value_name = "N", allow_hyphen_values = true)]
    pub frequency: Option<Count>,
    /// Look for the server in the network namespace of this process [default: in this one]
    #[arg(long, value_name = "PID")]
    pub netns_of: Option<u32>,
    /// Sum functions as a group, as in 'acks=tcp_ack*,tcp_send_ack' or 'parse=user:ngx_http_parse_*' (repeatable)
    #[arg(long, value_name = "NAME=PATTERN")]
    pub group: Vec<String>,
    /// Write the stacks, one a line, for flame graph viewers
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Draw the stacks, coloured by layer; with --against or --diff by what grew
    #[arg(long, value_name = "FILE.svg")]
    pub flame: Option<PathBuf>,
    /// Say what grew since an earlier profile, kept with --folded
    #[arg(long, value_name = "FILE", conflicts_with = "diff")]
    pub against: Option<PathBuf>,
    /// Compare two files of --folded and measure nothing
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["port", "folded"])]
    pub diff: Option<Vec<PathBuf>>,
    /// Measure what select, poll, epoll_wait, accept and descriptors cost on this kernel; needs no server
    #[arg(long, conflicts_with_all = ["port", "folded", "flame", "against", "diff"])]
    pub kernel_scaling: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub sweep: SweepArgs,
}

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SweepAxis {
    /// Full segments a second of the microbenchmark (with a server: requests a second)
    PacketRate,
    /// Connections, at the same total rate (with a server: in a closed loop)
    Connections,
    /// One-way delay of the path between both ends
    Delay,
}

/// Options of the experiments.
#[derive(Debug, Args)]
#[command(next_help_heading = "Experiments of Kim and Rixner (need root)")]
pub struct SweepArgs {
    /// Profile one value of this after another: of the microbenchmark (full segments at a constant rate to a reader that
    /// acknowledges each), or with a URL and -- SERVER of a web server
    #[arg(long, value_enum, conflicts_with_all = ["diff", "kernel_scaling", "folded", "flame", "against", "group", "netns_of", "burst"])]
    pub axis: Option<SweepAxis>,
    /// Connections; --axis connections takes a list [default: 4,32,128,512,2048; packet-rate: 1; delay: 2048; of a
    /// server: 4,32,128,512,1024; 256]
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "axis", allow_hyphen_values = true)]
    pub connections: Vec<Count>,
    /// Packets (with a server: requests) a second over all connections; --axis packet-rate takes a list [default: 33333
    /// packets, 400 Mbit/s; packet-rate: 8333 to 66667; of a server: shares of its capacity, else a closed loop]
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "axis", allow_hyphen_values = true)]
    pub rate: Vec<Count>,
    /// One-way delay of the path; --axis delay takes a list [default: 0ms; delay: 0ms,5ms,10ms,20ms,40ms]
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', requires = "axis", allow_hyphen_values = true)]
    pub delay: Vec<Time>,
    /// Repeats of every value, each in a random order; at least 3 for an interval [default: 5]
    #[arg(long, value_name = "N", requires = "axis", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Time for the whole; no repeat is begun that does not fit [default: 175s]
    #[arg(long, value_name = "TIME", requires = "axis", allow_hyphen_values = true)]
    pub budget: Option<Time>,
    /// Pin the profiled side to these CPUs [default: the half that the other side does not get]
    #[arg(long, value_name = "LIST", requires = "axis")]
    pub server_cpus: Option<String>,
    /// Pin the other side to these CPUs [default: half of them]
    #[arg(long, value_name = "LIST", requires = "axis")]
    pub cpus: Option<String>,
    /// Keep the run in this directory, which must not hold one [default: runs/TIME-NAME]
    #[arg(long, value_name = "DIR", requires = "axis")]
    pub out: Option<PathBuf>,
    /// No progress
    #[arg(long, short = 'q', requires = "axis")]
    pub quiet: bool,
    /// Web server to start, profile and stop: everything after --
    #[arg(last = true, value_name = "SERVER", requires = "axis")]
    pub command: Vec<String>,
}
