//! `straingauge scale`: runs an unmodified select or poll server with scalable select (libscalable-select.so).

mod library;
mod target;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use record::PlainText;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Maximum characters of a sentence. Its names and paths are untrusted.
const MOST_CHARS: usize = 4000;
/// The library's variable that names the file for its statistics.
const STATS: &str = "SCALABLE_SELECT_STATS";

/// Runs an unmodified select or poll server with scalable select.
///
/// This process becomes the server, so the exit code is the server's. Otherwise: 0 with --check; 1 scalable select does
/// not apply, or the server cannot be started; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(bin_name = "straingauge scale", version, max_term_width = 100)]
struct Options {
    /// Let the library write its statistics when the server ends
    ///
    /// It writes them at exit, or when SIGTERM, SIGINT or SIGHUP ends the server. They count the calls, the
    /// examined descriptors, the hints and the lost hints, and give the mean size of the sets.
    #[arg(long)]
    stats: bool,
    /// Report whether scalable select applies to the server, and do not start it
    #[arg(long)]
    check: bool,
    /// Library to load [default: next to this program, installed, or in the build tree]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Server to run, and its arguments: everything after --
    #[arg(last = true, required = true, value_name = "SERVER")]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&record::sentence(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn complain(sentence: &str) {
    let sentence = PlainText::new(&sentence.replace(['\n', '\r'], " "), MOST_CHARS);
    let _ = writeln!(std::io::stderr(), "straingauge scale: {sentence}");
}

/// Returns only after `--check` or on failure.
fn run(options: &Options) -> Result<()> {
    let name = &options.command[0];
    let path = target::find_program(name)?;
    let found = match target::inspect(&path)? {
        Ok(found) => found,
        Err(hindrance) => bail!("scalable select does not apply: {hindrance}"),
    };
    for note in &found.notes {
        complain(&format!("note: {name}: {note}"));
    }
    let library = library::find(options.library.as_deref())?;
    if options.check {
        let imports: Vec<&str> = found.imports.iter().map(String::as_str).collect();
        writeln!(
            std::io::stdout(),
            "{}: scalable select applies (imports {}), with {}",
            found.program.display(),
            if imports.is_empty() { "no such function directly".to_string() } else { imports.join(", ") },
            library.display()
        )?;
        return Ok(());
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(&options.command[1..]).env("LD_PRELOAD", preload(&library));
    if options.stats {
        command.env(STATS, "stderr");
    }
    Err(anyhow!(command.exec()).context(format!("the server '{name}' cannot be started")))
}

/// The value of LD_PRELOAD: the library, followed by the caller's preloads.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}
