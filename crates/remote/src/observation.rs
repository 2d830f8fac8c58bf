//! Messages to and from a watcher: those of `watch --worker`, besides the messages of every worker.

use record::figure::{Figure, Figures};
use record::point::FunctionCost;
use record::profile::Stacks;
use record::{Doubt, Watched};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How requests are to be watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireWatch {
    /// `zero`, `counts`, `budgeted` or `exact`.
    pub mode: String,
    /// Share of the server's CPU time that mode default may cost.
    pub overhead_ratio: f64,
    /// Boundaries of the size classes as typed; absent for the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Functions of the server that mark its phases, as text, and the text's name; absent if none are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<(String, String)>,
}

/// A watcher's observation of its server in a window: as in point.json, and facts as in run.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WireObservation {
    pub figures: Figures,
    pub connection_states: BTreeMap<String, Figure>,
    /// What the server's threads did, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<record::account::Account>,
    pub doubts: Vec<Doubt>,
    pub server_facts: BTreeMap<String, String>,
    /// When the window began and ended, on the watcher's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges_ns: Option<[u64; 2]>,
    /// Requests by size class, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The functions that cost most, and all stacks, if the layers were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
}
