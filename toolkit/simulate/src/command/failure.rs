//! Exit codes, and errors as one sentence.

use anyhow::Result;
use record::PlainText;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Maximum characters of a sentence. Its names and paths are untrusted.
const MOST_CHARS: usize = 4000;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// Ctrl-C or a termination signal.
pub const INTERRUPTED: u8 = 130;

/// A mistake in the user's input.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// A usage error as an `anyhow` error.
pub fn wrong_usage(sentence: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(UsageError(sentence.into()))
}

/// Prints help and version to standard output with code 0. A wrong command line becomes one sentence with code 2.
pub fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let what = text.split("\n\nUsage:").next().unwrap_or_default().trim_start_matches("error: ");
    let words: Vec<&str> = what.split_whitespace().collect();
    say(&format!("{}; --help shows the options", words.join(" ")));
    ExitCode::from(USAGE)
}

/// Prints an error as one sentence.
pub fn report(error: &anyhow::Error) -> ExitCode {
    say(&record::sentence(error.as_ref()));
    ExitCode::from(if error.is::<UsageError>() { USAGE } else { FAILED })
}

/// Prints one sentence to standard error.
pub fn say(sentence: &str) {
    note(&format!("straingauge-simulate: {}", PlainText::new(&sentence.replace(['\n', '\r'], " "), MOST_CHARS)));
}

/// Prints a line to standard error. A closed standard error is no error.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints text to standard output. A closed standard output is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why.into()),
        _ => Ok(()),
    }
}
