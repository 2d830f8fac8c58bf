//! The command line as typed, one file a command. What it means is decided in [`crate::plan`]; nothing here opens,
//! resolves or measures.

mod clients;
mod compare;
mod doctor;
mod drive;
mod files;
mod find;
mod fleet;
mod load;
mod path;
mod predict;
mod profile;
mod report;
mod scale;
mod scenario;
mod simulate;
mod wan;
mod watch;
mod watching;
mod workload;

pub use clients::{ClientOptions, CloseWord, SwitchWord};
pub use compare::CompareArgs;
pub use doctor::DoctorArgs;
pub use drive::{DriveArgs, IsolateWord, OutputOptions, ServerOptions};
pub use files::FilesArgs;
pub use find::{AxisWord, FindArgs, FindOptions, ProfileWord, SweepWord};
pub use fleet::{FleetArgs, FleetCommand, FleetOptions, RayOptions, WorkerLossWord};
pub use load::{ArrivalWord, LoadArgs, LoadOptions};
pub use path::{PathOptions, PathWord};
pub use predict::{PredictArgs, RateWord};
pub use profile::ProfileArgs;
#[cfg(feature = "bpf")]
pub use profile::{Method, SweepArgs, SweepAxis};
pub use report::ReportArgs;
pub use scale::ScaleArgs;
pub use scenario::ScenarioToml;
pub use simulate::{ReplacementWord, SimulateArgs};
pub use wan::WanArgs;
#[cfg_attr(not(feature = "bpf"), allow(unused_imports))]
pub use watch::{WatchArgs, WatchModeWord};
pub use watching::{WatchWord, WatchingOptions};
pub use workload::WorkloadOptions;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Finds the load at which a network server yields, and says why.
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but a --fail-if limit was crossed or a comparison
/// showed a regression; 4 done, but a comparison could not tell; 130 interrupted, partial results kept.
#[derive(Debug, Parser)]
#[command(name = "straingauge", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `-h` shows of the largest commands: what most people use, on one screen. `--help` shows all, by group.
const SHORT_HELP: [(&str, &[&str]); 3] = [
    (
        "find",
        &[
            "url",
            "command",
            "axis",
            "max_connections",
            "budget",
            "repeats",
            "compare_with",
            "cold",
            "header",
            "delay",
            "server_cpus",
            "fail_if",
            "out",
            "json",
        ],
    ),
    (
        "load",
        &[
            "url",
            "command",
            "connections",
            "rate",
            "duration",
            "threads",
            "cold",
            "method",
            "header",
            "urls",
            "trace",
            "delay",
            "full",
            "fail_if",
            "out",
            "json",
        ],
    ),
    (
        "watch",
        &["port", "detail", "overhead", "interval", "duration", "pid", "cgroup", "pack", "prometheus", "out", "json"],
    ),
];

/// The command line of this process.
pub fn parse() -> Result<Cli, clap::Error> {
    let words = || std::env::args_os().skip(1).take_while(|word| word != "--");
    let is_short = words().any(|word| word == "-h");
    Cli::from_arg_matches(&command(is_short).try_get_matches()?)
}

/// The commands; those of [`SHORT_HELP`] with these options alone in their help, where it is to be short.
fn command(is_short: bool) -> clap::Command {
    let all = Cli::command();
    if !is_short {
        return all;
    }
    SHORT_HELP.iter().fold(all, |cli, (name, shown)| {
        cli.mut_subcommand(name, |command| {
            let mut place = 0;
            command.mut_args(|argument| {
                place += 1;
                let order = shown.iter().position(|id| argument.get_id() == id);
                let shown =
                    argument.hide(order.is_none()).help_heading(None::<&str>).display_order(order.unwrap_or(place));
                let is_word = shown.get_action().takes_values();
                if is_word { shown.hide_possible_values(true) } else { shown }
            })
        })
    })
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sweep the load, find the elastic, plastic and failure zones, explain them, write a report
    Find(Box<FindArgs>),
    /// Put one load on a server and print what came of it
    Load(Box<LoadArgs>),
    /// Drive find or load from every node of a Ray cluster
    Fleet(Box<FleetArgs>),
    /// Say where a server's CPU time goes: by layer of the network stack, per packet and per request
    Profile(Box<ProfileArgs>),
    /// Monitor a running server: requests, connections, phases, service demands
    Watch(Box<WatchArgs>),
    /// Count instructions and cache misses by layer and packet in a guest with a cache model
    Simulate(Box<SimulateArgs>),
    /// Predict from measured runs what other loads, CPUs or paths would do, with intervals
    Predict(PredictArgs),
    /// Compare two runs load by load, with a statistical test; exit code 3 on a regression, 4 if it could not tell
    Compare(CompareArgs),
    /// Draw the report of a run directory again
    Report(ReportArgs),
    /// Make the documents that a server needs to answer a size mix or a log
    Files(FilesArgs),
    /// Run a program behind an emulated wide-area path: delay, loss, bandwidth
    Wan(WanArgs),
    /// Run an unmodified select or poll server with scalable select
    Scale(ScaleArgs),
    /// Say what this machine can and cannot measure, and how to change that
    Doctor(DoctorArgs),
    /// End a server's processes when the straingauge that started it is killed (started by straingauge itself)
    #[command(hide = true, name = crate::server::guardian::COMMAND)]
    GuardSession {
        /// The session that the server leads.
        session: u32,
    },
    /// Hold a part of the cold connections; started by straingauge itself
    #[command(hide = true)]
    ColdHelper,
    /// Send segments for the microbenchmark of profile --axis; started by straingauge itself
    #[command(hide = true)]
    SegmentSender {
        /// Where connections are taken; orders come to the next port.
        port: u16,
    },
}

/// Fills the gaps of what was typed from what a file says, field by field.
macro_rules! overlay {
    ($typed:ident, $file:ident; $($field:ident),+) => { $($typed.$field = $typed.$field.take().or($file.$field);)+ };
}
use overlay;

#[cfg(test)]
#[path = "../../tests/documented/commands.rs"]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_documentation_is_taken() {
        let commands = documented::all();
        assert!(commands.len() > 50, "only {} commands were found", commands.len());
        for command in commands {
            if let Err(why) = Cli::try_parse_from(documented::words(&command.text)) {
                panic!("{}:{}: {}\n{why}", command.file, command.line, command.text);
            }
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command(false).debug_assert();
        command(true).debug_assert();
    }

    #[test]
    fn the_short_help_of_the_largest_commands_is_one_screen() {
        for (name, shown) in SHORT_HELP {
            let mut all = command(true);
            let one = all.find_subcommand_mut(name).expect("a command");
            for id in shown {
                assert!(one.get_arguments().any(|argument| argument.get_id() == id), "{name} has no {id}");
            }
            let text = one.clone().term_width(80).render_help().to_string();
            assert!(text.lines().count() <= 24, "{name}: {} lines\n{text}", text.lines().count());
        }
    }
}
