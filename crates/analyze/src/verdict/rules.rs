//! The rules of the verdict as a table: evidence, threshold, cause, remedy and source. `--generate reference-rules`
//! prints it.
//!
//! A rule that is `hidden_by` another is left out if that one holds: its evidence is then a consequence. The order
//! matters: the first cause of a verdict is the one to fix first.

use super::evidence::Evidence;
use super::judge::{self, Finding};
use super::{
    background, cpu_bursts, dropped_packets, forks, garbage_collection, growth, loss, one_at_a_time, paging,
    server_errors, server_log, stage, tls_handshakes, waits,
};

/// One rule.
pub struct Rule {
    /// Name of the rule in JSON.
    pub id: &'static str,
    /// The cause, in a few words.
    pub cause: &'static str,
    /// The evidence: figures of [`record::names`] and findings.
    pub evidence: &'static str,
    /// The thresholds from which on the rule holds.
    pub threshold: &'static str,
    /// The observation that would refute the cause.
    pub refuted_by: &'static str,
    /// The remedy, with the command's general form.
    pub remedy: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    /// Whether the cause explains the limit of throughput, and not only the cost or the time of a request.
    pub is_limit: bool,
    /// Whether the evidence is events that the kernel or the client counted, which other work on the machine does not
    /// cause.
    pub is_counted: bool,
    /// Rules that make this one a consequence when they hold.
    pub hidden_by: &'static [&'static str],
    /// Checks a run.
    pub judge: fn(&Evidence<'_>) -> Option<Finding>,
}

/// Least share of the threads' time in which they waited for another thread, with which the cause is proven.
pub const LOCK_RATIO: f64 = 0.5;
/// Least such share with which the cause is possible, and least growth of it with load with which it is proven.
pub const LOCK_GROWTH: f64 = 0.25;
/// Least share of the descriptor limit in use.
pub const DESCRIPTORS_RATIO: f64 = 0.97;
/// Least number of accept-queue overflows, or of connections that skipped TIME_WAIT, per second.
pub const LOST_PER_SEC: f64 = 1.0;
/// The kernel retries a SYN after a second; buckets of response times are 0.1 % wide.
pub const SYN_RETRY_US: f64 = 990_000.0;
/// Least share of the sampled sleeps that are in select or poll.
pub const SELECT_RATIO: f64 = 0.9;
/// Least number of sampled sleeps.
pub const SELECT_SEEN: f64 = 5.0;
/// Least size of the set. The library leaves smaller sets to the kernel.
pub const SELECT_SET: f64 = 64.0;
/// Least CPU time of a request at the most expensive load over that at the cheapest.
pub const GROWTH_RATIO: f64 = 1.25;
/// Least share of user time in the growth of CPU time.
pub const USER_GROWTH_SHARE: f64 = 0.5;
/// Least user time at the most expensive load over that at the cheapest.
pub const USER_GROWTH_RATIO: f64 = 1.5;
/// Least softirq share of the CPU's time.
pub const SOFTIRQ_RATIO: f64 = 0.25;
/// Least share of all softirq time on that CPU.
pub const SOFTIRQ_CONCENTRATION: f64 = 0.7;
/// Least busy share of the CPU with most softirq time. The server sometimes waits, and a short point has few ticks.
pub const SOFTIRQ_CPU_BUSY: f64 = 0.9;
/// Busy share below which a CPU could take over work.
pub const IDLE_CPU_BUSY: f64 = 0.7;
/// Least used share of a link's speed, headers included.
pub const LINK_RATIO: f64 = 0.85;

/// Least number of kernel ticks for a division of CPU time.
pub const LEAST_TICKS: u64 = 20;
/// Least number of requests for a cost or a rate.
pub const LEAST_REQUESTS: f64 = 30.0;
/// Least number of events (errors, overflows, lost sends) for a rate.
pub const LEAST_ERRORS: u64 = 5;
/// Least user time at the expensive load over that at the cheap one, with which threads spin.
pub const SPIN_RATIO: f64 = 2.0;
/// Least wait for a CPU over the CPU time of a request.
pub const SPIN_WAITED: f64 = 1.0;
/// Least CPU time of a request at the last visit of a load over that at the first.
pub const TIME_GROWTH_RATIO: f64 = 1.25;
/// Least growth with time if other work disturbed the points.
pub const UNQUIET_TIME_GROWTH: f64 = 1.5;
/// Least share of the cost that a line by requests served explains, if other work disturbed the points.
pub const UNQUIET_EXPLAINED: f64 = 0.85;
/// Least number of loads that were visited twice.
pub const LEAST_LOADS: usize = 3;
/// Least growth of memory that is a leak, bytes.
pub const LEAK_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Least growth in a runtime whose heap grows for long before it is collected, bytes.
pub const LEAK_BYTES_OF_A_HEAP: f64 = 512.0 * 1024.0 * 1024.0;
/// Least memory at the end over that at the begin.
pub const LEAK_RATIO: f64 = 1.5;
/// Least number of points.
pub const LEAST_LEAK_POINTS: usize = 8;
/// Least share of the memory that a line by requests served explains.
pub const LEAK_EXPLAINED: f64 = 0.95;
/// Least slope of the second half over that of the first.
pub const LEAK_STEADY: f64 = 0.6;
/// Least growth of memory per request, bytes.
pub const LEAST_LEAK_PER_REQUEST: f64 = 64.0;
/// Time from the first byte of an answer to its last, less a round trip, that shows a delayed acknowledgement: 40 ms,
/// and ticks of the clock.
pub const DELAYED_ACK_US: std::ops::RangeInclusive<f64> = 38e3..=48e3;
/// Largest answer. Longer ones may take this long to arrive.
pub const MOST_ANSWER_BYTES: f64 = 65536.0;
/// Longest time to connect without a long path, on which an answer larger than one window takes more round trips.
pub const FAR_CONNECT_US: f64 = 5e3;
/// Largest answer over a long path: 9 segments of 1,460 bytes; the first window of 10 (RFC 6928) has the head, too.
pub const MOST_ANSWER_FAR_BYTES: f64 = 13_140.0;
/// Least number of requests of a point for its median.
pub const LEAST_ANSWERS: u64 = 10;
/// Requests in flight on a connection (Little's law) from which on several are sent at a time.
pub const PIPELINED_REQUESTS: f64 = 1.5;

/// Least number of periods of a limit of CPU time.
pub const LEAST_PERIODS: f64 = 5.0;
/// Least share of the periods in which the group was stopped.
pub const THROTTLED_RATIO: f64 = 0.2;
/// Least used share of the limit.
pub const QUOTA_USED_RATIO: f64 = 0.8;

/// CPUs of a process whose threads run one at a time: slightly less while the lock changes hands, slightly more while
/// the kernel works for one of them.
pub const ONE_CPU: std::ops::RangeInclusive<f64> = 0.9..=1.05;
/// Least share of the points under strain in which the process uses [`ONE_CPU`].
pub const ONE_CPU_POINTS: f64 = 0.8;
/// Least ratio of the highest of these loads to the lowest.
pub const ONE_CPU_LOADS: f64 = 1.5;
/// Largest share of the process's CPU time in its busiest thread.
pub const ONE_CPU_THREAD: f64 = 0.8;
/// Least number of CPUs that the server may use.
pub const ONE_CPU_OF: f64 = 1.5;

/// All rules.
pub const RULES: [Rule; 36] = [
    Rule {
        id: "client-ports",
        cause: "the client had no local port left",
        evidence: "requests that ended because no local port or descriptor was left (`local_limit`)",
        threshold: "more than the criterion `error_ratio` of the requests in most points of a load",
        refuted_by: "the client can send the same requests over keep-alive, or from more addresses",
        remedy: "`sysctl -w net.ipv4.ip_local_port_range='1024 65535' net.ipv4.tcp_tw_reuse=1` on the client, \
                 `--source-address`, keep-alive",
        source: "Almeida, Almeida and Yates (1996), section 5.5: ports wait in TIME_WAIT for a minute",
        is_limit: true,
        is_counted: true,
        hidden_by: &[],
        judge: judge::client_ports,
    },
    Rule {
        id: "client",
        cause: "the client was the bottleneck",
        evidence: "`client.cpu_utilisation_ratio` and the client's doubts, compared with the server's busiest thread \
                   and CPUs",
        threshold: "the client is saturated (criterion `saturation_ratio`), the server is not, and there is no yield \
                    point below",
        refuted_by: "with a second client machine the server answers no more requests",
        remedy: "`--client 'ssh HOST straingauge load --worker'`, `--cpus`, `--threads`",
        source: "Banga and Druschel (1997): a client must be able to overload the server",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client-ports"],
        judge: judge::client,
    },
    Rule {
        id: "descriptors",
        cause: "the server's descriptor limit",
        evidence: "`server.descriptors_used_ratio`; connections that waited to be accepted (`tcp.accept_queue_max`), \
                   got no answer, or were refused or closed",
        threshold: "97 % of the limit in use in most points of a load and of the loads above it, with such connections",
        refuted_by: "`/proc/PID/limits` is far above the number of open descriptors",
        remedy: "`sh -c 'ulimit -n 65536; exec SERVER'`; `LimitNOFILE=` in a systemd unit",
        source: "accept(2), EMFILE",
        is_limit: true,
        is_counted: true,
        hidden_by: &[],
        judge: judge::descriptors,
    },
    Rule {
        id: "cpu-quota",
        cause: "the server's limit of CPU time",
        evidence: "`server.cpu_throttled_ratio` and `server.cpu_quota_used_ratio`, from the control group's `cpu.stat`",
        threshold: "beyond the yield point the group was stopped in at least 20 % of its periods (lower end of the \
                    interval, 5 periods or more) and used at least 80 % of the limit",
        refuted_by: "`nr_throttled` in the group's `cpu.stat` does not grow under this load",
        remedy: "a higher limit: `docker update --cpus`, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd; less \
                 CPU time per request",
        source: "Turner, Rao and Rao, \"CPU bandwidth control for CFS\" (Linux Symposium 2010); the kernel's \
                 documentation of cgroup v2, `cpu.max`",
        is_limit: true,
        is_counted: true,
        hidden_by: &[],
        judge: judge::cpu_quota,
    },
    cpu_bursts::RULE,
    Rule {
        id: "stays-down",
        cause: "the server stays down after overload",
        evidence: "good answers per second on the way down compared with the way up, load by load within repeats \
                   (`find --unload`)",
        threshold: "at a load that held on the way up, at most three quarters in the median of 3 repeats or more, \
                    and 90 % at the upper end of the interval. A server that never came back: the same at two or \
                    more of the lowest loads, compared with its throughput before, in all of 5 later visits or more; \
                    always a possibility",
        refuted_by: "the next way up is as slow: then the server slows with time",
        remedy: "a limit of waiting work (requests under way, a timeout for queued work), retries with a budget and \
                 backoff; until then lower the load below the recovery point",
        source: "Bronson and others, \"Metastable Failures in Distributed Systems\" (HotOS 2021); Huang and others, \
                 \"Metastable Failures in the Wild\" (OSDI 2022): overload that outlives its cause",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client", "client-ports", "slows-with-time"],
        judge: judge::stays_down,
    },
    server_errors::RULE,
    server_log::RULE,
    Rule {
        id: "slow-file",
        cause: "the server waits for a file or a slow log",
        evidence: "the account: requests whose threads were blocked in writing, reading or syncing a file, or in \
                   writing to a full pipe, by load",
        threshold: "most of the requests that load added (at least 1) were there, or waited for threads without idle \
                    time (criterion `saturation_ratio`) that were there more than anywhere else; a possibility below \
                    40 % of the added requests",
        refuted_by: "throughput stays the same with the log on /dev/shm",
        remedy: "`findmnt -T FILE`; by call: buffered writes, or another device or reader; one sync for several \
                 requests; more memory for the file cache, or more threads that read",
        source: "Almeida, Almeida and Yates (1996), table 5: logging took most of a small request's elapsed time",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: |evidence| stage::found(evidence, "slow-file"),
    },
    paging::RULE,
    Rule {
        id: "lock",
        cause: "threads wait for each other (a lock, a semaphore, a pool)",
        evidence: "the account: requests whose threads were blocked by a lock (futex, flock, semaphore) that another \
                   thread released, by load",
        threshold: "most of the requests that load added (at least 1) waited so, or waited for threads without idle \
                    time (criterion `saturation_ratio`) that waited so more than for anything else; at least half a \
                    thread more than before the strain, and a wait for every 100 requests; a possibility below 40 % \
                    of the added requests",
        refuted_by: "the stacks on the page show threads that wait for work, not for a holder",
        remedy: "a shorter time under the lock, or several locks; the page has the stacks of the threads that waited \
                 and of those that released it",
        source: "futex(2); Gunther (2007): contention is what keeps throughput flat with idle CPUs",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: |evidence| stage::found(evidence, "lock"),
    },
    Rule {
        id: "one-at-a-time",
        cause: "the process runs one thread at a time (an interpreter's lock)",
        evidence: "`server.busiest_process_cpus`, `server.busiest_thread_cpus`, idle CPUs, the program's name; the \
                   account, if kept",
        threshold: "0.9 to 1.05 CPUs in 80 % of the points under strain, whose highest load is at least 1.5 times \
                    the lowest; no thread used more than 80 % of it; at least 1.5 CPUs to use, not full of the run's \
                    own work; by the account, its threads waited for another thread (a lock, a condition) for at \
                    least a quarter of their time. A possibility unless the program is Python or Ruby, or they \
                    waited for at least half of it, a quarter more than at low loads",
        refuted_by: "throughput stays the same with twice as many processes",
        remedy: "more processes instead of more threads (gunicorn `--workers`, Puma `--workers`); `gdb -p PID -batch \
                 -ex 'thread apply all backtrace'` under load shows the lock",
        source: "Beazley, \"Understanding the Python GIL\" (PyCon 2010); Amdahl's law: what only one may do at a time \
                 is the limit",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client", "cpu-quota"],
        judge: one_at_a_time::one_at_a_time,
    },
    Rule {
        id: "worker-pool",
        cause: "a fixed pool of workers is busy",
        evidence: "the account: idle time of the threads of one name, and their blocked time; requests under way",
        threshold: "most of the requests that load added (at least 1) were queued in the server or asleep; threads \
                    of one name had no idle time (criterion `saturation_ratio`), ran for less than 40 % of it, and \
                    were mostly blocked in something other than a lock, a file or another server; a possibility \
                    below 40 % of the added requests",
        refuted_by: "throughput stays the same with more workers",
        remedy: "more workers in its configuration, or shorter waits; `grep -H . /proc/PID/task/*/comm` names its \
                 threads",
        source: "Little's law",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: |evidence| stage::found(evidence, "worker-pool"),
    },
    Rule {
        id: "delayed-ack",
        cause: "the end of an answer waits for a delayed acknowledgement",
        evidence: "`client.response_p50_us` less `client.first_byte_p50_us`, `client.connect_p50_us`, \
                   `client.body_bytes`",
        threshold: "38 to 48 ms and a round trip (the time to connect) between first and last byte in every point of \
                    at least two loads below the yield point (at least 10 requests in each, 30 in all; answers of at \
                    most 64 KiB, or 13,140 bytes if connecting takes more than 5 ms): Linux delays an \
                    acknowledgement by 40 ms",
        refuted_by: "`strace` shows one write for each answer, or the wait is in the server",
        remedy: "TCP_NODELAY on its connections, or head and body in one write; `strace -f -e \
                 trace=write,writev,sendto,sendmsg -p PID` shows the writes of an answer",
        source: "Nagle, RFC 896 (1984); RFC 1122, section 4.2.3.2: a small segment waits for the acknowledgement of \
                 the one before, which may be delayed",
        is_limit: false,
        is_counted: true,
        hidden_by: &["client"],
        judge: waits::delayed_ack,
    },
    Rule {
        id: "backend",
        cause: "the server waits for its backend",
        evidence: "the account: calls under way on connections that the server opened, and the time of a call, by load",
        threshold: "most of the requests that load added (at least 1) waited for such calls, or for threads without \
                    idle time (criterion `saturation_ratio`) that waited for them more than for anything else; the \
                    backend is full if a call takes at least twice as long as at the lowest load; a possibility \
                    below 40 % of the added requests",
        refuted_by: "the backend alone answers more requests",
        remedy: "`straingauge find http://BACKEND/` measures the backend alone; `ss -xlp` shows the queue of a Unix \
                 socket",
        source: "utilisation law: an idle resource is not the bottleneck",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client", "server-errors"],
        judge: |evidence| stage::found(evidence, "backend"),
    },
    Rule {
        id: "backend-pool",
        cause: "the pool of connections to a backend is exhausted",
        evidence: "the account: connections that the server opened, the time from the first byte sent to the first \
                   byte received, requests under way",
        threshold: "each connection had a call under way for at least 70 % of the time, there were fewer connections \
                    than 70 % of the requests, and a call took at most twice as long as at the lowest load",
        refuted_by: "throughput stays the same with twice as many connections",
        remedy: "a larger pool in the server's configuration, or fewer calls per request",
        source: "Little's law; utilisation law",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: |evidence| stage::found(evidence, "backend-pool"),
    },
    Rule {
        id: "unequal-workers",
        cause: "one of several processes is slower than the others, or full alone",
        evidence: "the account: each process's time with and without work at the highest load under strain; requests \
                   by process",
        threshold: "at least twice the time of the median process for a request, busy for at least 70 % of the time; \
                    or one process without idle time, and the median one busy for at most 70 % of it",
        refuted_by: "another process is full in each run",
        remedy: "one queue for all processes, connections that may change process, the same CPUs for each",
        source: "Little's law; socket(7), SO_REUSEPORT: connections are spread by a hash, whatever the load of each",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client", "forks"],
        judge: |evidence| stage::found(evidence, "unequal-workers"),
    },
    Rule {
        id: "neighbour",
        cause: "other work has the server's CPUs",
        evidence: "the account: time in which threads of the server were runnable while other work ran on their CPU",
        threshold: "threads without idle time that waited so for at least 40 % of it, and longer than they ran or \
                    were blocked",
        refuted_by: "throughput stays the same with the server alone on the machine",
        remedy: "stop the other work; CPUs for the server alone; `cpu.weight` of its control group",
        source: "the kernel's documentation of cgroup v2, `cpu.weight`",
        is_limit: true,
        is_counted: true,
        hidden_by: &["client", "cpu-quota"],
        judge: |evidence| stage::found(evidence, "neighbour"),
    },
    Rule {
        id: "affinity",
        cause: "the server may run on some of the machine's CPUs only",
        evidence: "`server.cpus`, the machine's CPUs, `server.cpu_busy_ratio`, `machine.cpu_idle_ratio`",
        threshold: "fewer CPUs than the machine has, not chosen by straingauge and full of the server's own work, \
                    while at least a quarter of a CPU is idle elsewhere",
        refuted_by: "`taskset -pc PID` names all CPUs",
        remedy: "`taskset -apc 0-N PID`; `worker_cpu_affinity`, `cpuset.cpus`, `CPUAffinity=` or `--cpuset-cpus`",
        source: "sched_setaffinity(2), cpuset(7)",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client", "cpu-quota"],
        judge: stage::affinity,
    },
    Rule {
        id: "blocked-loop",
        cause: "an event loop is blocked by long work",
        evidence: "the account: CPU time between two waits of the thread that waits for events",
        threshold: "10 ms at the two lowest loads, and 20 times the mean at the lowest; one thread per process",
        refuted_by: "without one kind of request the longest work is as short as the others",
        remedy: "a worker thread or process for the long work; `straingauge profile :PORT` names its functions",
        source: "Node.js documentation, \"Don't Block the Event Loop\"; Welsh, Culler and Brewer, \"SEDA\" (SOSP 2001)",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client"],
        judge: stage::blocked_loop,
    },
    Rule {
        id: "slows-with-time",
        cause: "the server slows down with each request served",
        evidence: "`server.cpu_us_per_request` at the first and the last visit of each load, in undisturbed points; \
                   the yardstick",
        threshold: "1.25 times in the median of at least three loads, 1.1 times at each of them, the median response \
                    time 1.1 times, less the machine's own change (yardstick); if other work disturbed the points, \
                    1.5 times, and a straight line by requests served explains 85 % of all costs",
        refuted_by: "the server is as slow right after a restart",
        remedy: "`perf top -p PID` names the function; limit the state that is kept for each request",
        source: "comparison within a load excludes the load as the cause",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client", "cpu-quota", "cpu-bursts"],
        judge: growth::slows_with_time,
    },
    forks::RULE,
    garbage_collection::RULE,
    tls_handshakes::RULE,
    background::RULE,
    Rule {
        id: "scalable-select",
        cause: "select or poll over many idle connections",
        evidence: "`server.select_or_poll_waits_ratio`, `server.select_set_descriptors`, growth of CPU per request, \
                   cold connections",
        threshold: "90 % of at least 5 sleeps, sets of at least 64, and 1.25 times the CPU per request (medians, and \
                    within repeats) or 64 cold connections",
        refuted_by: "`straingauge find --compare-with scale` shows no difference",
        remedy: "`straingauge scale -- SERVER`",
        source: "Banga and Mogul (1998)",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client"],
        judge: judge::scalable_select,
    },
    Rule {
        id: "spin",
        cause: "threads spin for a lock",
        evidence: "user part of CPU per request by load, `server.run_queue_wait_us_per_request`, `server.threads`, \
                   `server.processes`",
        threshold: "as `memory-bound`, with twice the user time, and a wait for a CPU as long as the CPU time; \
                    always a possibility",
        refuted_by: "`perf top` shows the time in functions that do work",
        remedy: "`perf top -p PID` names the function; a lock that sleeps",
        source: "Gunther (2007): coherency and contention",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client", "scalable-select", "slows-with-time", "leak"],
        judge: growth::spin,
    },
    Rule {
        id: "memory-bound",
        cause: "the server's own state outgrew the cache",
        evidence: "user part of CPU per request by load, growth of `server.memory_bytes` with the connections, \
                   second-level cache, functions by sampling, cache misses where the hardware counts them",
        threshold: "CPU per request grew 1.25 times; at least half of the growth in user mode, which grew 1.5 times \
                    and by more than three standard errors (at least 30 requests on both sides; with less than 20 \
                    ticks at the low loads, all their CPU time counts as user time); a CPU saturated; no more \
                    processes than before; memory grew by more than the cache; the same functions. Without counters \
                    a possibility",
        refuted_by: "`straingauge simulate` or `perf stat -e LLC-load-misses` counts no more misses per request",
        remedy: "`memwalk -p BUILD --report` on its source; `straingauge simulate` counts the misses",
        source: "Bhatia, Consel and Lawall (2006)",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client", "scalable-select", "slows-with-time", "leak", "spin"],
        judge: growth::memory_bound,
    },
    Rule {
        id: "interrupts",
        cause: "one CPU takes all receive processing",
        evidence: "`server.softirq_cpu_busy_ratio`, `server.softirq_cpu_softirq_ratio`, \
                   `server.softirq_concentration_ratio`, `server.idlest_cpu_busy_ratio`",
        threshold: "a CPU at least 90 % busy, at least 25 % of its time softirq, with at least 70 % of all softirq \
                    time, and another CPU of the server less than 70 % busy; at least 20 ticks of softirq",
        refuted_by: "throughput stays the same with receive processing on more CPUs",
        remedy: "`echo MASK > /sys/class/net/DEVICE/queues/rx-0/rps_cpus`, `ethtool -L DEVICE combined N`",
        source: "Linux, Documentation/networking/scaling.rst (RSS, RPS)",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: judge::interrupts,
    },
    dropped_packets::RULE,
    loss::RULE,
    Rule {
        id: "backlog",
        cause: "the listen backlog is too small",
        evidence: "`tcp.listen_overflows_per_sec`, `tcp.listen_overflows_before_window`, `tcp.accept_queue_limit`, \
                   `client.response_max_us`, net.core.somaxconn",
        threshold: "in most points of a load and of the loads above it at least 1 overflow per second, or 1 while \
                    connections were opened and the point fails with a response of at least a second, or without \
                    one; more connections than the queue has room for",
        refuted_by: "the overflows remain with a larger backlog: the server does not accept at all",
        remedy: "a larger backlog in the server's configuration (nginx `listen ... backlog=4096`, Apache \
                 `ListenBacklog`), `sysctl -w net.core.somaxconn=4096`",
        source: "listen(2); Banga and Druschel (1997): a full queue drops SYNs, and each costs a second or more",
        is_limit: true,
        is_counted: false,
        hidden_by: &[
            "client",
            "descriptors",
            "slow-file",
            "scalable-select",
            "lock",
            "one-at-a-time",
            "worker-pool",
            "backend",
        ],
        judge: judge::backlog,
    },
    Rule {
        id: "time-wait",
        cause: "the server's TIME_WAIT sockets reached their limit",
        evidence: "`tcp.time_wait_overflows_per_sec`, `time-wait` connections",
        threshold: "at least 1 per second in most points of a load and of the loads above it",
        refuted_by: "`ss -tan state time-wait` is far below net.ipv4.tcp_max_tw_buckets",
        remedy: "let clients close first (keep-alive), `sysctl -w net.ipv4.tcp_max_tw_buckets=262144`",
        source: "Almeida, Almeida and Yates (1996), section 5.5",
        is_limit: true,
        is_counted: true,
        hidden_by: &["client-ports"],
        judge: judge::time_wait,
    },
    Rule {
        id: "bandwidth",
        cause: "the network's bandwidth",
        evidence: "bytes received over the emulated path's bandwidth, or `net.busiest_link_used_ratio`; the server's \
                   CPUs",
        threshold: "at least 85 % of the link beyond the yield point, no CPU of the server saturated; a device is \
                    less full when the server answers less",
        refuted_by: "throughput stays the same with smaller answers",
        remedy: "smaller answers (compression, caching by clients), or a faster link: `ethtool DEVICE` shows its speed",
        source: "utilisation law: a resource that is busy all the time is the bottleneck",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: judge::bandwidth,
    },
    Rule {
        id: "own-limit",
        cause: "a limit inside the program lets only so many requests go on",
        evidence: "the account: requests inside the server; idle time of its CPUs, threads and other servers; \
                   throughput times the time of one request alone",
        threshold: "half of the requests under way were inside the server at the highest load, twice as many as go on \
                    at a time by Little's law; no CPU saturated, no stage of the account full, a quiet machine; \
                    always a possibility",
        refuted_by: "throughput stays the same with a higher limit",
        remedy: "a higher limit: a semaphore, a channel, a pool of connections, a limit of requests or of their rate",
        source: "Little's law; Lazowska and others, \"Quantitative System Performance\" (1984), section 5.2",
        is_limit: true,
        is_counted: false,
        hidden_by: &[
            "client",
            "client-ports",
            "delayed-ack",
            "descriptors",
            "server-errors",
            "server-log",
            "slow-file",
            "paging",
            "lock",
            "one-at-a-time",
            "worker-pool",
            "backend",
            "backend-pool",
            "unequal-workers",
            "neighbour",
            "blocked-loop",
            "slows-with-time",
            "interrupts",
            "bandwidth",
            "cpu-quota",
            "cpu-bursts",
        ],
        judge: stage::own_limit,
    },
    Rule {
        id: "leak",
        cause: "memory grows with each request",
        evidence: "`server.anonymous_memory_bytes` against the requests served",
        threshold: "at least 16 MiB (512 MiB of java, node, dotnet, ruby and Erlang, whose heaps are collected late), \
                    1.5 times and 64 bytes per request; a straight line explains 95 %; the second \
                    half grows at 60 % of the first half's rate or more; at least 8 points; always a possibility",
        refuted_by: "the growth ends under a longer steady load (a cache that fills, a heap before a collection)",
        remedy: "`grep -E 'VmRSS|RssAnon' /proc/PID/status` under a longer steady load; heaptrack, valgrind \
                 --tool=massif",
        source: "a leak is a straight line over requests, a cache is not",
        is_limit: false,
        is_counted: true,
        hidden_by: &[],
        judge: growth::leak,
    },
];
