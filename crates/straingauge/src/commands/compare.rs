//! `straingauge compare`: compares two run directories; nothing is measured.

use crate::cli::CompareArgs;
use crate::failure::{self, print, wrong_usage};
use analyze::compare::{self, Conclusion};
use anyhow::Result;
use record::RunDir;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: CompareArgs) -> Result<ExitCode> {
    // A bare 5 is 500 %: with it nothing would ever be a regression.
    let threshold = args.threshold.unwrap_or(crate::defaults::THRESHOLD).0;
    if threshold > 1.0 {
        return Err(wrong_usage(format!(
            "--threshold {0:.0}% is more than the whole: write 5% or 0.05 for a twentieth",
            threshold * 100.0
        )));
    }
    let (a, b) = (RunDir::open(&args.a)?, RunDir::open(&args.b)?);
    let comparison = compare::runs(&a, &b, threshold)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report::compare::json(&comparison))?))?;
    } else {
        let name =
            |run: &RunDir| record::text::plain(&format!("{} ({})", run.path.display(), run.record.scenario.url()), 300);
        print(&format!("A: {}\nB: {}\n", name(&a), name(&b)))?;
        print(&report::compare::text(&comparison))?;
    }
    Ok(ExitCode::from(code(&comparison)))
}

/// The exit code of a comparison.
pub fn code(comparison: &compare::Comparison) -> u8 {
    match comparison.conclusion {
        Conclusion::Regression => failure::LIMIT_CROSSED,
        Conclusion::NoRegression => failure::DONE,
        Conclusion::CouldNotTell => failure::COULD_NOT_TELL,
    }
}
