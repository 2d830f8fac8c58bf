//! Exit codes, and errors in one sentence.

use record::PlainText;
use remote::RemoteError;
use std::io::Write;
use std::process::ExitCode;

/// Maximum characters of an error sentence, which may contain names and paths from outside.
const MOST_CHARS: usize = 4000;

pub const DONE: u8 = 0;
/// Something failed; what was measured until then is kept.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// Done, but a `--fail-if` limit was crossed, or a comparison showed a regression.
pub const LIMIT_CROSSED: u8 = 3;
/// Done, but a comparison could neither show nor exclude a regression.
pub const COULD_NOT_TELL: u8 = 4;
/// Ctrl-C or a termination signal; partial results are kept.
pub const INTERRUPTED: u8 = 130;

/// A mistake in the user's input: exit code 2 instead of 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

pub fn wrong_usage(sentence: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(sentence.into()))
}

/// A signal ended the run before anything was measured: exit code 130 instead of 1.
#[derive(Debug, thiserror::Error)]
#[error("interrupted while {0}")]
struct Interrupted(&'static str);

/// The error of a run that a signal ended early: `interrupted while the server was starting`.
pub fn interrupted(meanwhile: &'static str) -> anyhow::Error {
    anyhow::Error::new(Interrupted(meanwhile))
}

fn is_interruption(cause: &(dyn std::error::Error + 'static)) -> bool {
    let elsewhere = cause.downcast_ref::<RemoteError>();
    cause.is::<Interrupted>() || matches!(elsewhere, Some(RemoteError::Interrupted(_)))
}

/// Options of wrk, wrk2, ab, hey, oha and k6, and their equivalents here.
pub const HABITS: [(&[&str], &str); 14] = [
    (&["-n", "--requests", "--iterations"], "a load is limited by time: -d 10s"),
    (&["-R", "--rps", "--qps"], "the rate of the open loop is -r"),
    (&["-z", "-D", "--duration-seconds"], "the duration is -d 10s"),
    (&["-k", "--keepalive", "--keep-alive"], "connections stay open; --requests-per-connection 1 closes them"),
    (&["--disable-keepalive"], "--requests-per-connection 1"),
    (&["-L", "--latency", "-U"], "percentiles are always printed"),
    (&["-s", "--script"], "there are no scripts; --urls, --mix and --trace choose the requests"),
    (&["-u", "--vus", "--users", "--clients"], "connections are -c"),
    (&["--cores", "--workers"], "threads are -t; --cpus pins them"),
    (&["--stages", "--ramp-up"], "a load has one rate; find tries several, and --rate-series follows a series"),
    (&["-o", "--output", "--format"], "--json prints the figures as JSON, and --out DIR keeps the run"),
    (&["-m"], "the method is -X"),
    (&["--data", "-p", "-T"], "the body is --body TEXT or --body @FILE; -H 'Content-Type: ...' sets its type"),
    (&["--h2"], "HTTP/2 is --http2"),
];

/// The sections of a scenario file whose keys are options of `find`, or exist only in the file.
const SECTIONS: [&str; 7] = ["load", "workload", "clients", "fleet", "path", "watching", "find"];

/// The section with a key of this name, if it is a key that no option of `load` and `find` sets.
pub fn section_of(key: &str) -> Option<&'static str> {
    use clap::CommandFactory;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let cli = crate::cli::Cli::command();
    let find = cli.find_subcommand("find").filter(|_| is_key)?;
    let is_known = |section: &&&str| {
        let read = toml::from_str::<crate::cli::Options>(&format!("[{section}]\n{key} = ''\n"));
        read.err().is_none_or(|why| !why.message().starts_with("unknown field"))
    };
    let section = SECTIONS.iter().find(is_known)?;
    find.get_arguments().all(|option| option.get_long() != Some(key)).then_some(*section)
}

fn unknown_argument(error: &clap::Error) -> Option<&String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) if error.kind() == ErrorKind::UnknownArgument => Some(typed),
        _ => None,
    }
}

/// A hint for an option of another tool, or one that exists only in scenario files.
fn habit(error: &clap::Error) -> Option<String> {
    let typed = unknown_argument(error)?;
    let command = std::env::args_os().nth(1).unwrap_or_default();
    let key = typed.trim_start_matches('-');
    let has_scenario = ["find", "load", "fleet"].iter().any(|name| command == *name);
    if let Some(section) = section_of(key).filter(|_| has_scenario) {
        return Some(format!(
            "there is no {typed}: write --set {section}.{key}=VALUE, or {key} = ... in section [{section}] of a \
             --scenario file"
        ));
    }
    let (_, hint) = HABITS.iter().find(|(words, _)| words.contains(&typed.as_str()))?;
    Some(format!("there is no {typed}: {hint}"))
}

/// A hint for `-q 100` of hey and oha, and for a server command without `--` before it.
fn misplaced(error: &clap::Error) -> Option<String> {
    let typed = unknown_argument(error)?;
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let at = words.iter().skip(1).position(|word| word == typed)? + 1;
    if words[at - 1] == "-q" && typed.parse::<f64>().is_ok() {
        return Some(format!("-q is --quiet here; the rate of the open loop is -r {typed}"));
    }
    if typed.starts_with('-') || !matches!(words[0].as_str(), "load" | "find" | "wan") {
        return None;
    }
    words.insert(at, "--".into());
    let line = record::shell::joined(words.iter().map(String::as_str));
    Some(format!("unexpected '{typed}'; put -- before a command: straingauge {line}"))
}

fn unknown_command(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    // The word must be the first, not a subcommand of fleet.
    std::env::args_os().nth(1).filter(|first| first == typed.as_str())?;
    let prefix = crate::tools::PREFIX;
    let sentence = format!("there is no command '{typed}', and no {prefix}{typed} next to this program or in PATH");
    Some(match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(like)) if !like.is_empty() => {
            format!("{sentence}; most similar: '{}'", like.join("', '"))
        }
        _ => sentence,
    })
}

/// Help and version go to standard output with code 0; a wrong command line becomes one sentence with code 2.
pub fn usage(error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(DONE);
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    let of_clap = || {
        let text = error.render().to_string();
        let lines = text
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
            .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"));
        lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_string()
    };
    let hint = habit(&error).or_else(|| misplaced(&error)).or_else(|| unknown_command(&error));
    eprintln!("straingauge: {}; see --help", PlainText::new(&hint.unwrap_or_else(of_clap), MOST_CHARS));
    ExitCode::from(USAGE)
}

/// The reader of standard output has closed it. Other broken pipes are ordinary errors.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed by its reader")]
pub struct ReaderGone;

/// Prints the error as one line and picks the exit code. A closed reader (`| head`) is not an error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(|cause| cause.is::<ReaderGone>()) {
        return ExitCode::from(DONE);
    }
    let sentence = PlainText::new(&sentence(error).replace(['\n', '\r'], " "), MOST_CHARS);
    let _ = writeln!(std::io::stderr(), "straingauge: {sentence}");
    ExitCode::from(if error.chain().any(|cause| cause.is::<UsageError>()) {
        USAGE
    } else if error.chain().any(is_interruption) {
        INTERRUPTED
    } else {
        FAILED
    })
}

/// The error and its causes in one sentence. A cause that the preceding message quotes is not repeated.
pub fn sentence(error: &anyhow::Error) -> String {
    record::sentence(error.as_ref())
}

pub fn refuse_if(is_wrong: bool, sentence: impl Into<String>) -> anyhow::Result<()> {
    if is_wrong { Err(wrong_usage(sentence)) } else { Ok(()) }
}

pub fn refuse_typed(options: &[(bool, &str)], why: impl FnOnce(&str) -> String) -> anyhow::Result<()> {
    match options.iter().find(|(is_typed, _)| *is_typed) {
        Some((_, option)) => Err(wrong_usage(why(option))),
        None => Ok(()),
    }
}

/// Prints to standard output. If the reader has closed it (`| head`), the command continues and returns its own exit
/// code.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match print_while_read(bytes) {
        Err(error) if error.is::<ReaderGone>() => Ok(()),
        printed => printed,
    }
}

/// Prints endless output. If the reader has closed it, returns an error that [`report()`] treats as success.
pub fn print_while_read(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => error.into(),
    })
}

pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Prints the value with `--json`, else the text.
pub fn print_either<V: serde::Serialize>(
    is_json: bool,
    value: impl FnOnce() -> V,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if is_json { print_json(&value()) } else { print(&text()) }
}
