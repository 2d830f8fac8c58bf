//! `straingauge report`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory
    pub run: PathBuf,
    /// Write the page to this file [default: report.html in the run directory]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
