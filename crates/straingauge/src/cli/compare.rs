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
    /// Run directory to compare with the reference (B)
    #[arg(value_name = "RUN_B")]
    pub b: PathBuf,
    /// Tolerate figures that are worse by up to this share [default: {threshold}]
    ///
    /// Exit code 3: a figure is worse and its interval reaches beyond this share. 4: an interval includes both no
    /// change and this share. 0: neither.
    #[arg(long, value_name = "SHARE", help_heading = "Limits")]
    pub threshold: Option<Share>,
    /// Write an HTML page to this file
    ///
    /// It shows both curves with their zones, the ratios, the changes, and the functions that grew.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub page: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    pub summary: SummaryOptions,
}
