use super::*;

pub(super) const RULE: Rule = Rule {
    id: "memory-limit",
    cause: "the server reached its memory limit",
    evidence: "`server.memory_stalled_ratio` (`memory.pressure` of its control group), \
               `server.memory_limit_hits_per_sec` and `server.killed_for_memory` (`memory.events`), \
               `server.major_faults_per_sec` over `client.throughput_per_sec`",
    threshold: "under strain a thread was stalled for memory for a fifth of the time, the limit was reached at least \
                once per second, and fewer pages than one for every 20 requests were read from a disk (else \
                `paging`); or the kernel killed a process of the control group in any point",
    refuted_by: "throughput stays the same with a higher limit",
    remedy: "a higher `memory.high` or `memory.max` of its control group, `docker update --memory`, `limits.memory` of \
             Kubernetes, `MemoryHigh=` of systemd; a smaller cache",
    source: "the kernel's documentation of cgroup v2, `memory.high`, and of pressure stall information",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client"],
    judge: |evidence| killed(evidence).or_else(|| stalled(evidence)),
};

const LEAST_STALLED: f64 = 0.2;
const LEAST_HITS_PER_SEC: f64 = 1.0;
/// Pages read from disk per request from which disk reads are the cause of the wait.
pub(super) const LEAST_PAGES_PER_REQUEST: f64 = 0.05;

/// The limit that the server's control group reached under strain.
pub(super) struct ReachedMemoryLimit {
    hits_per_sec: f64,
    /// ` of 48.0 MiB (/sys/fs/cgroup/app/memory.high)`; empty if its file was not seen.
    which: String,
    /// Commands that double the limit.
    pub(super) commands: Vec<String>,
    pub(super) advice: String,
}

/// The limit that was reached; `None` without one.
pub(super) fn reached(evidence: &Evidence<'_>) -> Option<ReachedMemoryLimit> {
    let hits_per_sec = typical(&evidence.strained(), names::SERVER_MEMORY_LIMIT_HITS)?;
    let (which, commands, advice) = limit(evidence);
    (hits_per_sec >= LEAST_HITS_PER_SEC).then_some(ReachedMemoryLimit { hits_per_sec, which, commands, advice })
}

/// The limit in words, the commands that double it, and the advice.
fn limit(evidence: &Evidence<'_>) -> (String, Vec<String>, String) {
    let fact = |name: &str| evidence.run.record.server_facts.get(name);
    let limit = fact("memory_limit").and_then(|bytes| bytes.parse::<u64>().ok()).zip(fact("memory_limit_file"));
    let (which, commands) = match limit {
        Some((bytes, file)) => (
            format!(" of {} ({})", format_bytes(bytes as f64), plain(file, 200)),
            vec![format!("echo {} > {}", bytes.saturating_mul(2), quoted(file))],
        ),
        None => Default::default(),
    };
    let doubles = commands.first().map_or(String::new(), |command| format!("`{command}` doubles it; "));
    let advice = format!(
        "a higher limit ({doubles}`docker update --memory`, `limits.memory` of Kubernetes, `MemoryHigh=` of systemd), \
         or keep, write or map less"
    );
    (which, commands, advice)
}

/// Processes of the server that the kernel killed at the limit.
fn killed(evidence: &Evidence<'_>) -> Option<Finding> {
    let in_point = |point: &&Point| point.value(names::SERVER_KILLED).is_some_and(|killed| killed >= 1.0);
    let points: Vec<&Point> = evidence.run.points.iter().filter(in_point).collect();
    let all: f64 = points.iter().filter_map(|point| point.value(names::SERVER_KILLED)).sum();
    let first = points.first()?;
    let (which, commands, advice) = limit(evidence);
    finding(
        format!(
            "The kernel killed {} of the server's control group at its limit of memory{which}, in {} (the first with \
             {}).",
            count(all as usize, "process"),
            count(points.len(), "point"),
            load_words(first.load(), first.sweep),
        ),
        format!("To try: {advice}."),
        &commands,
    )
}

impl ReachedMemoryLimit {
    /// The limit as a clause: `reached its limit of memory of 48.0 MiB (...) 210 times a second`.
    pub(super) fn clause(&self) -> String {
        format!("reached its limit of memory{} {} times a second", self.which, format_si(self.hits_per_sec))
    }
}

/// A thread that was stalled while the kernel reclaimed memory at the limit.
fn stalled(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    let reached = reached(evidence)?;
    let stalled = typical(&points, names::SERVER_MEMORY_STALLED)?;
    let pages = typical(&points, names::SERVER_MAJOR_FAULTS).unwrap_or(0.0);
    if stalled < LEAST_STALLED || pages >= LEAST_PAGES_PER_REQUEST * typical(&points, names::THROUGHPUT)? {
        return None;
    }
    let before = typical(&evidence.lowest(), names::SERVER_MEMORY_STALLED);
    let before = before.map_or(String::new(), |share| format!(", {} at the lowest load", percent(share)));
    finding(
        format!(
            "The server {} beyond the yield point, and for {} of the time a thread was stalled while the kernel \
             reclaimed memory{before}; few pages were read from disk.",
            reached.clause(),
            percent(stalled)
        ),
        format!("To try: {}.", reached.advice),
        &reached.commands,
    )
}
