use super::memory_limit::{LEAST_PAGES_PER_REQUEST, reached};
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "paging",
    cause: "the server waits for memory",
    evidence: "the account: threads blocked for memory, as a share of their non-idle time, by load; \
               `server.major_faults_per_sec` over `client.throughput_per_sec`",
    threshold: "at the highest load under strain a fifth of that time, and at least one page read from disk for every \
                20 requests; without such pages two fifths, as a possibility",
    refuted_by: "throughput stays the same with more memory",
    remedy: "more memory, a higher `memory.high` and `memory.max` of its control group; a smaller cache or fewer \
             mapped files",
    source: "the kernel's documentation of cgroup v2, `memory.stat`; Denning, \"The Working Set Model\" (1968)",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "memory-limit"],
    judge,
};

const LEAST_SHARE: f64 = 0.2;
const LEAST_SHARE_UNREAD: f64 = 0.4;
const LEAST_THREADS: f64 = 0.1;

/// The group with most threads blocked for memory, their mean number, and their share of its non-idle time.
fn most(level: &AccountLevel) -> Option<(&GroupLevel, f64, f64)> {
    let blocked = |group: &GroupLevel| group.blocked(WaitKind::Memory);
    let group = level.groups.iter().max_by(|a, b| blocked(a).total_cmp(&blocked(b)))?;
    Some((group, blocked(group), blocked(group) / (group.threads - group.idle).max(f64::MIN_POSITIVE)))
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?.sweep;
    let (low, high) = evidence.account_under_strain()?;
    let (group, threads, share) = most(high)?;
    let points = evidence.quiet_at(sweep, high.load);
    let pages = typical(&points, names::SERVER_MAJOR_FAULTS).unwrap_or(0.0);
    let each = pages / typical(&points, names::THROUGHPUT)?.max(1.0);
    let is_read = each >= LEAST_PAGES_PER_REQUEST;
    if threads < LEAST_THREADS || share < (if is_read { LEAST_SHARE } else { LEAST_SHARE_UNREAD }) {
        return None;
    }
    let waits = group.waits.iter().filter(|wait| wait.kind == WaitKind::Memory);
    let longest_ms = waits.map(|wait| wait.longest_ms).fold(0.0, f64::max);
    let read = if is_read {
        format!("{each:.1} pages per request were read from disk ({}/s)", format_si(pages))
    } else {
        "few pages were read from disk, so the kernel may be reclaiming memory, or another thread changing a \
        mapping"
            .into()
    };
    let reached = reached(evidence);
    let limit = reached.as_ref().map_or(String::new(), |reached| format!(" It {}.", reached.clause()));
    let (advice, commands) = reached.map_or_else(
        || {
            let command = format!("cat /proc/{}/cgroup", server_pid(evidence.run));
            let advice = format!(
                "more memory for it, or keep and map less; `{command}` names its control group, whose limits are \
                 `memory.high` and `memory.max`"
            );
            (advice, vec![command])
        },
        |reached| (reached.advice, reached.commands),
    );
    finding(
        format!(
            "The server waits for memory: at {} {threads:.2} threads of {} were blocked for it at any time, {} of \
             their non-idle time (the longest wait {}), {} at {}; {read}.{limit}",
            load_words(high.load, sweep),
            group.name,
            percent(share),
            format_nanos(longest_ms * 1e6),
            percent(most(low).map_or(0.0, |(.., share)| share)),
            load_words(low.load, sweep),
        ),
        format!("To try: {advice}."),
        &commands,
    )?
    .proven_if(is_read)
}
