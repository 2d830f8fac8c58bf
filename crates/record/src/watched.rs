//! A point's requests as counted on the server by `observe::watch`.
//!
//! Figures of all classes together are among the point's own figures ([`crate::names`], `watch.`); here they are by
//! size class, with the same names.

use crate::figure::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Requests of a point by size class and process, as counted on the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Watched {
    /// Level of detail: `zero`, `counts`, `budgeted` or `exact`.
    pub mode: String,
    /// Requests by size class of the response, small to large. Empty if requests were not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<WatchedClass>,
    /// Requests by process, if several processes answered some; the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<WatchedProcess>,
    /// Why requests were not counted in the whole window; absent if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Requests of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WatchedProcess {
    /// Id of the process.
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
    /// First size of the next class; absent for the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_bytes: Option<u64>,
    /// Figures of the class by the names of a point's figures: requests, bytes, CPU and elapsed time, phases,
    /// demands.
    pub figures: Figures,
    /// Half of the 95 % interval of the figures that are based on windows; absent with fewer than five windows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub half_widths: BTreeMap<String, f64>,
}

/// Counts of the client for a load that was watched on the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClientSide {
    /// Complete responses whose last byte came within the window.
    pub completed_in_window: u64,
    /// Length of the window, nanoseconds.
    pub window_ns: u64,
    /// Complete responses since the load began, including the warm-up; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_in_all: Option<u64>,
    /// Requests that the client gave up; each may still have been answered.
    pub given_up: u64,
}
