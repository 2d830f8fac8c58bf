//! `straingauge stingy-check`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge stingy-check`.
#[derive(Debug, Args)]
pub struct StingyCheckArgs {
    /// Run directory of find, with a sweep over connections
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Report of memwalk on the server's source (memwalk -o)
    #[arg(long, value_name = "REPORT.json", help_heading = "Evidence")]
    pub memwalk: Option<PathBuf>,
}
