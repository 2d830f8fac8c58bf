//! `straingauge report`: draws the report of a run directory again; nothing is measured.

use crate::cli::ReportArgs;
use crate::failure::{self, print};
use analyze::watch::Recording;
use anyhow::{Context, Result};
use record::run::{RunDir, write_whole};
use record::simulation::Simulation;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: ReportArgs) -> Result<ExitCode> {
    let run = RunDir::open(&args.run)?;
    if !args.export.is_empty() {
        return exported(&args, &run);
    }
    if Recording::is_in(&run.path) {
        return watched(&args, &run);
    }
    if Simulation::is_in(&run.path) {
        return simulated(&args, &run);
    }
    if let Some(other) = analyze::compare::beside(&run) {
        return side_by_side(&args, &run, &other);
    }
    let findings = analyze::zones::of_run(&run);
    let verdict = analyze::verdict::sentences(&run, &findings);
    if args.json {
        let mut value = report::json::run(&run, &findings, &verdict);
        value["what_ifs"] = serde_json::to_value(analyze::predict::kept(&run))?;
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        print(&report::run::text(&run, &findings, &verdict))?;
        print(&report::predict::what_ifs_text(&analyze::predict::kept(&run)))?;
    }
    let page = write_report(&run, args.page.as_deref())?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::from(failure::DONE))
}

/// The profile of a run, for other programs.
fn exported(args: &ReportArgs, run: &RunDir) -> Result<ExitCode> {
    super::export::check(&args.export)?;
    let recording = report::export::Recording::of_run(run).with_context(|| args.run.display().to_string())?;
    for doubt in run.reading_doubts.iter().chain(&recording.doubts) {
        eprintln!("straingauge: {}", record::text::plain(&doubt.what, 600));
    }
    super::export::write(&args.export, &recording)?;
    Ok(ExitCode::from(failure::DONE))
}

/// The report of two servers that were measured in turn.
fn side_by_side(args: &ReportArgs, a: &RunDir, b: &RunDir) -> Result<ExitCode> {
    let compared = analyze::compare::interleaved(a, b, analyze::compare::THRESHOLD_RATIO);
    if args.json {
        let of = |run: &RunDir| {
            let findings = analyze::zones::of_run(run);
            report::json::run(run, &findings, &analyze::verdict::sentences(run, &findings))
        };
        let value = report::json::side_by_side(of(a), of(b), compared.as_ref().ok());
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        print(&report::run::side_by_side(a, b, compared.as_ref()))?;
    }
    let page = write_report(a, args.page.as_deref())?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::from(failure::DONE))
}

/// The report of a run of `simulate`.
fn simulated(args: &ReportArgs, run: &RunDir) -> Result<ExitCode> {
    let simulation = Simulation::open(&run.path)?;
    if args.json {
        let value = report::simulated::json(run, &simulation);
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        print(&report::simulated::text::run(&simulation, report::simulated::FUNCTIONS))?;
    }
    let page = write_page(run, args.page.as_deref(), &report::simulated::page::html(run, &simulation))?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::from(failure::DONE))
}

/// The report of a recording of `watch`.
fn watched(args: &ReportArgs, run: &RunDir) -> Result<ExitCode> {
    let recording = Recording::open(&run.path)?;
    let findings = analyze::watch::find(&recording);
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&findings)?))?;
    } else {
        print(&report::watch::text::run(run, &findings))?;
    }
    let html = report::watch::page::html(run, &recording, &findings);
    let page = write_page(run, args.page.as_deref(), &html)?;
    eprintln!("report: {}", page.display());
    Ok(ExitCode::from(failure::DONE))
}

/// Renders the page and writes it atomically; returns its path.
pub fn write_report(run: &RunDir, out: Option<&Path>) -> Result<PathBuf> {
    write_page(run, out, &report::page::html(run))
}

fn write_page(run: &RunDir, out: Option<&Path>, html: &str) -> Result<PathBuf> {
    let page = out.map_or_else(|| run.path.join("report.html"), Path::to_path_buf);
    let written = match out {
        Some(out) => crate::output::write(out, html.as_bytes()),
        None => write_whole(&page, html.as_bytes()).map_err(Into::into),
    };
    written.context("the report could not be written")?;
    Ok(page)
}
