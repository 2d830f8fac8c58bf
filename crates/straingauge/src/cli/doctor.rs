//! `straingauge doctor`.

use clap::Args;

/// `straingauge doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}
