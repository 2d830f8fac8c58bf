use clap::Args;
use std::path::PathBuf;

/// `straingauge doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Show what killed runs left behind
    ///
    /// Processes of servers, control groups, network namespaces, unfinished files. Exit code 1 if anything is left.
    /// Runs in progress are not shown.
    #[arg(long, conflicts_with = "clean", help_heading = "After a killed run")]
    pub leftovers: bool,
    /// Remove what killed runs left behind
    ///
    /// Also prints it. Exit code 1 if something could not be removed.
    #[arg(long, help_heading = "After a killed run")]
    pub clean: bool,
    /// Folder of runs to search for unfinished files [default: {runs}]
    ///
    /// Includes subfolders. Repeatable.
    #[arg(long, value_name = "DIR", help_heading = "After a killed run")]
    pub runs: Vec<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
