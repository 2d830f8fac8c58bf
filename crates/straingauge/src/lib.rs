//! straingauge: a strain gauge for network servers. This program parses options, resolves them, runs the command and
//! prints.

/// Replaces the macro of the standard library, which panics if standard error was closed (`2>&1 | head`).
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod ask;
mod cli;
mod commands;
mod companions;
mod cpus;
mod defaults;
mod failure;
mod fleet;
mod input;
mod leftovers;
mod measure;
mod measured;
mod metrics;
mod names;
mod output;
mod plan;
mod process;
mod progress;
mod quantity;
mod serve;
mod server;
mod shift;
mod signals;
mod tools;
mod url;
mod workload;

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
