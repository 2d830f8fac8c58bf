//! Options for the requests and their times: mixes, rate series, logs. Also section `[workload]` of a scenario file.

use super::overlay;
use crate::quantity::{Share, Speed, Time};
use clap::Args;
use serde::Deserialize;
use std::path::PathBuf;

/// Options of the workload.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Workload")]
pub struct WorkloadOptions {
    /// Documents of a size mix: webstone, surge, or fitted (to the log)
    ///
    /// Requests follow their popularity. 'straingauge files' makes the documents.
    #[arg(long, value_name = "NAME")]
    pub mix: Option<String>,
    // This key exists only in scenario files, like all fields skipped here. Largest size of each document class but
    // the last.
    #[arg(skip)]
    pub classes: Option<String>,
    // Share of the requests that goes to the dynamic URLs.
    #[arg(skip)]
    pub dynamic_share: Option<Share>,
    // Dynamic paths or URLs to request, from a file: one per line, with an optional weight.
    #[arg(skip)]
    pub dynamic_urls: Option<PathBuf>,
    /// An access log, plain or gzip: replay it
    ///
    /// Uses the requests, clients, connections and times of the log.
    #[arg(long, value_name = "LOG")]
    pub trace: Option<PathBuf>,
    // Format of the log, if it cannot be detected.
    #[arg(skip)]
    pub trace_format: Option<String>,
    /// Replay this many times faster, or max [default: as in the log]
    ///
    /// Relative to the log or the rate series. max: as fast as the server answers. With a rate series, the
    /// default plays the whole series in the window.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub speed: Option<Speed>,
    // Requests of a client share a connection if the gap between them in the log is at most this.
    #[arg(skip)]
    pub session_gap: Option<Time>,
    // Sends targets that were logged as whole URLs unchanged, including the host.
    #[arg(skip)]
    pub logged_host: bool,
    /// Let the rate follow a measured series
    ///
    /// Counts per second, one per line, or CSV of times and counts. Its mean is --rate, or that of the series.
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub rate_series: Option<PathBuf>,
}
overlay!(WorkloadOptions; mix, classes, dynamic_share, dynamic_urls, trace, trace_format, speed, session_gap,
    logged_host, rate_series);
