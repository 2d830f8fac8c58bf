//! `straingauge files`: writes the document tree that a server needs for a size mix or a log.

use crate::cli::FilesArgs;
use crate::defaults;
use crate::failure::{self, print, wrong_usage};
use crate::progress::Progress;
use crate::workload::targets::format;
use anyhow::{Context, Result};
use record::units::format_bytes;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use workload::files::{Tree, TreeLimits, WrittenTree, make};
use workload::mix::{LogDocuments, Mix};
use workload::trace::{SizeMeaning, TraceReader};

pub fn run(args: FilesArgs) -> Result<ExitCode> {
    let mut progress = Progress::new(args.quiet);
    let limits = TreeLimits { bytes: args.limit.unwrap_or(defaults::LIMIT).0, ..TreeLimits::default() };
    let mut notes = Vec::new();
    let (workload, tree) = match (args.mix.as_deref(), args.trace.as_deref()) {
        (Some("fitted"), Some(log)) => ("fitted".into(), fitted(log, &args, &limits, &mut notes)?),
        (Some("fitted"), None) => {
            return Err(wrong_usage("--mix fitted needs --trace LOG"));
        }
        (Some(name), None) => {
            let mix = Mix::named(name).map_err(|error| wrong_usage(error.to_string()))?;
            (mix.name.clone(), Tree::of_mix(&mix, &limits)?)
        }
        (None, Some(log)) => (log.display().to_string(), replayed(log, &args, &limits, &mut notes)?),
        (Some(_), Some(_)) => return Err(wrong_usage("--mix and --trace exclude each other, except for --mix fitted")),
        (None, None) => {
            return Err(wrong_usage("no documents are named: give --mix webstone, --mix surge, or --trace LOG"));
        }
    };
    let made = make(&tree, &args.into, &limits, |done, all| {
        progress.show(&format!("{} of {}", format_bytes(done as f64), format_bytes(all as f64)));
    })?;
    progress.clear();
    print(&if args.json { json(&workload, &tree, &made, &notes)? } else { text(&tree, &made, &notes)? })?;
    Ok(ExitCode::from(failure::DONE))
}

fn open(log: &Path, args: &FilesArgs) -> Result<TraceReader> {
    Ok(TraceReader::open(log, &format(args.trace_format.as_deref(), "--trace-format")?)?)
}

fn replayed(log: &Path, args: &FilesArgs, limits: &TreeLimits, notes: &mut Vec<String>) -> Result<Tree> {
    let mut reader = open(log, args)?;
    let tree = Tree::of_trace(&mut reader, limits)?;
    note_lines(&reader, notes);
    if tree.requests_of_other_size > 0 {
        notes.push(format!(
            "{} of {} requests with status 200 differ in size from their file: the document changed, or the answer was \
             cut off",
            tree.requests_of_other_size, tree.requests
        ));
    }
    if tree.of_uncertain_size > 0 {
        notes.push(format!(
            "{} targets have more different sizes than are counted: their file may not have the most frequent one",
            tree.of_uncertain_size
        ));
    }
    if tree.without_file > 0 {
        notes.push(format!("{} targets never succeeded in the log and have no file", tree.without_file));
    }
    Ok(tree)
}

/// As many documents as the log has, with sizes and popularity drawn from distributions fitted to the log.
fn fitted(log: &Path, args: &FilesArgs, limits: &TreeLimits, notes: &mut Vec<String>) -> Result<Tree> {
    let mut reader = open(log, args)?;
    let documents = LogDocuments::read(&mut reader)?;
    note_lines(&reader, notes);
    let mix = documents.mix().context("no mix can be fitted to the log")?;
    notes.push(documents.size_fit()?.to_string());
    if let Some(zipf) = documents.zipf_fit() {
        notes.push(format!("popularity: Zipf exponent {} over {} requests", zipf.exponent, zipf.requests));
    }
    if documents.left_out > 0 {
        notes.push(format!(
            "{} requests for documents beyond the first {} were left out",
            documents.left_out,
            documents.len()
        ));
    }
    Ok(Tree::of_mix(&mix, limits)?)
}

fn note_lines(reader: &TraceReader, notes: &mut Vec<String>) {
    let counts = reader.counts();
    notes.push(format!("{}: {} format, {counts}", reader.name(), reader.format()));
    notes.extend(counts.rejected.examples().iter().map(|line| format!("  {line}")));
    match reader.size_meaning() {
        SizeMeaning::Body => {}
        SizeMeaning::HeaderAndBody => {
            notes.push("the log's sizes count headers too: the files are larger than the documents were".into());
        }
        SizeMeaning::Absent => notes.push("the log has no sizes: every file has 1,024 bytes".into()),
    }
}

fn text(tree: &Tree, made: &WrittenTree, notes: &[String]) -> Result<String> {
    let mut out = String::new();
    for note in notes {
        writeln!(out, "{note}")?;
    }
    writeln!(
        out,
        "{} targets, {} files, {}: {} written, {} kept",
        tree.entries.len(),
        made.written + made.kept,
        format_bytes(made.total_bytes as f64),
        made.written,
        made.kept
    )?;
    writeln!(out, "document root: {}", made.root.display())?;
    writeln!(out, "manifest:      {}", made.manifest.display())?;
    Ok(out)
}

/// The output of `--json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Files<'a> {
    /// Name of the mix or log.
    workload: &'a str,
    /// Targets of the workload.
    targets: usize,
    /// Files written by this run.
    files_written: u64,
    /// Files that an earlier run had written already.
    files_kept: u64,
    /// Bytes written by this run.
    written_bytes: u64,
    /// Bytes of all files.
    total_bytes: u64,
    /// Requests of the log.
    requests: u64,
    /// Requests whose response differs in size from the file.
    requests_of_other_size: u64,
    /// Targets whose size is not certain from the log.
    targets_of_uncertain_size: u64,
    /// Targets that have no file.
    targets_without_file: u64,
    /// Path of the document root.
    root: &'a Path,
    /// Path of the manifest, which lists every file.
    manifest: &'a Path,
    /// Remarks about the workload, in sentences.
    notes: &'a [String],
}

fn json(workload: &str, tree: &Tree, made: &WrittenTree, notes: &[String]) -> Result<String> {
    let files = Files {
        workload,
        targets: tree.entries.len(),
        files_written: made.written,
        files_kept: made.kept,
        written_bytes: made.written_bytes,
        total_bytes: made.total_bytes,
        requests: tree.requests,
        requests_of_other_size: tree.requests_of_other_size,
        targets_of_uncertain_size: tree.of_uncertain_size,
        targets_without_file: tree.without_file,
        root: &made.root,
        manifest: &made.manifest,
        notes,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&serde_json::to_value(&files)?)?))
}
