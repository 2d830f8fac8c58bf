//! `straingauge scale`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Let the library print its statistics when the server exits: calls, set sizes, descriptors examined, hints, lost hints
    #[arg(long, help_heading = "Library")]
    pub stats: bool,
    /// Report whether scalable select applies to the server, and do not start it
    #[arg(long, help_heading = "Library")]
    pub check: bool,
    /// The library [default: in this program's folder, installed, or in the build tree]
    #[arg(long, value_name = "FILE", help_heading = "Library")]
    pub library: Option<PathBuf>,
    /// Server to run, and its arguments: everything after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}
