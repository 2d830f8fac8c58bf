//! CPU time of a collector's threads.

use super::command::server_pid;
use super::evidence::Evidence;
use super::judge::{Finding, finding};
use super::rules::Rule;
use crate::account::{AccountLevel, GroupLevel};
use crate::zones::{load_words, percent};

pub(super) const RULE: Rule = Rule {
    id: "garbage-collection",
    cause: "the collection of garbage takes much of the server's CPU time",
    evidence: "the account: CPU time of the threads that HotSpot names after its collectors (`GC Thread`, `G1 ...`, \
               `ZWorker`, `Shenandoah ...`), by load",
    threshold: "a quarter of the CPU time of all of the server's threads at the highest load under strain, and 0.05 \
                CPUs",
    refuted_by: "a larger heap leaves throughput and the collector's share as they are",
    remedy: "a larger heap (`-Xmx`), fewer objects a request; `-Xlog:gc` shows the pauses",
    source: "Jones, Hosking and Moss, \"The Garbage Collection Handbook\": collection costs less the more room is left",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

const LEAST_SHARE: f64 = 0.25;
const LEAST_CPUS: f64 = 0.05;

/// Beginnings of the names that HotSpot gives to its collectors' threads.
const THREADS: [&str; 6] = ["GC Thread", "G1 ", "ZWorker", "ZDriver", "Shenandoah", "ParGC Thread"];

fn is_collector(group: &GroupLevel) -> bool {
    let thread = group.name.split_once(": ").map(|(_, thread)| thread);
    thread.is_some_and(|thread| THREADS.iter().any(|name| thread.starts_with(name)))
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let from = evidence.strained_from()?;
    let sweep = evidence.sweep()?.sweep;
    let (low, high) = (evidence.accounts().first()?, evidence.accounts().iter().rfind(|level| level.load >= from)?);
    let cpus = |level: &AccountLevel, is_wanted: fn(&GroupLevel) -> bool| -> f64 {
        level.groups.iter().filter(|group| is_wanted(group)).map(|group| group.running).sum()
    };
    let (collector, all) = (cpus(high, is_collector), cpus(high, |_| true));
    if collector < LEAST_CPUS || collector < LEAST_SHARE * all {
        return None;
    }
    let before = cpus(low, is_collector) / cpus(low, |_| true).max(f64::MIN_POSITIVE);
    let pid = server_pid(evidence.run);
    let command = format!("jcmd {pid} GC.heap_info");
    finding(
        format!(
            "The collection of garbage takes much of the server's CPU time: at {} its collector's threads used \
             {collector:.2} of {all:.2} CPUs ({}), {} of them at {}.",
            load_words(high.load, sweep),
            percent(collector / all),
            percent(before),
            load_words(low.load, sweep)
        ),
        format!(
            "To try: a larger heap (`-Xmx`), or fewer objects a request; `{command}` shows how full it is, and \
             `-Xlog:gc` how long the pauses are."
        ),
        &[command],
    )
}
