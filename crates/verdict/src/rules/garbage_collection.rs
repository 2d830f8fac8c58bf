use super::*;
use crate::hot_function::{FunctionShare, shares};

pub(super) const RULE: Rule = Rule {
    id: "garbage-collection",
    cause: "garbage collection takes much of the server's CPU time",
    evidence: "the account: CPU time of the threads that HotSpot names after its collectors (`GC Thread`, `G1 ...`, \
               `ZWorker`, `Shenandoah ...`), by load; else the functions of the collectors of Go, V8 and CPython, \
               sampled",
    threshold: "at the highest load under strain at least 0.05 CPUs and a quarter of the CPU time of all of the \
                server's threads; by functions, a quarter of the server's CPU time under strain, and 15 % three \
                standard errors below",
    refuted_by: "throughput and the collector's share stay the same with a larger heap",
    remedy: "a larger heap (`-Xmx`, `GOGC`, `--max-semi-space-size`), fewer objects per request; `-Xlog:gc` shows \
             the pauses",
    source: "Jones, Hosking and Moss, \"The Garbage Collection Handbook\": collection is cheaper with more free memory",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

const LEAST_SHARE: f64 = 0.25;
const LEAST_CPUS: f64 = 0.05;

const LEAST_SAMPLED: f64 = 0.15;

/// Prefixes of HotSpot's names for its collectors' threads. The serial collector runs in the VM's thread.
const THREADS: [&str; 7] = ["VM Thread", "GC Thread", "G1 ", "ZWorker", "ZDriver", "Shenandoah", "ParGC Thread"];

/// Lower-case parts of the names of collectors' functions.
const FUNCTIONS: [&str; 16] = [
    "runtime.gc",
    "runtime.scan",
    "runtime/gc/scan",
    "runtime.trydefertospanscan",
    "runtime.greyobject",
    "runtime.findobject",
    "inlinemarkbits",
    "runtime.wbbufflush",
    "runtime.sweepone",
    "sweeplocked",
    "v8::internal::markcompact",
    "v8::internal::scavenge",
    "v8::internal::sweeper",
    "v8::internal::concurrentmarking",
    "gc_collect_main",
    "deduce_unreachable",
];

/// Whether these are the threads of a collector of HotSpot.
pub(super) fn is_collector(group: &GroupLevel) -> bool {
    let thread = group.name.split_once(": ").map(|(_, thread)| thread);
    thread.is_some_and(|thread| THREADS.iter().any(|name| thread.starts_with(name)))
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    by_threads(evidence).or_else(|| by_functions(evidence))
}

/// Finds collection by sampled functions, for collectors without own threads.
fn by_functions(evidence: &Evidence<'_>) -> Option<Finding> {
    let sum = |points: &[&Point]| {
        let of_collector = |one: &FunctionShare<'_>| {
            let function = one.function.to_lowercase();
            FUNCTIONS.iter().any(|part| function.contains(part))
        };
        let all = shares(points);
        let samples = all.first()?.samples;
        Some((all.into_iter().filter(of_collector).map(|one| one.share).sum::<f64>().min(1.0), samples))
    };
    let (share, samples) = sum(&evidence.strained()).filter(|(_, samples)| *samples > 0.0)?;
    if share < LEAST_SHARE || at_least(share, samples, 3.0) < LEAST_SAMPLED {
        return None;
    }
    let low = sum(&evidence.lowest());
    let low = low.map_or(String::new(), |(share, _)| format!(", {} at the lowest load", percent(share)));
    finding(
        format!(
            "Garbage collection takes much of the server's CPU time: under strain {} of it was in the \
             collector's functions (n = {} samples{low}).",
            percent(share),
            grouped(samples)
        ),
        "To try: let the heap grow more before each collection (Go `GOGC` and `GOMEMLIMIT`, Node.js \
         `--max-semi-space-size`, Python `gc.freeze()` and `gc.set_threshold()`), or fewer objects per request."
            .into(),
        &[],
    )
}

fn by_threads(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?.sweep;
    let (low, high) = evidence.account_under_strain()?;
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
            "Garbage collection takes much of the server's CPU time: at {} its collector's threads used \
             {collector:.2} of {all:.2} CPUs ({}), {} of them at {}.",
            load_words(high.load, sweep),
            percent(collector / all),
            percent(before),
            load_words(low.load, sweep)
        ),
        format!(
            "To try: a larger heap (`-Xmx`), or fewer objects per request; `{command}` shows how full the heap is, and \
             `-Xlog:gc` how long the pauses are."
        ),
        &[command],
    )
}
