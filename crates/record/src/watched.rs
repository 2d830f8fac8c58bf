//! What the server's side saw of a point's requests: the watch of `observe::watch`, in the form in which a point keeps
//! it.
//!
//! Figures of all classes together stand among the point's own ([`crate::names`], `watch.`); here they stand by size
//! class, under the same names.

use crate::figure::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Requests of a point by size class and process, as seen from the server's side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Watched {
    /// Level of detail: `zero`, `counts`, `budgeted` or `exact`.
    pub mode: String,
    /// By size class of the response, small to large. Empty where requests were not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<WatchedClass>,
    /// Requests by process, where several processes answered some; the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<WatchedProcess>,
    /// Why requests were not counted in the whole window; absent if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Requests of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WatchedProcess {
    /// Number of the process.
    pub pid: u32,
    /// Requests that the process finished.
    pub requests: u64,
    /// Requests that the process finished per second.
    pub per_sec: f64,
}

/// Requests of one size class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct WatchedClass {
    /// Name of the class. Untrusted text if it is read from a file.
    pub name: String,
    /// Smallest response, head and body, bytes.
    pub from_bytes: u64,
    /// First size that belongs to the next class; absent for the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_bytes: Option<u64>,
    /// Figures of the class by the names of a point's figures: requests, bytes, CPU and elapsed time, phases,
    /// demands.
    pub figures: Figures,
    /// Half of the 95 % interval of the figures that are based on windows; absent with fewer than five windows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub half_widths: BTreeMap<String, f64>,
}

/// Counts of the client for a load that the server's side saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClientSide {
    /// Complete responses whose last byte came within the window.
    pub completed_in_window: u64,
    /// The window's length.
    pub window_ns: u64,
    /// Complete responses since the load began, warm-up included; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_in_all: Option<u64>,
    /// Requests that the client gave up: each may have been answered all the same.
    pub given_up: u64,
}
