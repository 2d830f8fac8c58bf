//! `straingauge watch`.

use super::MetricsOptions;
use super::watching::{OF_A_WATCH, WatchWord};
use crate::quantity::{Count, Share, Time};
use clap::Args;
use std::path::PathBuf;

/// `straingauge watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Port of the server, as :8080
    #[arg(value_name = "PORT")]
    pub port: String,
    /// Serve another straingauge on standard input and output
    ///
    /// Watches when --watch-with of the other asks.
    #[arg(long, help_heading = "Other machines")]
    pub worker: bool,
    /// How closely to watch [default: {detail}]
    #[arg(long, value_parser = OF_A_WATCH, help_heading = "How closely")]
    pub detail: Option<WatchWord>,
    /// Share of the server's CPU time that watching may cost [default: {overhead}]
    ///
    /// On average.
    #[arg(long, value_name = "SHARE", help_heading = "How closely")]
    pub overhead: Option<Share>,
    /// Time between readings [default: {interval}]
    #[arg(long, value_name = "TIME", help_heading = "Readings", value_parser = crate::quantity::seconds)]
    pub interval: Option<Time>,
    /// Measure for this long [default: until Ctrl-C]
    ///
    /// A bare number is seconds.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = crate::quantity::seconds, help_heading = "Readings")]
    pub duration: Option<Time>,
    /// Boundaries of the size classes by bytes of response [default: {response_classes}]
    #[arg(long, value_name = "SIZES", help_heading = "How closely")]
    pub response_classes: Option<String>,
    /// Process of the server, if another one listens
    ///
    /// The server's first process.
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pub pid: Option<u32>,
    /// Control group of the server: a unit, a container's id, or a folder
    ///
    /// Of version 2, as nginx, nginx.service, 4f1e2d3c4b5a or /sys/fs/cgroup/system.slice/nginx.service. The port is
    /// that in the network namespace of its first process.
    #[arg(long, value_name = "NAME", conflicts_with = "pid", help_heading = "Server")]
    pub cgroup: Option<PathBuf>,
    /// Time between readings of the machine's counters [default: {system_interval}]
    ///
    /// For all, or by kind, as 5s,disk=30s: cpu, interrupts, disk, paging, memory, server (disk bytes of the server's
    /// processes, its control group).
    #[arg(long, value_name = "TIMES", help_heading = "Readings")]
    pub system_interval: Option<String>,
    /// Find the server in the network namespace of this process [default: this one]
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pub netns_of: Option<u32>,
    /// Do not hook system calls that open files
    ///
    /// The hooks end the parse phase where a request opens its file. Without them it ends at the first send.
    #[arg(long, help_heading = "How closely")]
    pub no_file_hooks: bool,
    /// Size the tables for this many connections
    ///
    /// [default: those at the start, and some thousands]
    #[arg(long, value_name = "COUNT", help_heading = "How closely")]
    pub table_size: Option<Count>,
    /// Also account for the time of the server's threads
    ///
    /// Running, ready, blocked by which call and object, or idle, in a part of each interval: half of --overhead goes
    /// to it.
    #[arg(long, help_heading = "How closely")]
    pub account: bool,
    /// Do not inspect request bytes
    ///
    /// By default the first KiB of a few reads a second is inspected to detect the protocol.
    #[arg(long, help_heading = "How closely")]
    pub no_protocol_detection: bool,
    /// Also time functions of the server: nginx, apache, or a file
    ///
    /// In short windows, as phases of a request. The server needs symbols.
    #[arg(long, value_name = "PACK", help_heading = "How closely")]
    pub pack: Option<String>,
    /// Pin the server to these CPUs
    #[arg(long, value_name = "LIST", requires = "worker", hide = true, help_heading = "Server")]
    pub server_cpus: Option<String>,
    /// Fail where the server gets no control group
    #[arg(long, requires = "worker", hide = true, help_heading = "Server")]
    pub needs_group: bool,
    /// Wait this long for the server to accept connections [default: {server_timeout}]
    #[arg(long, value_name = "TIME", requires = "worker", hide = true, help_heading = "Server")]
    pub server_timeout: Option<Time>,
    /// With --worker: start this server, watch it, and stop it at the end
    #[arg(last = true, value_name = "SERVER", requires = "worker", conflicts_with_all = ["pid", "netns_of"])]
    pub server: Vec<String>,
    #[command(flatten)]
    pub metrics: MetricsOptions,
    /// Keep the run in this directory: every reading
    ///
    /// The directory must not contain a run.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON: each reading is a line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Keep all privileges after the programs are attached
    #[arg(long, help_heading = "How closely")]
    pub keep_privileges: bool,
}
