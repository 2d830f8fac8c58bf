//! `straingauge report`: draws the report of a run directory again, without measuring.

use crate::cli::{ReportArgs, SummaryOptions};
use crate::failure::{self, print_either, wrong_usage};
use crate::output::OutputFiles;
use analyze::Refused;
use analyze::compare::{Comparison, Conclusion, Price};
use analyze::watch::Recording;
use analyze::zones::Findings;
use anyhow::{Context, Result, bail};
use record::RunKind;
use record::run::{RunDir, write_whole};
use report::check::Case;
use report::json::{self, Content, Output};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdict::Verdict;
use verdict::proof::Proof;

pub fn run(args: ReportArgs) -> Result<ExitCode> {
    let summary = SummaryOptions { markdown: args.markdown.clone(), junit: None };
    files(&args).check(args.json)?;
    let run = RunDir::open(&args.run)?;
    if let RunKind::Tool(made) = &run.record.scenario.kind {
        return by_tool(&args, &made.tool);
    }
    if !args.export.is_empty() {
        return exported(&args, &run);
    }
    if args.markdown.is_some() && run.record.scenario.loaded().is_none() {
        let command = run.record.scenario.kind.command();
        return Err(wrong_usage(format!("--markdown is for runs of find and load; this is one of {command}")));
    }
    if Recording::is_in(&run.path) {
        return watched(&args, &run);
    }
    let other = analyze::compare::compared_run(&run);
    let shown = ShownRuns::new(&run, other.as_ref(), analyze::compare::THRESHOLD_RATIO);
    print(&args, || shown.output().value(), || shown.text(args.full))?;
    summary.write(|| shown.markdown(&[]), &[])?;
    reported(&args, &run, &report::page::html(&run))
}

fn files(args: &ReportArgs) -> OutputFiles<'_> {
    super::export::files(&args.export).and("--page", args.page.as_deref()).and("--markdown", args.markdown.as_deref())
}

/// Prints the contents of the page, unless standard output belongs to a file.
fn print<V: serde::Serialize>(
    args: &ReportArgs,
    value: impl FnOnce() -> V,
    text: impl FnOnce() -> String,
) -> Result<()> {
    if files(args).are_printed() { Ok(()) } else { print_either(args.json, value, text) }
}

fn judged(run: &RunDir) -> (Findings, Verdict) {
    let findings = analyze::zones::of_run(run);
    let verdict = verdict::sentences(run, &findings);
    (findings, verdict)
}

fn with_findings(run: &RunDir) -> json::Run<'_> {
    let (findings, verdict) = judged(run);
    json::Run::new(run, findings, verdict)
}

/// Text output of a run of `find` or `load`: one screen, or everything.
fn run_text(run: &RunDir, is_full: bool) -> String {
    let (findings, verdict) = judged(run);
    let text = if is_full { report::run::full } else { report::run::text };
    text(run, &findings, &verdict) + &report::predict::what_ifs_text(&analyze::predict::kept(run))
}

/// A run of `find` or `load`, or two that were measured in turn: two servers, or one without and with a command.
pub struct ShownRuns<'a> {
    a: &'a RunDir,
    pair: Option<Pair<'a>>,
    /// Result of `find --prove`.
    pub proof: Option<Proof>,
}

struct Pair<'a> {
    b: &'a RunDir,
    compared: Result<Comparison, Refused>,
    price: Option<Price>,
}

impl<'a> ShownRuns<'a> {
    pub fn new(a: &'a RunDir, b: Option<&'a RunDir>, threshold_ratio: f64) -> ShownRuns<'a> {
        let pair = |b: &'a RunDir| {
            let compared = analyze::compare::interleaved(a, b, threshold_ratio);
            let price = compared.as_ref().ok().and_then(|found| analyze::compare::price(b, found.confidence_ratio));
            Pair { b, compared, price }
        };
        let proof = verdict::proof::kept(a);
        ShownRuns { a, pair: b.map(pair), proof }
    }

    /// The conclusion of the comparison; `None` for a single run.
    pub fn conclusion(self) -> Result<Option<Conclusion>, Refused> {
        self.pair.map(|pair| Ok(pair.compared?.conclusion)).transpose()
    }

    pub fn output(&self) -> Output<'_> {
        let Some(Pair { b, compared, price }) = &self.pair else {
            let what_ifs = Some(analyze::predict::kept(self.a));
            let proof = self.proof.clone();
            return Content::Run(Box::new(json::Run { what_ifs, proof, ..with_findings(self.a) })).into();
        };
        let [a, b] = [self.a, *b].map(|run| Box::new(Content::Run(Box::new(with_findings(run))).into()));
        let (comparison, price) = (compared.as_ref().ok(), price.as_ref());
        Content::SideBySide(json::SideBySide { a, b, comparison, price }).into()
    }

    /// One screen, or everything of a single run.
    pub fn text(&self, is_full: bool) -> String {
        let Some(Pair { b, compared, price }) = &self.pair else {
            return run_text(self.a, is_full) + &self.proof.as_ref().map_or(String::new(), report::proof::text);
        };
        match (price, compared) {
            (Some(price), Ok(compared)) => report::price::text(self.a, b, price, compared),
            (None, _) if !b.record.scenario.beside().is_empty() => {
                let command = record::text::plain(&b.record.scenario.beside().join(" "), 120);
                let text = run_text(self.a, false);
                format!("{text}\nNo price: nothing was measured with '{command}' running.\n")
            }
            (_, compared) => report::run::side_by_side(self.a, b, compared.as_ref()),
        }
    }

    /// One screen of Markdown with the results of the checks.
    pub fn markdown(&self, checks: &[Case]) -> String {
        let (findings, verdict) = judged(self.a);
        let Some(Pair { b, compared, price }) = &self.pair else {
            return report::markdown::run(self.a, &findings, &verdict, checks);
        };
        match (price, compared) {
            (Some(price), Ok(compared)) => report::markdown::price((self.a, b), &verdict, price, compared, checks),
            (_, compared) => {
                report::markdown::side_by_side((self.a, b), (&verdict, &judged(b).1), compared.as_ref(), checks)
            }
        }
    }

    /// The checks of the comparison.
    pub fn checks(&self) -> Vec<Case> {
        let check = |pair: &Pair<'_>| {
            let names = if pair.price.is_some() { ["without", "with"] } else { ["A", "B"] };
            report::check::comparison(pair.compared.as_ref(), names)
        };
        self.pair.as_ref().map(check).unwrap_or_default()
    }
}

fn exported(args: &ReportArgs, run: &RunDir) -> Result<ExitCode> {
    let recording = report::export::StackRecording::of_run(run).with_context(|| args.run.display().to_string())?;
    for doubt in run.reading_doubts.iter().chain(&recording.doubts) {
        eprintln!("straingauge: {}", record::text::plain(&doubt.what, 600));
    }
    super::export::write(&args.export, &recording)?;
    Ok(ExitCode::from(failure::DONE))
}

fn by_tool(args: &ReportArgs, tool: &str) -> Result<ExitCode> {
    if args.markdown.is_some() || !args.export.is_empty() {
        let tool = record::text::plain(tool, 40);
        return Err(wrong_usage(format!("this is a run of {tool}: its report has neither --markdown nor --export")));
    }
    let mut words: Vec<OsString> = vec!["report".into(), args.run.clone().into()];
    words.extend(args.json.then(|| "--json".into()));
    words.extend(args.page.iter().flat_map(|page| ["--page".into(), page.clone().into()]));
    Err(crate::tools::exec(tool, words))
}

fn watched(args: &ReportArgs, run: &RunDir) -> Result<ExitCode> {
    let recording = Recording::open(&run.path)?;
    let findings = analyze::watch::find(&recording);
    print(args, || &findings, || report::watch::text::run(run, &findings))?;
    reported(args, run, &report::watch::page::html(run, &recording, &findings))
}

/// Writes the page, unless only Markdown was requested, and prints its path. A run in a read-only directory is reported
/// without a page.
fn reported(args: &ReportArgs, run: &RunDir, html: &str) -> Result<ExitCode> {
    if args.page.is_none() && args.markdown.is_some() {
        return Ok(ExitCode::from(failure::DONE));
    }
    let page = args.page.clone().unwrap_or_else(|| default_page(run));
    match write_to(&page, html) {
        Ok(()) => eprintln!("report: {}", page.display()),
        Err(error) if args.page.is_none() => {
            let sentence = format!("{}; name another file with --page", failure::sentence(&error));
            if !args.json {
                bail!(sentence);
            }
            eprintln!("straingauge: {sentence}");
        }
        Err(error) => return Err(error),
    }
    Ok(ExitCode::from(failure::DONE))
}

fn default_page(run: &RunDir) -> PathBuf {
    run.path.join("report.html")
}

pub fn write_report(run: &RunDir) -> Result<PathBuf> {
    let page = default_page(run);
    write_whole(&page, report::page::html(run).as_bytes()).context(NOT_WRITTEN)?;
    Ok(page)
}

const NOT_WRITTEN: &str = "the report could not be written";

pub fn write_to(file: &Path, html: &str) -> Result<()> {
    crate::output::write(file, html.as_bytes()).context(NOT_WRITTEN)
}
