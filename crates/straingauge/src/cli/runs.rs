use clap::Args;
use std::path::PathBuf;

/// `straingauge runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Folder to search for run directories, with its subfolders [default: {runs}]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Show only runs with this word, e.g. nginx, find or worse
    ///
    /// Searches command, server, version, request, URL, name, folder, and the result of the comparison with the run
    /// before. Repeatable: a run must have all words.
    #[arg(long, value_name = "WORD", help_heading = "Which runs")]
    pub only: Vec<String>,
    /// Show only runs that began on this day or later, e.g. 2026-11-01
    ///
    /// In UTC; with a time: 2026-11-01T14:30.
    #[arg(long, value_name = "DATE", value_parser = date, help_heading = "Which runs")]
    pub since: Option<u64>,
    /// Write an HTML page to this file: table, filter and trends
    ///
    /// Trends are drawn for runs of the same scenario.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

fn date(text: &str) -> Result<u64, String> {
    record::time::parse_utc(text).ok_or_else(|| "not a date: write 2026-11-01 or 2026-11-01T14:30, in UTC".into())
}
