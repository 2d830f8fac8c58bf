//! Stages that could be the limit, and how full each was.

use super::evidence::{Evidence, typical};
use crate::account::GroupLevel;
use record::account::ENDED;
use record::names;
use record::units::grouped;

/// Every stage of the server, how full it was at the highest load under strain, and why it is not the limit.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Checked {
    /// Name of the stage: a CPU, a pool of threads, a queue, a limit.
    pub stage: String,
    /// Used share of the stage's capacity (1 = full).
    pub used_ratio: f64,
    /// Whether the stage is full: at the criterion of saturation or above.
    pub is_full: bool,
}

/// The stages that were checked.
pub(super) fn stages(evidence: &Evidence<'_>) -> Vec<Checked> {
    let points = evidence.strained();
    let full = evidence.criteria().saturation_ratio;
    let mut all = Vec::new();
    let mut add = |stage: String, used: Option<f64>| {
        let used = used.filter(|used| used.is_finite());
        all.extend(used.map(|used_ratio| Checked { stage, used_ratio, is_full: used_ratio >= full }));
    };
    let figure = |name: &str| typical(&points, name);
    add("the server's CPUs".into(), figure(names::SERVER_CPU_BUSY));
    add("its busiest thread".into(), figure(names::SERVER_BUSIEST_THREAD));
    add("its limit of CPU time".into(), figure(names::SERVER_QUOTA_USED));
    add("its descriptors".into(), figure(names::SERVER_DESCRIPTORS));
    let queue = figure(names::ACCEPT_QUEUE_MAX).zip(figure(names::ACCEPT_QUEUE_LIMIT));
    add("its accept queue".into(), queue.map(|(longest, limit)| longest / limit));
    add("the network link".into(), figure(names::NET_LINK_USED));
    add("the client's CPUs".into(), figure(names::CLIENT_UTILISATION));
    let level = evidence.accounts().last();
    let is_stage = |group: &&GroupLevel| group.threads - group.idle >= 0.01 && !group.name.starts_with(ENDED);
    for group in level.iter().flat_map(|level| &level.groups).filter(is_stage) {
        add(group.words(), Some(group.busy_ratio()));
    }
    for backend in level.iter().flat_map(|level| &level.backends) {
        let count = grouped(backend.connections.round());
        add(format!("{count} connections to {}", backend.address), Some(backend.busy / backend.connections));
    }
    all
}
