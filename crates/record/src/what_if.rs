//! Questions for `predict` that are kept with a scenario, so that every run of it answers them.

use serde::{Deserialize, Serialize};

/// What-if question: absent values stay as measured. Read from `run.json`, so it is untrusted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct WhatIf {
    /// A name given by the user; may be empty. Untrusted text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Connections of a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Open loop at this rate, requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_sec: Option<f64>,
    /// Open loop at this multiple of the run's highest throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_times: Option<f64>,
    /// Number of CPUs of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Delay added to each round trip, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// Number of cold connections during the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<u64>,
    /// Whether the server uses scalable select.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scaled_select: bool,
    /// Layers and functions that become cheaper: name, and saved share of the cost. Untrusted text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cheaper: Vec<(String, f64)>,
    /// Another mix: class (label or number) and share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mix: Vec<(String, f64)>,
}
