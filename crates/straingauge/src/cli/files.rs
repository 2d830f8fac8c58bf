//! `straingauge files`.

use clap::Args;
use std::path::PathBuf;

/// `straingauge files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Size mix: webstone, surge, or fitted (to the log of --trace)
    #[arg(long, value_name = "NAME")]
    pub mix: Option<String>,
    /// Access log whose documents to make, plain or gzip
    #[arg(long, value_name = "LOG")]
    pub trace: Option<PathBuf>,
    /// auto, common, combined, nginx, vhost, w3c, or the server's own format string
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub trace_format: String,
    /// Directory to make them in: absent, empty, or an earlier run of the same command
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Refuse to make more bytes than this
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = record::units::parse_bytes)]
    pub limit: u64,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// No progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
}
