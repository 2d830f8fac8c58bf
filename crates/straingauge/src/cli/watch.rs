//! `straingauge watch`.

use crate::quantity::{Count, Share, Time};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `straingauge watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Port of the server, as :8080
    #[arg(value_name = "PORT")]
    pub port: String,
    /// Watch for a straingauge that was given --watch-with: it says when on standard input, and is answered on standard
    /// output
    #[arg(long, conflicts_with_all = ["out", "prometheus", "json", "duration"])]
    pub worker: bool,
    /// How closely [default: default]
    #[arg(long, value_enum)]
    pub detail: Option<WatchModeWord>,
    /// Most it may cost of the server's CPU [default: 1%]
    ///
    /// On average.
    #[arg(long, value_name = "SHARE")]
    pub overhead: Option<Share>,
    /// Time between readings [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<Time>,
    /// End after this long [default: at Ctrl-C]
    ///
    /// A bare number is seconds.
    #[arg(long, short = 'd', value_name = "TIME", value_parser = crate::quantity::seconds)]
    pub duration: Option<Time>,
    /// Boundaries of the size classes by bytes of response, as 10KiB,50KiB,640KiB (the default)
    #[arg(long, value_name = "SIZES")]
    pub response_classes: Option<String>,
    /// Process of the server, if another listens
    ///
    /// Its first one.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// The server is this control group
    ///
    /// Of version 2, as /sys/fs/cgroup/system.slice/nginx.service.
    #[arg(long, value_name = "DIR", conflicts_with = "pid")]
    pub cgroup: Option<PathBuf>,
    /// Time between readings of the machine's counters, for all or by kind, as 5s,disk=30s: cpu, interrupts, disk, paging,
    /// memory, server (disk bytes of the server's processes, its control group) [default: 1s]
    #[arg(long, value_name = "TIMES")]
    pub system_interval: Option<String>,
    /// Watch in the network namespace of this process [default: in this one]
    #[arg(long, value_name = "PID")]
    pub netns_of: Option<u32>,
    /// Let the parse phase end at the first send only: some windows hook system calls, to end it where files are opened
    #[arg(long)]
    pub no_splits: bool,
    /// Make room for this many connections [default: those at the start, and at least 4,096]
    #[arg(long, value_name = "COUNT")]
    pub room: Option<Count>,
    /// Do not look into requests: otherwise the first KiB of a few reads a second is looked at, to say what is spoken
    #[arg(long)]
    pub no_looks: bool,
    /// Time functions, too: nginx, apache or a file
    ///
    /// In short windows, as phases of a request, where the server has symbols.
    #[arg(long, value_name = "PACK")]
    pub pack: Option<String>,
    /// Serve metrics here, as 127.0.0.1:9100
    ///
    /// For Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Keep the readings in this directory
    ///
    /// It must not hold a run.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print each reading as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Keep all privileges after the programs are attached
    #[arg(long)]
    pub keep_privileges: bool,
}

/// How closely to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WatchModeWord {
    /// Connections only: nothing runs per request
    Zero,
    /// Every request counted: bytes, CPU and elapsed time by class
    Counts,
    /// The same, and phases in windows, within the budget
    Default,
    /// Phases of every request
    Exact,
}
