//! `straingauge doctor`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Show what killed runs left behind; exit code 1 if there is something
    ///
    /// Processes of servers, control groups, network namespaces, unfinished files. What belongs to a run that goes on
    /// is not shown.
    #[arg(long, conflicts_with = "clean", help_heading = "After a killed run")]
    pub leftovers: bool,
    /// Remove what killed runs left behind, and show it; exit code 1 if something is left
    #[arg(long, help_heading = "After a killed run")]
    pub clean: bool,
    /// Folder of runs to search for unfinished files, also in folders within it (repeatable) [default: {runs}]
    #[arg(long, value_name = "DIR", help_heading = "After a killed run")]
    pub runs: Vec<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
