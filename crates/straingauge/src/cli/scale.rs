//! `straingauge scale`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Let the library print what it did when the server exits: calls, set sizes, descriptors examined, hints, lost hints
    #[arg(long)]
    pub stats: bool,
    /// Only say whether the server can be helped
    #[arg(long, conflicts_with = "compare")]
    pub check: bool,
    /// Put the same load on the server without and with the library, in turn, and print both
    #[arg(long, value_name = "URL", conflicts_with = "stats")]
    pub compare: Option<String>,
    /// Hot connections of --compare
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Cold connections of --compare: established and idle
    #[arg(long, value_name = "N", default_value_t = 750, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub cold: u32,
    /// Length of each run of --compare, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=600_000))]
    pub duration_ms: u32,
    /// Runs of --compare with each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// The library [default: beside this program, installed, or in the build tree]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Server to run, and its arguments: everything after --
    #[arg(last = true, value_name = "SERVER")]
    pub command: Vec<String>,
}
