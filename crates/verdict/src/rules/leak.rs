use super::*;

pub(super) const RULE: Rule = Rule {
    id: "leak",
    cause: "memory grows with each request",
    evidence: "`server.anonymous_memory_bytes` against the requests served",
    threshold: "at least 16 MiB (512 MiB for java, node, dotnet, ruby and Erlang, whose heaps are collected late), 1.5 \
                times, and 64 bytes per request; a straight line explains 95 %; the second half grows at 60 % of the \
                first half's rate or more; at least 8 points; always a possibility",
    refuted_by: "the growth ends under a longer steady load (a cache that fills, a heap before a collection)",
    remedy: "`grep -E 'VmRSS|RssAnon' /proc/PID/status` under a longer steady load; heaptrack, valgrind \
             --tool=massif",
    source: "memory grows linearly with requests if it leaks, but not if a cache fills",
    is_limit: false,
    is_counted: true,
    hidden_by: &[],
    judge,
};

const LEAK_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const LEAK_BYTES_OF_A_HEAP: f64 = 512.0 * 1024.0 * 1024.0;
const LEAK_RATIO: f64 = 1.5;
const LEAST_LEAK_POINTS: usize = 8;
const LEAK_EXPLAINED: f64 = 0.95;
const LEAK_STEADY: f64 = 0.6;
const LEAST_LEAK_PER_REQUEST: f64 = 64.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let points: Vec<(f64, f64)> = evidence
        .run
        .points
        .iter()
        .filter(|point| point.sweep != Sweep::Yardstick)
        .filter_map(|point| {
            let at_end = evidence.served_before(point.index) + point.outcomes.completed() as f64;
            let memory = point.value(names::SERVER_ANONYMOUS_MEMORY).or_else(|| point.value(names::SERVER_MEMORY));
            Some((at_end, memory?))
        })
        .filter(|(_, bytes)| bytes.is_finite())
        .collect();
    let (first, last) = (*points.first()?, *points.last()?);
    let middle = (first.0 + last.0) / 2.0;
    let (first_half, second_half): (Vec<_>, Vec<_>) = points.iter().copied().partition(|(served, _)| *served <= middle);
    let (grown, served) = (last.1 - first.1, last.0 - first.0);
    let has_heap = analyze::programs::collects_late(&evidence.run.record);
    if points.len() < LEAST_LEAK_POINTS
        || grown < if has_heap { LEAK_BYTES_OF_A_HEAP } else { LEAK_BYTES }
        || last.1 < LEAK_RATIO * first.1
        || served < LEAST_REQUESTS
    {
        return None;
    }
    let (slope, share) = line(&points)?;
    let (early, late) = (line(&first_half)?.0, line(&second_half)?.0);
    // Growth with connections and of a filling cache ends; a leak does not.
    if share < LEAK_EXPLAINED || late < LEAK_STEADY * early || slope < LEAST_LEAK_PER_REQUEST {
        return None;
    }
    let pid = server_pid(evidence.run);
    let command = format!("grep -E 'VmRSS|RssAnon' /proc/{pid}/status");
    finding(
        format!(
            "The server's memory grew with every request and was not freed: from {} to {} over {} requests, {} each (a \
             straight line explains {} of it, n = {} points).",
            format_bytes(first.1),
            format_bytes(last.1),
            format_si(served),
            format_bytes(slope),
            percent(share),
            points.len()
        ),
        format!(
            "It may be a leak, a cache that fills, or a heap before a collection. To decide: `{command}` under a \
             longer steady load shows whether the growth ends; a heap profiler (heaptrack, valgrind --tool=massif) \
             shows what the server keeps."
        ),
        &[command],
    )?
    .proven_if(false)
}
