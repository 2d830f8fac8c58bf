//! Options for watching the server in points of `load` and `find`.

use super::overlay;
use crate::quantity::Share;
use clap::{Args, ValueEnum};
use record::watch::Mode;
use serde::Deserialize;

/// Options of the watch in points.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Watching the requests of a server, on this machine or with --watch-with")]
pub struct WatchingOptions {
    /// Level of detail [default: {detail}; load without -- SERVER or --watch-with: off]
    ///
    /// For the watch of the server in every point.
    #[arg(long, value_enum)]
    pub detail: Option<WatchWord>,
    /// Share of the server's CPU time that watching may cost [default: {overhead}]
    ///
    /// Used with --detail budgeted.
    #[arg(long, value_name = "SHARE")]
    pub overhead: Option<Share>,
    // This key exists only in scenario files: upper bounds of the size classes, in bytes of response.
    #[arg(skip)]
    pub response_classes: Option<String>,
    /// Also time functions of the server: nginx, apache, or a file
    ///
    /// Each is timed in short windows of each point, within the budget.
    #[arg(long, value_name = "PACK")]
    pub pack: Option<String>,
}
overlay!(WatchingOptions; detail, overhead, response_classes, pack);

/// Levels of detail, as typed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchWord {
    /// Do not watch the server
    Off,
    /// Count connections only; nothing runs per request
    Zero,
    /// Count every request at any cost: bytes, CPU and elapsed time by class
    Counts,
    /// Count requests and time phases in windows, as far as --overhead allows
    #[default]
    Budgeted,
    /// Count every request and time its phases at any cost
    Exact,
}

impl WatchWord {
    /// The mode of the watch; `None` if there is no watch.
    pub fn mode(self) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| self.to_possible_value().is_some_and(|word| word.matches(mode.word(), false)))
    }
}
