//! `straingauge stingy-check`: bounds what a cache-aware memory layout could win, without measuring anything.

mod check;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../../crates/analyze/tests/all/fixture.rs"]
mod fixture;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../../crates/analyze/tests/all/server.rs"]
mod server;
mod text;

use anyhow::{Context, Result};
use check::Memwalk;
use clap::Parser;
use record::{PlainText, RunDir};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum length of a sentence in characters; its names and paths come from outside.
const MOST_CHARS: usize = 4000;

/// Bounds what a cache-aware memory layout (stingy) could win for a server, from a run of find.
///
/// Exit codes: 0 done; 1 the run has no answer; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(bin_name = "straingauge stingy-check", version, max_term_width = 100)]
struct Options {
    /// Run directory of find, with a sweep over connections
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Report of memwalk on the server's source (memwalk -o)
    #[arg(long, value_name = "REPORT.json")]
    memwalk: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let sentence = record::sentence(error.as_ref()).replace(['\n', '\r'], " ");
            let _ = writeln!(std::io::stderr(), "straingauge stingy-check: {}", PlainText::new(&sentence, MOST_CHARS));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let run = RunDir::open(&options.run)?;
    let report = options.memwalk.as_ref().map(|path| {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Memwalk::parse(&bytes).with_context(|| format!("{} is not a report of memwalk", path.display()))
    });
    let check = check::of_run(&run, report.transpose()?.as_ref()).with_context(|| options.run.display().to_string())?;
    std::io::stdout().write_all(text::text(&check).as_bytes())?;
    Ok(())
}
