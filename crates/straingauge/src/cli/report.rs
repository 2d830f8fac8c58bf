use super::export::{self, Export};
use clap::Args;
use std::path::PathBuf;

/// `straingauge report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory to report on
    pub run: PathBuf,
    /// Write an HTML page to this file [default: report.html in RUN]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
    /// Write the profile for another program, e.g. pprof=nginx.pb.gz
    ///
    /// It has all sampled points, with their loads and zones. Formats: pprof, firefox (Firefox Profiler), speedscope,
    /// folded (one stack per line, for flame graph viewers), folded-layers (with the layer after the program),
    /// folded-waits (all of the threads' time in microseconds: running, ready, blocked by place), or
    /// folded-waits-change (the same in nanoseconds per request at the lowest load and at each other load, for
    /// differential flame graphs). No page is written. Repeatable.
    #[arg(
        long, value_name = "FORMAT=FILE", value_parser = export::parser(),
        conflicts_with_all = ["page", "json", "markdown"],
        help_heading = "Output"
    )]
    pub export: Vec<Export>,
    /// Write a summary of one screen as Markdown
    ///
    /// For runs of find and load.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub markdown: Option<PathBuf>,
    /// Print everything: tables, sentences, doubts
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub full: bool,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
