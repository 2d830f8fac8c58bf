//! `straingauge compare`: compares two run directories without measuring.

use crate::cli::CompareArgs;
use crate::failure::{self, print_either};
use crate::plan;
use analyze::compare::{self, Conclusion};
use anyhow::Result;
use record::RunDir;
use std::process::ExitCode;

pub fn run(args: CompareArgs) -> Result<ExitCode> {
    let threshold = plan::threshold_ratio(args.threshold)?;
    let files = args.summary.files().and("--page", args.page.as_deref());
    files.check(args.json)?;
    let (a, b) = (RunDir::open(&args.a)?, RunDir::open(&args.b)?);
    let comparison = compare::runs(&a, &b, threshold)?;
    if let Some(page) = &args.page {
        super::report::write_to(page, &report::page::compare::html(&a, &b, &comparison))?;
        eprintln!("report: {}", page.display());
    }
    let name =
        |run: &RunDir| record::text::plain(&format!("{} ({})", run.path.display(), run.record.scenario.url()), 300);
    let (a, b) = (name(&a), name(&b));
    let text = || format!("A: {a}\nB: {b}\n{}", report::compare::text(&comparison));
    if !files.are_printed() {
        print_either(args.json, || report::compare::json(&comparison), text)?;
    }
    let checks = report::check::comparison(Ok(&comparison), ["A", "B"]);
    args.summary.write(|| report::markdown::comparison([&a, &b], &comparison), &checks)?;
    Ok(ExitCode::from(code(comparison.conclusion)))
}

/// The exit code of a comparison.
pub fn code(conclusion: Conclusion) -> u8 {
    match conclusion {
        Conclusion::Regression => failure::LIMIT_CROSSED,
        Conclusion::NoRegression => failure::DONE,
        Conclusion::CouldNotTell => failure::COULD_NOT_TELL,
    }
}
