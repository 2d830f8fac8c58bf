mod compare;
mod doctor;
mod export;
mod files;
pub mod find;
mod fleet;
pub mod load;
mod placement;
mod predict;
pub mod profile;
mod report;
mod runs;
mod schemas;
pub mod session;
mod summary;
pub mod wan;
pub mod watch;
mod watched_server;

use crate::cli::{self, Cli, Command};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(typed: Cli) -> Result<ExitCode> {
    if let Some(words) = typed.generate {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = match words[..] {
            ["schema"] => schemas::list(),
            ["schema", name] => schemas::text(name)?,
            [name] => cli::generated(name)?,
            _ => return Err(crate::failure::wrong_usage("only --generate schema takes a NAME")),
        };
        crate::failure::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Without a command, the help was requested.
    let Some(command) = typed.command else { return Ok(ExitCode::from(crate::failure::USAGE)) };
    match command {
        Command::Find(args) => find::run(*args),
        Command::Load(args) => load::run(*args),
        Command::Fleet(args) => fleet::run(*args),
        Command::Watch(args) if args.worker => watched_server::serve(&args),
        Command::Profile(args) => profile::run(*args),
        Command::Watch(args) => watch::run(*args),
        Command::Predict(args) => predict::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Report(args) => report::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Files(args) => files::run(args),
        Command::Wan(args) => wan::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Tool(words) => Err(crate::tools::exec(&words[0].to_string_lossy(), &words[1..])),
        Command::RestoreShare { command, usual } => Ok(crate::shift::restore_on_end(&command, usual)),
        Command::GuardSession { session, mark } => {
            // The next run tries again if the removal fails.
            let clean_up = |owner| drop(crate::leftovers::remove(&[], Some(owner)));
            Ok(crate::server::guardian::run_guardian(session, &mark, clean_up))
        }
    }
}
