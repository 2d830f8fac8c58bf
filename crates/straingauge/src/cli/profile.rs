//! `straingauge profile`.

use crate::quantity::{Count, Time};
use clap::Args;
use std::path::PathBuf;

/// `straingauge profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The server's port: :8080
    pub port: Option<String>,
    /// Length of the window [default: 10s]
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Option<Time>,
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
