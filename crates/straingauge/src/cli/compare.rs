//! `straingauge compare`.

use super::summary::SummaryOptions;
use crate::quantity::Share;
use clap::Args;
use std::path::PathBuf;

/// `straingauge compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Run directory of the reference (A)
    #[arg(value_name = "RUN_A")]
    pub a: PathBuf,
    /// Run directory that is compared with the reference (B)
    #[arg(value_name = "RUN_B")]
    pub b: PathBuf,
    /// Up to this much worse is no regression [default: {threshold}]
    ///
    /// Exit code 3: a figure is worse, and that by more than this is not excluded. 4: its interval holds both no change
    /// and this, so nobody can tell. 0: neither.
    #[arg(long, value_name = "SHARE", help_heading = "Limits")]
    pub threshold: Option<Share>,
    /// Write the page to this file: both curves with their zones, ratios, what changed, what grew
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    pub summary: SummaryOptions,
}
