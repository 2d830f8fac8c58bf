//! `straingauge stingy-check`: bounds what a cache-aware memory layout could win; nothing is measured.

use crate::cli::StingyCheckArgs;
use crate::failure::{self, print, wrong_usage};
use analyze::stingy::{self, Memwalk};
use anyhow::{Context, Result};
use record::RunDir;
use std::process::ExitCode;

/// Largest report that is read.
const MOST_REPORT_BYTES: u64 = 64 << 20;

/// Runs the command.
pub fn run(args: &StingyCheckArgs) -> Result<ExitCode> {
    let run = RunDir::open(&args.run)?;
    let report = args.memwalk.as_ref().map(|path| {
        let bytes = crate::input::read_file(path, MOST_REPORT_BYTES)?;
        let not_one = |why| wrong_usage(format!("{} is no report of memwalk: {why}", path.display()));
        Memwalk::parse(&bytes).map_err(not_one)
    });
    let report = report.transpose()?;
    let check = stingy::of_run(&run, report.as_ref()).with_context(|| args.run.display().to_string())?;
    print(&report::stingy::text(&check))?;
    Ok(ExitCode::from(failure::DONE))
}
