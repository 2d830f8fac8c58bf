use super::*;
use crate::layout::{self, PossibleGain, Remedy};
use crate::user_time::{USER_GROWTH_RATIO, user_growth};
use analyze::growth;
use record::layers::Layer;

pub(super) const RULE: Rule = Rule {
    id: "memory-bound",
    cause: "the server's memory use outgrew the cache",
    evidence: "user part of CPU per request by load, growth of `server.memory_bytes` with the connections, \
               second-level cache, functions by sampling, cache misses where the hardware counts them",
    threshold: "CPU per request grew 1.25 times; at least half of the growth in user mode, which grew 1.5 times and by \
                more than three standard errors (at least 30 requests on both sides; with less than 20 ticks at the \
                low loads, all their CPU time counts as user time); a CPU saturated; no more processes than before; \
                memory grew by more than the cache; the same functions. A possibility without hardware counters",
    refuted_by: "`straingauge simulate` or `perf stat -e LLC-load-misses` counts no more misses per request",
    remedy: "`memwalk -p BUILD --report` on its source; `straingauge simulate` counts the misses",
    source: "Bhatia, Consel and Lawall (2006)",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client", "scalable-select", "slows-with-time", "leak", "spin"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let grown = user_growth(evidence)?;
    let cache = evidence.run.record.machine.l2_cache_bytes;
    let memory = grown.memory()?;
    if memory < cache.unwrap_or(1 << 20) as f64
        || !are_same_functions(&grown.low, &grown.high, evidence.criteria().confidence_ratio)
    {
        return None;
    }
    let misses = misses_grew(&grown.low, &grown.high);
    if misses == Some(false) {
        return None;
    }
    let counted = if misses.is_some() { "; its cache misses, counted by the hardware, grew with it" } else { "" };
    let won = grown.won();
    let words = |won: PossibleGain| {
        format!(" Without that growth, a CPU would serve at most {:.2} times the requests.", won.at_most)
    };
    let helps = won.is_some_and(|won| layout::remedy(won, Some(memory), None, cache) != Some(Remedy::Neither));
    let pid = server_pid(evidence.run);
    let (command, shows) = if helps {
        (
            "memwalk -p BUILD --report".to_string(),
            "on its source (BUILD has compile_commands.json) shows what each stage holds for a connection",
        )
    } else {
        (format!("perf top -p {pid}"), "under load shows its most expensive functions")
    };
    let cache = cache.map_or("size not known".into(), |bytes| format_bytes(bytes as f64));
    finding(
        format!(
            "{}, more than the kernel's, and its memory by {} with the connections, more than the second-level cache \
             ({cache}){counted}.{}",
            grown.sentence(),
            format_bytes(memory),
            won.map(words).unwrap_or_default()
        ),
        format!(
            "It may be cache misses or more work. To decide: `straingauge simulate` counts the misses, `perf top -p \
             {pid}` under load shows a list that is searched; `{command}` {shows}."
        ),
        &[command],
    )?
    .proven_if(misses.is_some())
}

/// Whether cache misses grew by half; `None` without hardware counters.
fn misses_grew(low: &[&Point], high: &[&Point]) -> Option<bool> {
    let of = |points: &[&Point], event: &str| typical(points, &names::event_per_packet("user", event));
    let events = ["llc-load-misses", "l1d-load-misses"];
    let known: Vec<(f64, f64)> = events.iter().filter_map(|event| Some((of(low, event)?, of(high, event)?))).collect();
    (!known.is_empty())
        .then(|| known.iter().any(|(before, after)| *after >= USER_GROWTH_RATIO * before && *after > 0.0))
}

/// Whether the user function that grew most was also sampled at the low load. Unknown counts as yes.
fn are_same_functions(low: &[&Point], high: &[&Point], confidence: f64) -> bool {
    let is_user = |name: &str| {
        let mut known = high.iter().flat_map(|point| &point.functions);
        known.any(|cost| cost.function == name && cost.layer == Some(Layer::User))
    };
    let grown = growth::functions(low, high, confidence);
    grown.iter().find(|growth| is_user(&growth.name)).is_none_or(|growth| growth.from_us > 0.0)
}
