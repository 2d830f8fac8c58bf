//! straingauge: a strain gauge for network servers. This program parses options, resolves them, runs the command and
//! prints.

#![allow(missing_docs, reason = "this is the program's code; modules are public for its tests alone")]

/// Replaces the macro of the standard library, which panics if standard error was closed (`2>&1 | head`).
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod ask;
pub mod cli;
pub mod commands;
pub mod companions;
pub mod cpus;
pub mod defaults;
pub mod failure;
mod fleet;
mod input;
pub mod leftovers;
pub mod measure;
pub mod measured;
pub mod metrics;
mod names;
mod output;
pub mod plan;
pub mod process;
mod progress;
pub mod quantity;
pub mod serve;
pub mod server;
pub mod shift;
pub mod signals;
mod tools;
pub mod url;
pub mod workload;

#[doc(hidden)]
pub use cli::check_ranges;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    names::ask_files_and_dns_alone();
    if let Err(error) = signals::survive_full_files() {
        return failure::report(&error);
    }
    let parsed = match cli::parse() {
        Ok(parsed) => parsed,
        Err(error) => return failure::usage(error),
    };
    let columns = if std::io::stdout().is_terminal() { progress::terminal_size(std::io::stdout()).columns } else { 80 };
    report::text::fit(columns);
    match commands::run(parsed) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}
