use super::*;

pub(super) const RULE: Rule = Rule {
    id: "page-faults",
    cause: "memory that each request takes anew fills the server's CPU",
    evidence: "`layer.memory_management_us_per_request` over `server.cpu_us_per_request`, \
               `server.minor_faults_per_sec` over `client.throughput_per_sec`, under strain; whether a CPU of the \
               server is saturated",
    threshold: "a third of the server's CPU time in the points under strain together, a fifth three standard errors \
                below; at least 5 faults per request; a CPU saturated",
    refuted_by: "with memory that is kept between requests, they cost as much CPU time",
    remedy: "buffers that are used again; an allocator that returns memory to the kernel later: \
             `GLIBC_TUNABLES=glibc.malloc.trim_threshold=BYTES:glibc.malloc.mmap_threshold=BYTES`",
    source: "mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD: memory that malloc returned to the kernel comes back \
             zeroed, a page at a time",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "cpu-quota", "forks", "paging", "memory-limit", "garbage-collection"],
    judge,
};

const LEAST_SHARE: f64 = 1.0 / 3.0;
const LEAST_SAMPLED: f64 = 0.2;
const LEAST_FAULTS: f64 = 5.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    let (share, samples) = cpu_share(&points, names::LAYER_MEMORY)?;
    let each = typical(&points, names::SERVER_MINOR_FAULTS)? / typical(&points, names::THROUGHPUT)?.max(1.0);
    let is_clear = share >= LEAST_SHARE && at_least(share, samples, 3.0) >= LEAST_SAMPLED;
    if !is_clear || each < LEAST_FAULTS || evidence.is_saturated(&points) != Some(true) {
        return None;
    }
    // The largest value that glibc accepts.
    let bytes = 32 << 20;
    let tunables = format!("GLIBC_TUNABLES=glibc.malloc.trim_threshold={bytes}:glibc.malloc.mmap_threshold={bytes}");
    let command = format!("perf record -e page-faults -g -p {}", server_pid(evidence.run));
    finding(
        format!(
            "Of the server's CPU time {} was in the kernel's memory management (n = {} samples): each request \
             touched {} new pages.",
            percent(share),
            grouped(samples),
            grouped(each),
        ),
        format!(
            "To try: buffers that are used again by the next request; or an allocator that keeps memory, with glibc \
             `{tunables}` in the server's environment. `{command}` shows what touches them."
        ),
        &[command],
    )
}
