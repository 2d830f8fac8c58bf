use record::figure::{Figure, Figures};
use record::point::FunctionCost;
use record::profile::Stacks;
use record::{Doubt, Watched};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A watcher's observation of a window, with the figures of point.json and the facts of run.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WireObservation {
    pub figures: Figures,
    pub connection_states: BTreeMap<String, Figure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<record::account::Account>,
    pub doubts: Vec<Doubt>,
    pub server_facts: BTreeMap<String, String>,
    /// When the window began and ended on the watcher's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges_ns: Option<[u64; 2]>,
    /// Requests by size class, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The most expensive functions, and all stacks, if the layers were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
}
