//! `straingauge report`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directory
    pub run: PathBuf,
    /// Where to write the page [default: report.html in the run directory]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the findings as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}
