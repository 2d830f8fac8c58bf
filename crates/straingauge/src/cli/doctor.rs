//! `straingauge doctor`.

use clap::Args;

/// `straingauge doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
