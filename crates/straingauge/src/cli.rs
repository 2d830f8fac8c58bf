//! The command line as typed. What it means is decided in [`crate::plan`]; nothing here opens, resolves or measures.

use crate::quantity::{Count, Rate, Share, Time};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;

/// Finds the load at which a network server yields, and says why.
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but a --fail-if limit was crossed; 130 interrupted, partial
/// results kept.
#[derive(Debug, Parser)]
#[command(name = "straingauge", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sweep the load, find the elastic, plastic and failure zones, explain them, write a report
    Find(Box<FindArgs>),
    /// Put one load on a server and print what came of it
    Load(Box<LoadArgs>),
    /// Say where a server's CPU time goes: by layer of the network stack, per packet and per request
    Profile(ProfileArgs),
    /// Monitor a running server: requests, connections, phases, service demands
    Watch(Box<WatchArgs>),
    /// Draw the report of a run directory again
    Report(ReportArgs),
    /// Make the documents that a server needs to answer a size mix or a log
    Files(FilesArgs),
    /// Run an unmodified select or poll server with scalable select
    Scale(ScaleArgs),
    /// Say what this machine can and cannot measure, and how to change that
    Doctor(DoctorArgs),
}

/// `straingauge load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Where to send requests: http://HOST:PORT/PATH
    pub url: Option<String>,
    #[command(flatten)]
    pub scenario: ScenarioFile,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub server: ServerOptions,
    #[command(flatten)]
    pub output: OutputOptions,
    /// Exit with code 3 when this holds, as in 'p99 > 50ms', 'errors > 0.1%' or 'throughput < 10k' (repeatable)
    #[arg(long = "fail-if", value_name = "LIMIT")]
    pub fail_if: Vec<String>,
    /// Server to start, watch and stop: everything after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}

/// `straingauge find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// Where to send requests: http://HOST:PORT/PATH
    pub url: Option<String>,
    #[command(flatten)]
    pub scenario: ScenarioFile,
    #[command(flatten)]
    pub find: FindOptions,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub server: ServerOptions,
    #[command(flatten)]
    pub output: OutputOptions,
    /// Exit with code 3 when this holds, as in 'failure_rate < 50k', 'yield_connections < 4' or 'peak < 60k' (repeatable)
    #[arg(long = "fail-if", value_name = "LIMIT")]
    pub fail_if: Vec<String>,
    /// Server to start, watch and stop: everything after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}

/// A file with the same options.
#[derive(Debug, Args)]
pub struct ScenarioFile {
    /// Read options from a TOML file (sections load, find, server; keys are the long options); the command line wins
    #[arg(long = "scenario", value_name = "FILE")]
    pub path: Option<PathBuf>,
}

/// Options of the engine.
#[derive(Debug, Default, Clone, Args, Deserialize)]
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
    /// Visit the paths or URLs of this file in turn, one a line
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

/// Options of the sweeps.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Sweeps and zones")]
pub struct FindOptions {
    /// Which sweeps: closed loop over connections, open loop over rate, or both [default: both]
    #[arg(long, value_enum)]
    pub sweep: Option<SweepWord>,
    /// Fewest connections of the closed loop [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub min_connections: Option<Count>,
    /// Most connections of the closed loop [default: 4096]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_connections: Option<Count>,
    /// Most connections of the open loop [default: 1024]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub open_connections: Option<Count>,
    /// Time for the whole search; refinement stops when it is spent [default: 90s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub budget: Option<Time>,
    /// Repeats of every point, at least 3 for an interval [default: 5, as far as the budget goes]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Failure: response time beyond this at the 99th percentile [default: 100ms]
    #[arg(long, value_name = "TIME")]
    pub p99_limit: Option<Time>,
    /// Failure: more failed requests than this [default: 0.1%]
    #[arg(long, value_name = "SHARE")]
    pub error_limit: Option<Share>,
    /// Failure: less than this of the offered rate completed [default: 98%]
    #[arg(long, value_name = "SHARE")]
    pub goodput_limit: Option<Share>,
    /// Elastic: doubling the connections raises throughput by at least this [default: 20%]
    #[arg(long, value_name = "SHARE")]
    pub elastic_gain: Option<Share>,
    /// Saturated: a server CPU this busy [default: 95%]
    #[arg(long, value_name = "SHARE")]
    pub saturation: Option<Share>,
    /// Efficiency lost: CPU per request this much above its lowest [default: 15%]
    #[arg(long, value_name = "SHARE")]
    pub efficiency_loss: Option<Share>,
    /// Width to which the failure rate is bracketed [default: 5%]
    #[arg(long, value_name = "SHARE")]
    pub bracket: Option<Share>,
}

/// Options of the server that is started after `--`.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Server under test (with -- SERVER ...)")]
pub struct ServerOptions {
    /// Give client and server network namespaces of their own, joined by veth [default: auto]
    #[arg(long, value_enum)]
    pub isolate: Option<IsolateWord>,
    /// Pin the server to these CPUs [default: the half that the client does not get]
    #[arg(long, value_name = "LIST")]
    pub server_cpus: Option<String>,
    /// Wait this long for the server to accept connections [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub server_timeout: Option<Time>,
}

/// Options of what is printed and kept.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Keep the run in this directory, which must not hold one [default: find: runs/TIME-NAME; load: not kept]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Name of the run, part of its directory's name [default: from the URL]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Measure answers that are not 2xx too (redirects, errors), instead of refusing to start
    #[arg(long)]
    pub any_status: bool,
}

/// `straingauge watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Port of the server, as :8080
    #[arg(value_name = "PORT")]
    pub port: String,
    /// How closely [default: default]
    #[arg(long, value_enum)]
    pub mode: Option<WatchModeWord>,
    /// Share of the server's CPU time that watching may cost on average [default: 1%]
    #[arg(long, value_name = "SHARE")]
    pub overhead: Option<Share>,
    /// Time between readings [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<Time>,
    /// End after this long [default: at Ctrl-C]
    #[arg(long, short = 'd', value_name = "TIME")]
    pub duration: Option<Time>,
    /// Boundaries of the size classes by bytes of response, as 10KiB,50KiB,640KiB (the default)
    #[arg(long, value_name = "SIZES")]
    pub classes: Option<String>,
    /// The server's first process, if it is not the one that listens
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Watch in the network namespace of this process [default: in this one]
    #[arg(long, value_name = "PID")]
    pub netns_of: Option<u32>,
    /// Let the parse phase end at the first send only: some windows hook system calls, to end it where files are opened
    #[arg(long)]
    pub no_splits: bool,
    /// Serve metrics for Prometheus on this address, as 127.0.0.1:9100
    #[arg(long, value_name = "ADDRESS")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Keep the readings in this run directory, which must not hold one
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print each reading as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Keep all privileges after the programs are attached
    #[arg(long)]
    pub keep_privileges: bool,
}

/// `straingauge report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory
    pub run: PathBuf,
    /// Where to write the page [default: report.html in the run directory]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the findings as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

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

/// `straingauge files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Size mix: webstone, surge, or fitted (to the log of --trace)
    #[arg(long, value_name = "NAME")]
    pub mix: Option<String>,
    /// Access log whose documents to make, plain or gzip
    #[arg(long, value_name = "LOG")]
    pub trace: Option<PathBuf>,
    /// auto, common, combined, nginx, vhost, w3c, or the server's own format string
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub trace_format: String,
    /// Directory to make them in: absent, empty, or an earlier run of the same command
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Refuse to make more bytes than this
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = record::units::parse_bytes)]
    pub limit: u64,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// `straingauge scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Let the library print what it did when the server exits: calls, set sizes, descriptors examined, hints, lost hints
    #[arg(long)]
    pub stats: bool,
    /// Only say whether the server can be helped
    #[arg(long, conflicts_with = "compare")]
    pub check: bool,
    /// Put the same load on the server without and with the library, in turn, and print both
    #[arg(long, value_name = "URL", conflicts_with = "stats")]
    pub compare: Option<String>,
    /// Hot connections of --compare
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Cold connections of --compare: established and idle
    #[arg(long, value_name = "N", default_value_t = 750, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub cold: u32,
    /// Length of each run of --compare, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=600_000))]
    pub duration_ms: u32,
    /// Runs of --compare with each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// The library [default: beside this program, installed, or in the build tree]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Server to run, and its arguments: everything after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}

/// `straingauge doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
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

/// The words for arrival processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalWord {
    /// Equal gaps
    Constant,
    /// Exponential gaps, as of many independent users
    Poisson,
}

/// The words for sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepWord {
    /// Closed loop, then open loop
    Both,
    /// Closed loop over connections
    Connections,
    /// Open loop over rate
    Rate,
}

/// Whether the server gets a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolateWord {
    /// Where permitted
    Auto,
    /// Or fail
    Always,
    /// Share the machine's network
    Never,
}

/// The scenario file: the same options, by section.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScenarioToml {
    /// Where to send requests.
    pub url: Option<String>,
    /// Name of the run.
    pub name: Option<String>,
    /// Options of the engine.
    pub load: LoadOptions,
    /// Options of the sweeps.
    pub find: FindOptions,
    /// The server to start.
    pub server: ServerToml,
}

/// `[server]` of the scenario file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerToml {
    /// Program and arguments.
    pub command: Vec<String>,
    /// As `--isolate`.
    pub isolate: Option<IsolateWord>,
    /// As `--server-cpus`.
    pub server_cpus: Option<String>,
    /// As `--server-timeout`.
    pub server_timeout: Option<Time>,
}

macro_rules! overlay {
    ($typed:ident, $file:ident; $($field:ident),+) => { $($typed.$field = $typed.$field.take().or($file.$field);)+ };
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

impl FindOptions {
    /// What was typed, with the gaps filled from a scenario file.
    pub fn over(mut self, file: FindOptions) -> Self {
        let typed = &mut self;
        overlay!(typed, file; sweep, min_connections, max_connections, open_connections, budget, repeats, p99_limit,
            error_limit, goodput_limit, elastic_gain, saturation, efficiency_loss, bracket);
        self
    }
}

impl ServerOptions {
    /// What was typed, with the gaps filled from a scenario file.
    pub fn over(mut self, file: &ServerToml) -> Self {
        self.isolate = self.isolate.or(file.isolate);
        self.server_cpus = self.server_cpus.take().or_else(|| file.server_cpus.clone());
        self.server_timeout = self.server_timeout.or(file.server_timeout);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_typed_option_wins_over_the_file() {
        let file: ScenarioToml = toml::from_str(
            "url = 'http://127.0.0.1/'\n[load]\nconnections = 7\nrate = '1k'\n[server]\ncommand = ['nginx']\n",
        )
        .unwrap();
        let typed = LoadOptions { connections: Some(Count(9)), ..Default::default() };
        let merged = typed.over(file.load);
        assert_eq!(merged.connections, Some(Count(9)));
        assert_eq!(merged.rate, Some(Rate(1000.0)));
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let error = toml::from_str::<ScenarioToml>("[load]\nconections = 7\n").unwrap_err().to_string();
        assert!(error.contains("conections"), "{error}");
    }
}
