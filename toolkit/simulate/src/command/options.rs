//! The command line, as typed.

use anyhow::Result;
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use record::units::{UnitError, parse_bytes, parse_count, parse_duration, parse_rate};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Count instructions and cache misses by layer and packet in a guest with a cache model
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 130 interrupted, finished points are kept.
#[derive(Debug, Parser)]
#[command(
    name = "straingauge-simulate",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub simulate: SimulateArgs,
}

/// The options that `-h` shows.
const SHORT: [&str; 9] = ["server", "axis", "axis_values", "connections", "rate", "delay", "l2", "objects", "out"];

/// Parses the command line of this process.
pub fn parse() -> Result<Cli, clap::Error> {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    Cli::from_arg_matches(&command(words.any(|word| word == "-h")).try_get_matches()?)
}

/// The command line, with the help of `-h` or of `--help`.
fn command(is_short: bool) -> clap::Command {
    let cli = Cli::command();
    if !is_short {
        return cli;
    }
    cli.mut_args(|option| {
        let is_shown = SHORT.contains(&option.get_id().as_str());
        let shown = option.hide(!is_shown).help_heading(None::<&str>);
        let is_word = shown.get_action().takes_values();
        if is_word { shown.hide_possible_values(true) } else { shown }
    })
}

/// Other actions of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Draw the report of a run directory again
    Report(ReportArgs),
    /// Show whether this machine can simulate, and what is missing
    Doctor,
    /// Print the JSON schema of simulation.json, which --json also prints
    Schema,
}

/// `straingauge-simulate report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run directory
    pub run: PathBuf,
    /// Print JSON, not tables
    #[arg(long)]
    pub json: bool,
    /// Write the page to this file [default: report.html in the run directory]
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// `straingauge-simulate`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("served").args(["server", "scenario"]).multiple(true)))]
pub struct SimulateArgs {
    /// Vary one quantity: connections, rate or delay
    ///
    /// Each value is a point. The default is connections, unless --connections is given.
    #[arg(long, value_enum, value_name = "AXIS", help_heading = "Points")]
    pub axis: Option<AxisWord>,
    /// Values along the axis [default for connections: 4,32,128,512]
    #[arg(long, value_name = "LIST", help_heading = "Points", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// Connections, if the axis varies another quantity [default: 128]
    #[arg(long, short = 'c', value_name = "N", value_parser = parse_count, help_heading = "Points")]
    pub connections: Option<u64>,
    /// Requests per second of an open loop [default: closed loop]
    ///
    /// For the microbenchmark: full segments per second over all connections, by default 8333.
    #[arg(long, short = 'r', value_name = "RATE", value_parser = parse_rate, help_heading = "Points")]
    pub rate: Option<f64>,
    /// One-way delay of an emulated path [default: no delay]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Points")]
    pub delay: Option<Duration>,
    /// Number of counted packets [default: 4000]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Points")]
    pub packets: Option<u64>,
    /// Load before the window, in guest time, with a server [default: 300ms]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "served", help_heading = "Points")]
    pub warmup: Option<Duration>,
    /// Length of the window, in guest time, with a server [default: 500ms]
    #[arg(long, short = 'd', value_name = "TIME", value_parser = seconds, requires = "served", help_heading = "Points")]
    pub duration: Option<Duration>,
    /// Number of boots, each with other addresses in memory
    ///
    /// Tables show the mean, and the range where it matters.
    #[arg(long, value_name = "K", value_parser = parse_count, default_value = "1", help_heading = "Points")]
    pub seeds: u64,
    /// Read options from a TOML file
    ///
    /// It has the load, its server, the path's delay, and the machine's details in [simulate].
    #[arg(long, value_name = "FILE", help_heading = "Points")]
    pub scenario: Option<PathBuf>,
    /// Size of L1I and of L1D
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64KiB", help_heading = "Caches")]
    pub l1: u64,
    /// Sizes of L2, up to eight
    ///
    /// All are simulated in one pass.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_parser = parse_bytes,
        value_delimiter = ',',
        default_value = "256KiB,512KiB,1MiB",
        help_heading = "Caches"
    )]
    pub l2: Vec<u64>,
    /// Size of an L3 after the first L2 [default: none]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Caches")]
    pub l3: Option<u64>,
    /// Let L2 load the next line when it misses
    #[arg(long, help_heading = "Caches")]
    pub next_line_prefetch: bool,
    /// Count only instructions, which is several times faster
    #[arg(
        long,
        conflicts_with_all = ["l1", "l2", "l3", "curve", "next_line_prefetch", "objects", "repack", "cost"],
        help_heading = "Caches"
    )]
    pub no_caches: bool,
    /// Also report the misses of an L2 of any size up to a million lines
    ///
    /// They are computed from reuse distances, for a fully associative L2.
    #[arg(long, help_heading = "Results")]
    pub curve: bool,
    /// Also count by kernel object, its lines and fields
    ///
    /// Shows how many misses the prefetching of objects would hide.
    #[arg(long, help_heading = "Results")]
    pub objects: bool,
    /// Run each point again with the fields of these structures in the order of their accesses
    ///
    /// E.g. tcp_sock,file.
    #[arg(long, value_name = "STRUCT,...", value_delimiter = ',', help_heading = "Results")]
    pub repack: Vec<String>,
    /// Also estimate cycles from these costs: of an instruction, of a miss of L1, of a miss of the first L2
    ///
    /// The cost of a miss of L2 comes in addition to that of L1. Costs do not overlap.
    #[arg(long, value_name = "CYCLES,CYCLES,CYCLES", value_delimiter = ',', num_args = 1, help_heading = "Results")]
    pub cost: Vec<f64>,
    /// Number of functions listed by misses
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10", help_heading = "Results")]
    pub functions: u64,
    /// The guest's kernel: vmlinuz-VERSION with its modules, or the directory of an unpacked kernel package
    #[arg(long, value_name = "PATH", help_heading = "Guest")]
    pub kernel: Option<PathBuf>,
    /// The emulator [default: qemu-system-x86_64 of PATH]
    #[arg(long, value_name = "PATH", help_heading = "Guest")]
    pub qemu: Option<PathBuf>,
    /// The guest's memory
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "512MiB", help_heading = "Guest")]
    pub memory: u64,
    /// Time limit on this machine for a boot or a point
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "600s", help_heading = "Guest")]
    pub guest_timeout: Duration,
    /// Port on which the server listens [default: 8080]
    #[arg(long, value_name = "PORT", requires = "served", help_heading = SERVED)]
    pub port: Option<u16>,
    /// Path of the requests [default: /]
    #[arg(long, value_name = "PATH", requires = "served", help_heading = SERVED)]
    pub path: Option<String>,
    /// File or directory that the server needs in the guest, at the same path (repeatable)
    ///
    /// Files in the server's arguments are included.
    #[arg(long, value_name = "PATH", requires = "served", help_heading = SERVED)]
    pub file: Vec<PathBuf>,
    /// Empty directory that the server needs in the guest (repeatable)
    #[arg(long, value_name = "PATH", requires = "served", help_heading = SERVED)]
    pub folder: Vec<String>,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    /// Keep the run in this directory [default: not kept]
    ///
    /// `straingauge report` shows it.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Server of this machine to run in the guest, instead of the microbenchmark
    ///
    /// It must stay in the foreground.
    #[arg(last = true, value_name = "SERVER")]
    pub server: Vec<String>,
}

const SERVED: &str = "Server in the guest (with -- SERVER ...)";

/// Command-line options of section `[load]`; `straingauge load` reads them in the guest.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = SERVED)]
pub struct LoadOptions {
    /// Close a connection after N requests and open another; 1 = no keep-alive [default: never]
    #[arg(long, value_name = "N", requires = "served", value_parser = parse_count)]
    pub requests_per_connection: Option<u64>,
    /// Request the URLs of this file in turn
    #[arg(long, value_name = "FILE", requires = "served")]
    pub urls: Option<String>,
}

/// Options of section `[workload]`, as in `straingauge load`, which reads them in the guest.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Workload")]
pub struct WorkloadOptions {
    /// Request documents of a size mix by their popularity: webstone, surge, or fitted (to the log)
    #[arg(long, value_name = "NAME")]
    pub mix: Option<String>,
    /// Divide results into classes by document size, with these maximum sizes
    #[arg(long, value_name = "SIZES")]
    pub classes: Option<String>,
    /// Share of the requests for --dynamic-urls
    #[arg(long, value_name = "SHARE")]
    pub dynamic_share: Option<String>,
    /// Dynamic paths or URLs, one per line, with an optional weight after each
    #[arg(long, value_name = "FILE")]
    pub dynamic_urls: Option<String>,
    /// Replay an access log, plain or gzip
    #[arg(long, value_name = "LOG")]
    pub trace: Option<String>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT")]
    pub trace_format: Option<String>,
    /// Speed relative to the log or the rate series, or max: as fast as the server answers
    #[arg(long, value_name = "X")]
    pub speed: Option<String>,
    /// Requests of one client share a connection while the gap between them in the log is at most this
    #[arg(long, value_name = "TIME")]
    pub session_gap: Option<String>,
    /// Let the rate follow a measured series: counts per second, one per line, or CSV with times and counts
    #[arg(long, value_name = "FILE")]
    pub rate_series: Option<String>,
}

/// The quantity that varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AxisWord {
    /// Connections
    Connections,
    /// Requests per second of the open loop; for the microbenchmark full segments per second
    Rate,
    /// One-way delay of the path between client and server
    Delay,
}

impl AxisWord {
    /// The value as typed.
    pub fn word(self) -> &'static str {
        match self {
            AxisWord::Connections => "connections",
            AxisWord::Rate => "rate",
            AxisWord::Delay => "delay",
        }
    }
}

/// `[simulate]` of a scenario file: the machine's details.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineToml {
    /// Packets before the count; at least two per connection.
    pub warmup_packets: Option<u64>,
    /// Ways of L1I and of L1D.
    pub l1_ways: Option<u32>,
    /// Ways of L2.
    pub l2_ways: Option<u32>,
    /// Ways of L3.
    pub l3_ways: Option<u32>,
    /// Bytes of a line.
    pub line: Option<u32>,
    /// Which line of a full set is replaced.
    pub replacement: ReplacementWord,
    /// Entries of ITLB and of DTLB, 8-way; 0 for none.
    pub tlb: Option<u64>,
}

/// Which line is replaced.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementWord {
    /// The line that was not used for the longest time
    #[default]
    Lru,
    /// The line to which the bits of a tree point, an approximation that processors use
    Plru,
}

/// A duration, in which a plain number means seconds: `10`, `10s`.
fn seconds(text: &str) -> Result<Duration, UnitError> {
    match text.trim().parse::<f64>() {
        Ok(_) => parse_duration(&format!("{}s", text.trim())),
        Err(_) => parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_short_help_fits_one_screen() {
        let help = command(true).term_width(100).render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        assert!(SHORT.iter().all(|id| Cli::command().get_arguments().any(|option| option.get_id() == id)));
    }

    #[test]
    fn every_command_in_the_documentation_is_accepted() {
        let text = include_str!("../../README.md");
        let typed =
            text.lines().filter_map(|line| line.trim_start_matches("    ").strip_prefix("straingauge simulate "));
        let mut count = 0;
        for line in typed {
            count += 1;
            let words = std::iter::once("straingauge-simulate").chain(line.split_whitespace());
            if let Err(why) = Cli::try_parse_from(words) {
                panic!("{line}\n{why}");
            }
        }
        assert!(count > 8, "only {count} commands were found");
    }
}
