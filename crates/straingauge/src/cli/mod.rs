//! The command line as typed, one file per command. [`crate::plan`] interprets it.

mod axis;
mod clients;
mod compare;
mod doctor;
mod drive;
mod export;
mod files;
mod find;
mod fleet;
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
fn command(is_short: bool) -> clap::Command {
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

#[cfg(test)]
#[path = "../../tests/documented/commands.rs"]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;

    /// The tools of toolkit/ that the documentation mentions.
    const TOOLS: [&str; 4] = ["microbenchmark", "scale", "simulate", "stingy-check"];

    #[test]
    fn every_command_in_the_documentation_is_accepted() {
        let commands = documented::all();
        assert!(commands.len() > 50, "only {} commands were found", commands.len());
        for command in commands {
            match Cli::try_parse_from(documented::shell_words(&command.text)) {
                Ok(Cli { command: Some(Command::Tool(words)), .. }) if !TOOLS.iter().any(|name| words[0] == *name) => {
                    panic!("{}:{}: {}: neither a command nor a tool", command.file, command.line, command.text);
                }
                Ok(_) => {}
                Err(why) => panic!("{}:{}: {}\n{why}", command.file, command.line, command.text),
            }
        }
        for example in help::HELP.iter().flat_map(|help| help.examples.lines()) {
            if let Err(why) = Cli::try_parse_from(documented::shell_words(example)) {
                panic!("{example}\n{why}");
            }
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command(false).debug_assert();
        command(true).debug_assert();
    }

    #[test]
    fn a_worker_gets_only_the_options_that_it_reads() {
        let cli = command(false);
        let refused = |words: &str| cli.clone().try_get_matches_from(words.split(' ')).err().map(|why| why.kind());
        for words in [
            "straingauge load --worker --source-interface eth0 --source-address 127.0.0.1",
            "straingauge load --worker --cpus 0 --threads 2",
            "straingauge watch --worker :80 --pid 1 --netns-of 2",
            "straingauge watch --worker :80 --server-cpus 0 --server-timeout 5s --needs-group -- nginx -c a",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
        for (command, options) in [
            ("load", "http://a/|--client a|--rate 5|--json|--fail-if a|--metrics 127.0.0.1:1"),
            ("watch :80", "--out a|--json|-d 1s|--metrics 127.0.0.1:1|--no-file-hooks|--keep-privileges"),
        ] {
            for option in options.split('|') {
                let words = format!("straingauge {command} --worker {option}");
                assert_eq!(refused(&words), Some(clap::error::ErrorKind::ArgumentConflict), "{words}");
            }
        }
    }

    #[test]
    fn durations_may_be_plain_seconds_but_delays_need_a_unit() {
        let taken = |words: &str| Cli::try_parse_from(words.split(' ')).is_ok();
        for words in [
            "straingauge find :80 --budget 30 --warmup 1 --timeout 5",
            "straingauge watch :80 --interval 2 -d 10",
            "straingauge profile :80 --axis rate --axis-values 1k --budget 30 -d 1 -- server",
        ] {
            assert!(taken(words), "{words}");
        }
        for words in ["straingauge load :80 --delay 50", "straingauge find :80 --p99-limit 100"] {
            assert!(!taken(words), "{words}: milliseconds may be meant");
        }
    }

    /// The full command line, with the values of defaults in the help.
    fn filled() -> clap::Command {
        let mut all = command(false);
        all.build();
        all
    }

    fn options(cli: &clap::Command) -> Vec<(String, clap::Arg)> {
        let mut found = Vec::new();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            found.extend(options(command).into_iter().map(|(of, option)| (format!("{name} {of}"), option)));
            let own = command.get_arguments().filter(|option| option.get_long().is_some());
            found.extend(own.map(|option| (name.to_string(), option.clone())));
        }
        found
    }

    /// The words of an option that are equal in all commands, up to the first punctuation mark.
    fn sentence(option: &clap::Arg) -> String {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        help.split([',', ':', ';', '(', '[']).next().unwrap_or_default().trim().to_string()
    }

    #[test]
    fn an_option_has_one_meaning_in_all_commands() {
        let mut kinds = std::collections::BTreeMap::<String, Vec<(String, String)>>::new();
        let mut letters = std::collections::BTreeMap::<char, Vec<(String, String)>>::new();
        for (command, option) in options(&filled()) {
            let long = option.get_long().unwrap_or_default().to_string();
            let kind = format!(
                "{:?} {:?} {:?}: {}",
                option.get_value_names().unwrap_or_default(),
                option.get_num_args(),
                option.get_value_delimiter(),
                sentence(&option)
            );
            kinds.entry(long.clone()).or_default().push((kind, command.clone()));
            if let Some(short) = option.get_short() {
                letters.entry(short).or_default().push((long, command));
            }
        }
        assert!(kinds.len() > 100, "only {} options were found", kinds.len());
        let is_mixed = |uses: &Vec<(String, String)>| uses.iter().any(|(what, _)| *what != uses[0].0);
        let mixed: Vec<_> = kinds.iter().filter(|(_, uses)| is_mixed(uses)).collect();
        assert!(mixed.is_empty(), "several meanings: {mixed:#?}");
        let mixed: Vec<_> = letters.iter().filter(|(_, uses)| is_mixed(uses)).collect();
        assert!(mixed.is_empty(), "letters of several options: {mixed:#?}");
    }

    #[test]
    fn every_option_belongs_to_a_group() {
        let lost: Vec<String> = options(&Cli::command())
            .into_iter()
            .filter(|(_, option)| option.get_help_heading().is_none())
            .map(|(command, option)| format!("{command} --{}", option.get_long().unwrap_or_default()))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// Defaults in help texts are placeholders that the code fills.
    #[test]
    fn defaults_in_help_are_those_of_the_code() {
        let texts = |option: &clap::Arg| {
            let texts = [option.get_help(), option.get_long_help()].into_iter().flatten();
            texts.map(ToString::to_string).collect::<Vec<_>>()
        };
        for (command, option) in options(&Cli::command()) {
            let name = format!("{command} --{}", option.get_long().unwrap_or_default());
            assert!(option.get_default_values().is_empty(), "{name}: say it as [default: {{name}}]");
            let words = option.get_possible_values();
            for text in texts(&option) {
                for said in text.split("[default").skip(1).map(|rest| rest.split(']').next().unwrap_or_default()) {
                    let own = said.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
                    let own = own.collect::<String>();
                    let mut said_words = own.split([' ', ',', ':', ';']);
                    let has_number = said_words.any(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
                    let is_word = words.iter().any(|word| own.trim_matches([':', ' ']) == word.get_name());
                    assert!(!has_number && !is_word, "{name}: '[default{said}]' is not the code's: name it");
                }
            }
        }
        for (command, option) in options(&filled()) {
            for text in texts(&option) {
                // These placeholders are part of what the user types.
                let typed = ["{number}", "{key}", "{value}", "{cpus}", "{share}"];
                let text = typed.iter().fold(text, |text, place| text.replace(place, ""));
                let is_open = text.contains('{');
                assert!(!is_open, "{command} --{}: {text}", option.get_long().unwrap_or_default());
            }
        }
    }

    #[test]
    fn the_short_help_of_every_command_is_one_screen() {
        let mut named: Vec<&str> = help::HELP.iter().map(|help| help.name).collect();
        let cli = command(false);
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
        let mut commands: Vec<&str> = shown.map(|command| command.get_name()).collect();
        named.sort_unstable();
        commands.sort_unstable();
        assert_eq!(named, commands);
        for help in help::HELP {
            let mut all = command(true);
            let one = all.find_subcommand_mut(help.name).expect("a command");
            for id in help.short.split_whitespace() {
                assert!(one.get_arguments().any(|argument| argument.get_id() == id), "{} has no {id}", help.name);
            }
            let text = one.clone().term_width(80).render_help().to_string();
            let lines = text.lines().count();
            assert!(lines <= if ["predict", "fleet"].contains(&help.name) { 28 } else { 24 }, "{lines} lines\n{text}");
        }
    }
}
