use crate::quantity::Bytes;
use clap::Args;
use std::path::PathBuf;

/// `straingauge files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Documents of a size mix: webstone, surge, or fitted (to the log)
    #[arg(long, value_name = "NAME", help_heading = "Workload")]
    pub mix: Option<String>,
    /// An access log, plain or gzip: make its documents
    #[arg(long, value_name = "LOG", help_heading = "Workload")]
    pub trace: Option<PathBuf>,
    /// Format of the log [default: {trace_format}]
    ///
    /// One of auto, common, combined, nginx, vhost, w3c, or the server's own format string.
    #[arg(long, value_name = "FORMAT", help_heading = "Workload")]
    pub trace_format: Option<String>,
    /// Folder to write to: a new or empty one, or one made by the same command
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub into: PathBuf,
    /// Refuse to write more bytes than this [default: {limit}]
    #[arg(long, value_name = "BYTES", help_heading = "Output")]
    pub limit: Option<Bytes>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Show no progress
    #[arg(long, short = 'q', help_heading = "Output")]
    pub quiet: bool,
}
