//! `straingauge report`: draws a run directory again; nothing is measured.

use crate::cli::ReportArgs;
use crate::failure::{self, print};
use anyhow::{Context, Result};
use record::run::{RunDir, write_whole};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: ReportArgs) -> Result<ExitCode> {
    let run = RunDir::open(&args.run)?;
    let criteria = run.record.scenario.sweep.as_ref().map(|sweep| sweep.criteria).unwrap_or_default();
    let findings = analyze::zones::find(&run.points, &criteria);
    let verdict = analyze::verdict::sentences(&run, &findings);
    if args.json {
        let value = analyze::json::run(&run, &findings, &verdict);
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        print(&analyze::text::run(&run, &findings, &verdict))?;
    }
    let page = write_report(&run, args.out.as_deref())?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::from(failure::DONE))
}

/// Renders the page and writes it whole; returns where.
pub fn write_report(run: &RunDir, out: Option<&Path>) -> Result<PathBuf> {
    let page = out.map_or_else(|| run.path.join("report.html"), Path::to_path_buf);
    let html = analyze::report::html(run);
    if out.is_some_and(is_special) {
        std::fs::write(&page, html)
            .with_context(|| format!("the report could not be written to {}", page.display()))?;
    } else {
        write_whole(&page, html.as_bytes()).context("the report could not be written")?;
    }
    Ok(page)
}

/// A device or a pipe that was named on the command line is written to; root would otherwise replace it by a file.
fn is_special(out: &Path) -> bool {
    std::fs::metadata(out).is_ok_and(|found| !found.is_file() && !found.is_dir())
}
