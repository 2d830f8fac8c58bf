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
    /// The server's port: :8080
    pub port: Option<String>,
    /// Length of the window [default: 10s]
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<Time>,
    /// How to measure; hooks cost the server something, so they are asked for [default: sampled]
    #[arg(long, value_enum, value_name = "HOW", conflicts_with_all = ["diff", "kernel_scaling"])]
    pub method: Option<Method>,
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
}
