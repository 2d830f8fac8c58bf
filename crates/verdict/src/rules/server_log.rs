use super::*;
use record::PlainText;

pub(super) const RULE: Rule = Rule {
    id: "server-log",
    cause: "the server's own log names a limit",
    evidence: "the last lines that the server printed (`server.log`) on threads, memory, descriptors, connections, \
               workers, connection pools, listen queues, request limits, backends, crashes",
    threshold: "a line of a known kind that no other rule quotes; a possibility unless more than the criterion \
                `error_ratio` of the requests, and at least 5, fail in most points of a load and at most of the loads \
                above it",
    refuted_by: "the line appears at low loads, or while the server starts or ends",
    remedy: "a higher value of the limit that the line names",
    source: "log messages of nginx, Apache, PHP-FPM, uWSGI, HikariCP, SQLAlchemy, PostgreSQL, MySQL, Java, Go, the \
        kernel",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client", "client-ports"],
    judge,
};

/// Bytes that are read from the end of the log.
const READ_BYTES: usize = 64 << 10;
/// Longest quote of a line, in characters.
const QUOTED: usize = 160;

struct LogLineKind {
    /// Rule that the line supports.
    rule: &'static str,
    /// Texts that the line contains, in lower case.
    words: &'static [&'static str],
    /// Meaning of the line.
    means: &'static str,
    /// The remedy; empty if the line names no limit.
    advice: &'static str,
}

/// Kinds of lines. A kind that explains others comes first.
const KINDS: [LogLineKind; 13] = [
    LogLineKind {
        rule: "threads",
        words: &[
            "create a thread",
            "create thread",
            "create native thread",
            "create new native thread",
            "create new os thread",
            "create worker thread",
            "start new thread",
            "start a new thread",
            "pthread_create",
            "cannot fork",
            "can't fork",
            "fork failed",
            "fork() failed",
            "fork: retry",
        ],
        means: "could not start a thread or process",
        advice: "a higher limit (`ulimit -u`, `TasksMax=`, `pids.max` and memory of its control group), or a fixed \
                 number of workers",
    },
    LogLineKind {
        rule: "paging",
        words: &["outofmemoryerror", "out of memory", "cannot allocate memory", "memoryerror", "std::bad_alloc"],
        means: "ran out of memory",
        advice: "more memory for it (`-Xmx`, `memory.max` of its control group), or less for each request",
    },
    LogLineKind {
        rule: "descriptors",
        words: &["too many open files", "emfile"],
        means: "had no file descriptor left",
        advice: "a higher limit (`ulimit -n 65536`, `LimitNOFILE=`, `worker_rlimit_nofile` of nginx)",
    },
    LogLineKind {
        rule: "backlog",
        words: &["listen queue of socket", "listen queue overflow"],
        means: "did not accept connections fast enough",
        advice: "a longer listen queue and `sysctl -w net.core.somaxconn=4096`, or more workers",
    },
    LogLineKind {
        rule: "worker-pool",
        words: &["worker_connections are not enough"],
        means: "had no connection left in a worker",
        advice: "more `worker_connections` in its configuration",
    },
    LogLineKind {
        rule: "worker-pool",
        words: &["reached maxrequestworkers", "reached maxclients", "reached pm.max_children", "server seems busy"],
        means: "had no free worker",
        advice: "more workers (`MaxRequestWorkers` of Apache, `pm.max_children` of PHP-FPM), or shorter requests",
    },
    LogLineKind {
        rule: "backend-pool",
        words: &[
            "pool exhausted",
            "queuepool limit",
            "connection pool timeout",
            "connection is not available, request timed out",
            "timeout waiting for connection from pool",
            "timeout waiting for idle object",
            "too many clients already",
            "remaining connection slots are reserved",
            "too many connections",
        ],
        means: "had no connection left to another server",
        advice: "more connections in that pool and at that server, or fewer calls a request",
    },
    LogLineKind {
        rule: "server-errors",
        words: &["limiting requests", "limiting connections"],
        means: "refuses requests beyond a limit of its configuration",
        advice: "a higher `limit_req` or `limit_conn`",
    },
    LogLineKind {
        rule: "server-errors",
        words: &["no space left on device", "enospc", "disk quota exceeded"],
        means: "had no space left on a file system",
        advice: "free or add space there (`df -h`, `df -i`), or rotate its logs",
    },
    LogLineKind {
        rule: "backend-connects",
        words: &["cannot assign requested address", "eaddrnotavail"],
        means: "had no local port left for another connection",
        advice: "connections to the backend that stay open (keep-alive, a pool), or \
                 `sysctl -w net.ipv4.ip_local_port_range='1024 65535'` in its network namespace",
    },
    LogLineKind {
        rule: "backend",
        words: &["no live upstreams", "upstream timed out", "while connecting to upstream", "has no server available"],
        means: "had no answer from a backend",
        advice: "check whether the backend runs, and measure it alone",
    },
    LogLineKind {
        rule: "crash",
        words: &["panic:", "panicked at", "fatal error:", "segmentation fault", "core dumped"],
        means: "crashed, at least one of its processes",
        advice: "see the lines around it in `server.log`",
    },
    // Any server's words for a request that failed. They say nothing about a limit, but may explain errors.
    LogLineKind {
        rule: "server-errors",
        words: &["error", "fail", "refused", "timed out", "timeout", "exhausted", "unavailable", "denied", "too many"],
        means: "",
        advice: "",
    },
];

/// The lines of one kind.
pub struct MatchedLines {
    kind: &'static LogLineKind,
    times: usize,
    last: PlainText,
}

impl MatchedLines {
    /// The remedy, if the line names a limit.
    pub fn advice(&self) -> Option<&'static str> {
        Some(self.kind.advice).filter(|advice| !advice.is_empty())
    }

    fn quote(&self) -> String {
        format!("\"{}\" ({} of its last lines)", self.last.as_str(), grouped(self.times as f64))
    }
}

/// The kinds of lines at the end of a log, in the order of [`KINDS`].
pub fn matched_lines(log: &[u8]) -> Vec<MatchedLines> {
    let log = &log[log.len().saturating_sub(READ_BYTES)..];
    let lines: Vec<(&[u8], String)> =
        log.split(|byte| *byte == b'\n').map(|line| (line, String::from_utf8_lossy(line).to_lowercase())).collect();
    let of_kind = |kind: &'static LogLineKind| {
        let is_of_kind = |(_, lower): &&(&[u8], String)| kind.words.iter().any(|words| lower.contains(words));
        let mut lines = lines.iter().filter(is_of_kind);
        let (last, _) = lines.next_back()?;
        Some(MatchedLines { kind, times: lines.count() + 1, last: PlainText::of_bytes(last, QUOTED) })
    };
    KINDS.iter().filter_map(of_kind).collect()
}

/// A sentence that quotes a log line in support of a rule; empty without such a line. Every line explains errors.
pub fn quote(evidence: &Evidence<'_>, rule: &str) -> String {
    let mut said = evidence.log().into_iter().flatten();
    let said = said.find(|said| said.kind.rule == rule || rule == "server-errors");
    let said = said.filter(|said| said.advice().is_some() || said.times as u64 >= LEAST_ERRORS);
    said.map_or(String::new(), |said| format!(" The server printed {}.", said.quote()))
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let said = evidence.log()?.first().filter(|said| said.advice().is_some())?;
    let limit = evidence.criteria().error_ratio;
    let failing = evidence
        .first_level(|point| point.outcomes.failed_ratio() > limit && point.outcomes.failed() >= LEAST_ERRORS)
        .map(|(at, _)| format!(" Requests fail from {at} on."));
    let is_proven = failing.is_some();
    let because =
        format!("The server printed that it {}: {}.{}", said.kind.means, said.quote(), failing.unwrap_or_default());
    finding(because, format!("To try: {}.", said.kind.advice), &[])?.proven_if(is_proven)
}
