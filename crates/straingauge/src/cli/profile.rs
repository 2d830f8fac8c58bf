use super::axis::AxisWord;
use super::export::{self, Export};
use super::words::words;
use crate::quantity::{Count, Rate, Seconds, Time};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How CPU time is attributed to layers, as typed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    #[default]
    /// Sample the stacks of every CPU by a timer
    Sampled,
    /// Hook the functions between layers, and account for all time in ten bursts
    Exact,
}

/// Options that apply only when a server is measured.
const OF_A_MEASUREMENT: [&str; 6] = ["port", "export", "duration", "frequency", "netns_of", "group"];

/// `straingauge profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// Port of the server, e.g. :8080; with --axis and -- SERVER its URL
    pub port: Option<String>,
    /// Measure for this long [default: {profile_duration}; exact: {exact_duration}; a point of --axis: {profile_point}]
    #[arg(long, short = 'd', value_name = "TIME", allow_hyphen_values = true, help_heading = "Measurement")]
    pub duration: Option<Seconds>,
    /// How to measure: sampled, or exact with hooks [default: {accounting}]
    ///
    /// Hooks slow the server down.
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "diff", help_heading = "Measurement")]
    pub accounting: Option<Method>,
    /// Samples per second on each CPU [default: {frequency}]
    ///
    /// Usual: 199 to 997.
    #[arg(long, short = 'F', value_name = "N", allow_hyphen_values = true, help_heading = "Measurement")]
    pub frequency: Option<Count>,
    /// Search for the server in the network namespace of this process [default: this one]
    #[arg(long, value_name = "PID", help_heading = "Measurement")]
    pub netns_of: Option<u32>,
    /// Add up these functions as a group, e.g. 'acks=tcp_ack*,tcp_send_ack'
    ///
    /// For functions of the server: 'parse=user:ngx_http_parse_*'. Repeatable.
    #[arg(long, value_name = "NAME=PATTERN", help_heading = "Output")]
    pub group: Vec<String>,
    /// Write the profile for another program, e.g. pprof=nginx.pb.gz
    ///
    /// Formats: pprof, firefox (Firefox Profiler), speedscope, folded (one stack per line, for flame graph viewers),
    /// folded-layers (with the layer after the program), or folded-waits (all of the threads' time in microseconds:
    /// running, ready, blocked by place). Repeatable.
    #[arg(long, value_name = "FORMAT=FILE", value_parser = export::parser(), help_heading = "Output")]
    pub export: Vec<Export>,
    /// Draw a flame graph, coloured by layer
    ///
    /// With --against or --diff, coloured by growth.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    pub flame: Option<PathBuf>,
    /// Show what grew since an earlier profile
    ///
    /// FILE: made with --export folded=FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "diff", help_heading = "Comparison")]
    pub against: Option<PathBuf>,
    /// Compare two files of --export folded=FILE, without measuring
    #[arg(
        long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = OF_A_MEASUREMENT,
        help_heading = "Comparison"
    )]
    pub diff: Option<Vec<PathBuf>>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    pub sweep: SweepArgs,
}

/// Options of a sweep.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sweep (needs root)")]
#[group(requires = "axis")]
pub struct SweepArgs {
    /// Vary one quantity, and profile one value after another
    ///
    /// Needs the server's URL and -- SERVER; straingauge starts the server.
    #[arg(
        long, value_name = "AXIS", value_parser = words(&[AxisWord::Connections, AxisWord::Rate, AxisWord::Delay]),
        conflicts_with_all = ["diff", "export", "flame", "against", "group", "netns_of"]
    )]
    pub axis: Option<AxisWord>,
    /// Values along the axis, e.g. 4,32,128
    ///
    /// [default: connections: {profile_connections}; rate: shares of the capacity; delay: {profile_delays}]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// Number of connections, with another axis [default: {profile_held_connections}]
    #[arg(long, short = 'c', value_name = "N", allow_hyphen_values = true)]
    pub connections: Option<Count>,
    /// Requests per second (open loop), with another axis [default: closed loop]
    #[arg(long, short = 'r', value_name = "RATE", allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// One-way delay of an emulated path, with another axis [default: none]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Option<Time>,
    /// Repeats of every point [default: {repeats}]
    ///
    /// In a random order; at least 3 for an interval.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Time for the whole run [default: {profile_budget}]
    ///
    /// A repeat that does not fit is not started.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub budget: Option<Seconds>,
    /// Pin the server to these CPUs [default: those that the client does not get]
    #[arg(long, value_name = "LIST")]
    pub server_cpus: Option<String>,
    /// Pin the client to these CPUs [default: half of them]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Keep the run in this directory [default: {out}]
    ///
    /// The directory must not contain a run.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Server to start, profile and stop, after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}
