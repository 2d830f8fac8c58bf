use super::MetricsOptions;
use super::watching::WatchWord;
use super::words::words;
use crate::quantity::{Count, Seconds, Share, Time};
use clap::Args;
use std::path::PathBuf;

/// Port of the server, e.g. :8080
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Port of the server, as :8080
    #[arg(value_name = "PORT")]
    pub port: String,
    /// Serve another straingauge on standard input and output
    ///
    /// Watches for --watch-with of the other straingauge.
    #[arg(long, help_heading = "Other machines")]
    pub worker: bool,
    /// Level of detail [default: {detail}]
    #[arg(
        long, help_heading = "How closely",
        value_parser = words(&[WatchWord::Zero, WatchWord::Counts, WatchWord::Budgeted, WatchWord::Exact])
    )]
    pub detail: Option<WatchWord>,
    /// Share of the server's CPU time that watching may cost [default: {overhead}]
    ///
    /// On average.
    #[arg(long, value_name = "SHARE", help_heading = "How closely")]
    pub overhead: Option<Share>,
    /// Time between readings [default: {interval}]
    #[arg(long, value_name = "TIME", help_heading = "Readings")]
    pub interval: Option<Seconds>,
    /// Measure for this long [default: until Ctrl-C]
    ///
    /// A bare number is seconds.
    #[arg(long, short = 'd', value_name = "TIME", help_heading = "Readings")]
    pub duration: Option<Seconds>,
    /// Upper bounds of the size classes, in bytes of response [default: {response_classes}]
    #[arg(long, value_name = "SIZES", help_heading = "How closely")]
    pub response_classes: Option<String>,
    /// The server's first process
    ///
    /// For a server whose port another process opened.
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pub pid: Option<u32>,
    /// Control group of the server: a unit, a container's id, or a folder
    ///
    /// In cgroup v2, e.g. nginx, nginx.service, 4f1e2d3c4b5a or /sys/fs/cgroup/system.slice/nginx.service. The port
    /// is in the network namespace of the group's first process.
    #[arg(long, value_name = "NAME", conflicts_with = "pid", help_heading = "Server")]
    pub cgroup: Option<PathBuf>,
    /// Time between readings of the machine's counters [default: {system_interval}]
    ///
    /// For all kinds, or by kind, e.g. 5s,disk=30s: cpu, interrupts, disk, paging, memory, server (disk bytes of the
    /// server's processes, its control group).
    #[arg(long, value_name = "TIMES", help_heading = "Readings")]
    pub system_interval: Option<String>,
    /// Search for the server in the network namespace of this process [default: this one]
    #[arg(long, value_name = "PID", help_heading = "Server")]
    pub netns_of: Option<u32>,
    /// Do not hook system calls that open files
    ///
    /// With the hooks, the parse phase ends when a request opens its file. Without them, it ends at the first send.
    #[arg(long, help_heading = "How closely")]
    pub no_file_hooks: bool,
    /// Size the tables for this many connections
    ///
    /// By default, for the connections at the start and for at least 4,096.
    #[arg(long, value_name = "COUNT", help_heading = "How closely")]
    pub table_size: Option<Count>,
    /// Also account for the time of the server's threads
    ///
    /// Their time is divided into running, ready, idle, and blocked by call and object. The account covers a part of
    /// each interval and may use half of --overhead.
    #[arg(long, help_heading = "How closely")]
    pub account: bool,
    /// Do not inspect request bytes
    ///
    /// By default, the first KiB of a few reads per second is inspected to detect the protocol.
    #[arg(long, help_heading = "How closely")]
    pub no_protocol_detection: bool,
    /// Also time functions of the server: nginx, apache, or a file
    ///
    /// Each is timed in short windows, as a phase of requests. The server needs symbols.
    #[arg(long, value_name = "PACK", help_heading = "How closely")]
    pub pack: Option<String>,
    /// Pin the server to these CPUs
    #[arg(long, value_name = "LIST", requires = "worker", hide = true, help_heading = "Server")]
    pub server_cpus: Option<String>,
    /// Fail if the server gets no control group
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
    /// Print JSON: one reading per line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Keep all privileges after the programs are attached
    #[arg(long, help_heading = "How closely")]
    pub keep_privileges: bool,
}
