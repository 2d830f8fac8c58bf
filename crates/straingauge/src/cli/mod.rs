//! The command line as typed, one file per command. [`crate::plan`] interprets it.

mod axis;
mod clients;
mod compare;
mod doctor;
mod drive;
pub mod export;
mod files;
mod find;
pub mod fleet;
mod generate;
mod help;
mod load;
mod metrics;
mod path;
mod predict;
mod profile;
mod protocol;
mod reference;
mod report;
mod runs;
mod scenario;
mod summary;
mod wan;
mod watch;
mod watching;
mod words;
mod workload;

pub use axis::AxisWord;
pub use clients::{ClientOptions, TlsWord};
pub use compare::CompareArgs;
pub use doctor::DoctorArgs;
pub use drive::ServerOptions;
pub use drive::{DriveArgs, IfPermitted, OutputOptions};
pub use export::Export;
pub use files::FilesArgs;
pub use find::{FindArgs, FindOptions, SweepWord};
pub use fleet::{FleetArgs, FleetCommand, FleetOptions, RayOptions};
pub use help::HELP;
pub use load::{ArrivalWord, LoadArgs, LoadOptions};
pub use metrics::{MetricsOptions, MetricsPlace};
pub use path::{PathOptions, PathWord};
pub use predict::PredictArgs;
pub use profile::{Method, ProfileArgs};
pub use protocol::{KeyOptions, ProtocolOptions};
pub use report::ReportArgs;
pub use runs::RunsArgs;
pub use scenario::{Options, check_ranges};
pub use summary::SummaryOptions;
pub use wan::WanArgs;
pub use watch::WatchArgs;
pub use watching::{WatchWord, WatchingOptions};
pub use workload::WorkloadOptions;

use crate::failure::wrong_usage;
use crate::{defaults, tools};
use clap::builder::StyledStr;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::sync::LazyLock;

/// Finds the load at which a network server yields, and explains why.
///
/// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 done, but a --fail-if limit was crossed or a comparison showed a
/// regression; 4 done, but a comparison could not tell; 130 interrupted, partial results kept.
#[derive(Debug, Parser)]
#[command(name = "straingauge", version = VERSION.as_str(), arg_required_else_help = true, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// The command; none with --generate.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the manual page, shell completions, a reference table or a JSON schema
    ///
    /// WHAT is `man` (the manual page, for `man -l -`); `complete-bash`, `complete-zsh` or `complete-fish`;
    /// `reference-options`, `reference-figures`, `reference-doubts` or `reference-rules` (Markdown);
    /// or `schema NAME`, the JSON schema of a file or an output. `schema` without NAME lists the names.
    #[arg(long, num_args = 1..=2, value_names = ["WHAT", "NAME"])]
    pub generate: Option<Vec<String>>,
}

/// The version, how it was linked, and what its BPF programs need.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "needs glibc, libelf and zlib" };
    format!(
        "{}\nmachine: {} Linux, {linked}\nBPF programs (watch, profile, layers): run on Linux 5.15 or later with BTF",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
});

/// Parses the command line of this process.
pub fn parse() -> Result<Cli, clap::Error> {
    let words = || std::env::args_os().skip(1).take_while(|word| word != "--");
    let is_short = words().any(|word| word == "-h");
    let mut cli = command(is_short);
    if words().next().is_none_or(|word| ["-h", "--help", "help"].iter().any(|help| word == *help)) {
        cli = cli.after_help(tools_listed());
    }
    let matches = cli.try_get_matches().or_else(|error| match (words().next(), words().nth(1)) {
        (Some(help), Some(name)) if help == "help" && is_tool(&name) => {
            command(is_short).try_get_matches_from([OsStr::new("straingauge"), &name, OsStr::new("--help")])
        }
        _ => Err(error),
    })?;
    let parsed = Cli::from_arg_matches(&matches)?;
    match &parsed.command {
        Some(Command::Tool(words)) if !is_tool(&words[0]) => Err(unknown(&words[0])),
        _ => Ok(parsed),
    }
}

fn is_tool(word: &OsStr) -> bool {
    word.to_str().and_then(tools::find).is_some()
}

fn tools_listed() -> String {
    // A tool with that name is run instead.
    let cli = Cli::command();
    let names = tools::names().into_iter().filter(|name| cli.find_subcommand(name).is_none());
    let names: Vec<String> = names.map(|name| format!("  {name}")).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("Tools (straingauge NAME runs {}NAME):\n{}", tools::PREFIX, names.join("\n"))
    }
}

/// The error for an unknown first word, with the most similar commands.
fn unknown(word: &OsStr) -> clap::Error {
    // The full command line would accept any word as a tool's name.
    let cli = clap::Command::new("straingauge").subcommands(Cli::command().get_subcommands().cloned());
    cli.try_get_matches_from([OsStr::new("straingauge"), word]).expect_err("unknown command")
}

/// The values that help texts name in braces, by command if the commands differ.
fn default_words(command: &str) -> Vec<(String, String)> {
    fn word<T: ValueEnum + Default>() -> String {
        T::default().to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }
    let mut words = vec![
        ("sweep".to_string(), word::<SweepWord>()),
        ("profile".into(), word::<IfPermitted>()),
        ("isolate".into(), word::<IfPermitted>()),
        ("arrival".into(), word::<ArrivalWord>()),
        ("detail".into(), word::<WatchWord>()),
        ("accounting".into(), word::<Method>()),
    ];
    if command == "find" {
        words.push(("duration".into(), defaults::typed(&defaults::POINT_DURATION)));
        words.push(("warmup".into(), "a fifth of the window".into()));
    }
    words.push(("out".into(), if command == "load" { "not kept" } else { "runs/TIME-NAME" }.into()));
    words.extend(defaults::options());
    words
}

/// The options that `--worker` reads; the driver decides the rest.
const READ_BY_WORKERS: [(&str, &[&str]); 2] = [
    ("load", &["worker", "cpus", "threads", "source_address", "source_interface"]),
    ("watch", &["worker", "port", "pid", "netns_of", "server", "server_cpus", "server_timeout", "needs_group"]),
];

/// Refuses other options with `--worker`.
fn with_workers(cli: clap::Command) -> clap::Command {
    READ_BY_WORKERS.iter().fold(cli, |cli, (name, read)| {
        cli.mut_subcommand(name, |command| {
            command.mut_args(|argument| {
                if read.contains(&argument.get_id().as_str()) { argument } else { argument.conflicts_with("worker") }
            })
        })
    })
}

fn with_defaults(mut command: clap::Command) -> clap::Command {
    let words = default_words(command.get_name());
    let filled = |text: Option<&StyledStr>| {
        text.map(|text| {
            let mut text = text.to_string();
            if !text.contains('{') {
                return text;
            }
            // A command's own value precedes the general one.
            for (name, value) in &words {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            text
        })
    };
    let is_find = command.get_name() == "find";
    command = command.mut_args(|argument| {
        let (mut help, mut long) = (filled(argument.get_help()), filled(argument.get_long_help()));
        if is_find && ["connections", "rate"].iter().any(|id| argument.get_id() == id) {
            help = help.map(|help| format!("{help}; with --axis only"));
            long = long.map(|long| format!("{long}\n\nWith --axis only."));
        }
        let argument = match help {
            Some(help) => argument.help(help),
            None => argument,
        };
        match long {
            Some(long) => argument.long_help(long),
            None => argument,
        }
    });
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_string()).collect();
    // Only the command whose help is requested.
    names.iter().fold(command, |command, name| command.mut_subcommand(name, |one| one.defer(with_defaults)))
}

/// What `--generate` prints, except for schemas.
pub fn generated(name: &str) -> anyhow::Result<String> {
    let names = || generate::NAMES.join(", ");
    generate::text(name, command(false))
        .ok_or_else(|| wrong_usage(format!("--generate has no '{name}', but {} and schema", names())))
}

/// The command line, with the help of `-h` or of `--help`.
pub fn command(is_short: bool) -> clap::Command {
    help::with_help(with_defaults(with_workers(Cli::command())), is_short)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find the load that a server sustains and what limits it, and write a report
    Find(Box<FindArgs>),
    /// Send one load to a server and print throughput, response times and doubts
    Load(Box<LoadArgs>),
    /// Run find or load from every node of a Ray cluster
    Fleet(Box<FleetArgs>),
    /// Show a server's CPU time by network layer, per packet and per request
    Profile(Box<ProfileArgs>),
    /// Monitor a running server: requests, connections, phases, service demands, headroom
    Watch(Box<WatchArgs>),
    /// Predict throughput and response times for other loads, CPUs or paths from measured runs
    Predict(PredictArgs),
    /// Compare two runs with a statistical test (exit code 3: regression, 4: could not tell)
    Compare(CompareArgs),
    /// Print or export the report of a run directory
    Report(ReportArgs),
    /// List the runs in a folder, with trends and regressions
    Runs(RunsArgs),
    /// Write the documents that a server needs for a size mix or a log
    Files(FilesArgs),
    /// Run a program over an emulated wide-area path: delay, loss, bandwidth
    Wan(WanArgs),
    /// Show what this machine can measure, and how to enable the rest
    Doctor(DoctorArgs),
    /// The name and arguments of an installed tool ([`crate::tools`]).
    #[command(external_subcommand)]
    Tool(Vec<OsString>),
    /// Set the usual share of live traffic when straingauge is killed (started by straingauge itself)
    #[command(hide = true, name = crate::shift::COMMAND)]
    RestoreShare {
        /// The command that sets a share.
        command: String,
        /// The usual share.
        usual: f64,
    },
    /// End a server's processes when the straingauge that started it is killed (started by straingauge itself)
    #[command(hide = true, name = crate::server::guardian::COMMAND)]
    GuardSession {
        /// The server's session.
        session: u32,
        /// Environment mark of processes that left the session.
        mark: String,
    },
}

/// Merges typed options with those of a scenario file. Typed options take precedence.
pub trait Overlay {
    /// Returns the options in effect.
    fn over(self, file: Self) -> Self;
}

impl<T> Overlay for Option<T> {
    fn over(self, file: Self) -> Self {
        self.or(file)
    }
}

impl<T> Overlay for Vec<T> {
    fn over(self, file: Self) -> Self {
        if self.is_empty() { file } else { self }
    }
}

impl Overlay for bool {
    fn over(self, file: Self) -> Self {
        self | file
    }
}

/// Implements [`Overlay`] for a section; the compiler finds omitted fields.
macro_rules! overlay {
    ($section:ty; $($field:ident),+) => {
        impl super::Overlay for $section {
            fn over(self, file: Self) -> Self {
                Self { $($field: super::Overlay::over(self.$field, file.$field),)+ }
            }
        }
    };
}
use overlay;
