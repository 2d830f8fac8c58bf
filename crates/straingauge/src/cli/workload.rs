//! Options for what is requested and when: mixes, rate series, logs. On the command line, and as `[workload]` of a
//! scenario file.

use super::overlay;
use crate::quantity::{Share, Speed, Time};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Options of the workload.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Workload")]
pub struct WorkloadOptions {
    /// Documents of a size mix: webstone, surge, or fitted (to the log)
    ///
    /// Requested by their popularity. 'straingauge files' makes them.
    #[arg(long, value_name = "NAME")]
    pub mix: Option<String>,
    /// Divide results into classes by size of document
    ///
    /// The largest size of each class. [default: with a mix or a log: {classes}]
    #[arg(long, value_name = "SIZES")]
    pub classes: Option<String>,
    // In scenario files alone, as all that is skipped here: the share of the requests that goes to the dynamic URLs.
    #[arg(skip)]
    pub dynamic_share: Option<Share>,
    // Dynamic paths or URLs to request, from a file: one a line, with an optional weight after each.
    #[arg(skip)]
    pub dynamic_urls: Option<PathBuf>,
    /// An access log, plain or gzip: replay it
    ///
    /// Requests, clients, connections and times of the log.
    #[arg(long, value_name = "LOG")]
    pub trace: Option<PathBuf>,
    // Format of the log, where it is not found out.
    #[arg(skip)]
    pub trace_format: Option<String>,
    /// Replay this many times faster, or max [default: as in the log]
    ///
    /// Than the log or the rate series; max: as fast as the server answers. [default: with a rate series, the speed
    /// that plays the whole series in the window]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub speed: Option<Speed>,
    // Requests of one client share a connection while the gap between them in the log is at most this.
    #[arg(skip)]
    pub session_gap: Option<Time>,
    // Send targets that were logged as whole URLs as they are, with the host in them.
    #[arg(skip)]
    pub logged_host: bool,
    /// Let the rate follow a measured series
    ///
    /// Counts per second, one a line, or CSV of times and counts. [default: none; its mean is --rate, or its own]
    #[arg(long, value_name = "FILE")]
    pub rate_series: Option<PathBuf>,
}
overlay!(WorkloadOptions; mix, classes, dynamic_share, dynamic_urls, trace, trace_format, speed, session_gap,
    logged_host, rate_series);
