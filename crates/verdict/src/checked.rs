//! Stages that could be the limit, and how full each was.

use super::evidence::{Evidence, typical};
use analyze::account::{GroupLevel, serves, workers};
use record::account::ENDED;
use record::names;
use record::units::grouped;

/// A stage of the server and how full it was at the highest load under strain.
#[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct CheckedStage {
    /// Name of the stage: a CPU, a pool of threads, a queue, a limit.
    pub stage: String,
    /// Used share of the stage's capacity (1 = full).
    pub used_ratio: f64,
    /// Whether the use of the stage reaches the saturation criterion.
    pub is_full: bool,
}

pub(super) fn stages(evidence: &Evidence<'_>) -> Vec<CheckedStage> {
    let points = evidence.strained();
    let full = evidence.criteria().saturation_ratio;
    let mut all = Vec::new();
    let mut add = |stage: String, used: Option<f64>| {
        let used = used.filter(|used| used.is_finite());
        all.extend(used.map(|used_ratio| CheckedStage { stage, used_ratio, is_full: used_ratio >= full }));
    };
    let figure = |name: &str| typical(&points, name);
    add("the server's CPUs".into(), figure(names::SERVER_CPU_BUSY));
    add("its busiest thread".into(), figure(names::SERVER_BUSIEST_THREAD));
    add("its CPU time limit".into(), figure(names::SERVER_QUOTA_USED));
    add("its descriptors".into(), figure(names::SERVER_DESCRIPTORS));
    let queue = figure(names::ACCEPT_QUEUE_MAX).zip(figure(names::ACCEPT_QUEUE_LIMIT));
    add("its accept queue".into(), queue.map(|(longest, limit)| longest / limit));
    add("the table of tracked connections".into(), figure(names::NET_CONNTRACK_USED));
    add("the network link".into(), figure(names::NET_LINK_USED));
    add("the client's CPUs".into(), figure(names::CLIENT_UTILISATION));
    let accounts = evidence.accounts();
    let Some(level) = accounts.last() else { return all };
    let is_stage = |group: &&GroupLevel| {
        let is_at_work = group.threads - group.idle >= 0.01 && !group.name.starts_with(ENDED);
        is_at_work && (!group.is_asleep() || serves(accounts, level, group))
    };
    for group in level.groups.iter().map(|group| workers(accounts, group)).filter(|group| is_stage(&group)) {
        add(group.label(), Some(group.busy_ratio()));
    }
    for backend in level.asked() {
        let count = grouped(backend.connections.round());
        add(format!("{count} connections to {}", backend.address), Some(backend.busy / backend.connections));
    }
    all
}
