//! `straingauge compare`: two run directories against each other; nothing is measured.

use crate::cli::CompareArgs;
use crate::failure::{self, print};
use analyze::compare;
use anyhow::Result;
use record::RunDir;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: CompareArgs) -> Result<ExitCode> {
    let (a, b) = (RunDir::open(&args.a)?, RunDir::open(&args.b)?);
    let comparison = compare::runs(&a, &b, args.threshold.0)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&compare::json(&comparison))?))?;
    } else {
        print(&compare::text(&comparison))?;
    }
    let has_regression = comparison.regressions().next().is_some();
    Ok(ExitCode::from(if has_regression { failure::LIMIT_CROSSED } else { failure::DONE }))
}
