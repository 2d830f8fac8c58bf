use record::figure::{Figure, Figures};
use record::point::FunctionCost;
use record::profile::Stacks;
use record::{Doubt, Watched};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A watcher's observation of a window, with the figures of point.json and the facts of run.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WireObservation {
    /// The figures of the window.
    pub figures: Figures,
    /// Mean numbers of connections by state.
    pub connection_states: BTreeMap<String, Figure>,
    /// The account of the server's threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<record::account::Account>,
    /// Doubts about the window.
    pub doubts: Vec<Doubt>,
    /// Facts about the server by name.
    pub server_facts: BTreeMap<String, String>,
    /// When the window began and ended on the watcher's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges_ns: Option<[u64; 2]>,
    /// Requests by size class, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The most expensive functions, if the layers were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCost>,
    /// Functions that divide the server's work, with their callees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_callees: Vec<FunctionCost>,
    /// All stacks, if the layers were sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
}
