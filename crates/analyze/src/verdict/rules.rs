//! The rules of the verdict as a table: evidence, threshold, cause, remedy and source. `docs/verdict.md` is this table
//! for readers; a test keeps both alike.
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
    /// Its name in JSON.
    pub id: &'static str,
    /// The cause, in a few words.
    pub cause: &'static str,
    /// The evidence: figures of [`record::names`] and findings.
    pub evidence: &'static str,
    /// The values from which on it holds.
    pub threshold: &'static str,
    /// What would refute it.
    pub refuted_by: &'static str,
    /// The remedy, with the command's general form.
    pub remedy: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    /// Whether it explains why a server answers no more, and not only what a request costs or how long it takes.
    pub is_limit: bool,
    /// Whether it rests on events that the kernel or the client counted, which other work on the machine does not
    /// cause.
    pub is_counted: bool,
    /// Rules that make this one a consequence when they hold.
    pub hidden_by: &'static [&'static str],
    /// Checks a run.
    pub judge: fn(&Evidence<'_>) -> Option<Finding>,
}

/// The share of the threads' time in which another thread had to wake them, and by how much that share grew with load.
pub const LOCK_RATIO: f64 = 0.5;
/// See [`LOCK_RATIO`].
pub const LOCK_GROWTH: f64 = 0.25;
/// Open descriptors over their limit.
pub const DESCRIPTORS_RATIO: f64 = 0.97;
/// Overflows of the accept queue, or connections that skipped TIME_WAIT, per second.
pub const LOST_PER_SEC: f64 = 1.0;
/// The kernel sends a SYN again after a second; response times are kept in buckets of 0.1 %.
pub const SYN_RETRY_US: f64 = 990_000.0;
/// The share of the sleeps seen that were in select or poll; with fewer sleeps the rule does not apply.
pub const SELECT_RATIO: f64 = 0.9;
/// See [`SELECT_RATIO`].
pub const SELECT_SEEN: f64 = 5.0;
/// The library leaves smaller sets to the kernel.
pub const SELECT_SET: f64 = 64.0;
/// CPU time of a request at the most expensive load over that at the cheapest.
pub const GROWTH_RATIO: f64 = 1.25;
/// Of that growth, the user part's share; and the user part's own growth.
pub const USER_GROWTH_SHARE: f64 = 0.5;
/// See [`USER_GROWTH_SHARE`].
pub const USER_GROWTH_RATIO: f64 = 1.5;
/// Softirq share of a CPU's time, and that CPU's share of all softirq time.
pub const SOFTIRQ_RATIO: f64 = 0.25;
/// See [`SOFTIRQ_RATIO`].
pub const SOFTIRQ_CONCENTRATION: f64 = 0.7;
/// The least busy share of that CPU. A server that it limits waits for it now and then, and a short point has few
/// ticks.
pub const SOFTIRQ_CPU_BUSY: f64 = 0.9;
/// A CPU less busy than this could take over work.
pub const IDLE_CPU_BUSY: f64 = 0.7;
/// Share of a link's speed, headers included.
pub const LINK_RATIO: f64 = 0.85;

/// Ticks of the kernel's clock that a division of CPU time rests on at least.
pub const LEAST_TICKS: u64 = 20;
/// Requests that a cost or a rate rests on at least.
pub const LEAST_REQUESTS: f64 = 30.0;
/// Events (errors, overflows, lost sends) that a rate of them rests on at least.
pub const LEAST_ERRORS: u64 = 5;
/// User time at the expensive load over that at the cheap one, and the wait for a CPU over the CPU time, from which on
/// threads spin.
pub const SPIN_RATIO: f64 = 2.0;
/// See [`SPIN_RATIO`].
pub const SPIN_WAITED: f64 = 1.0;
/// CPU time of a request at the last visit of a load over that at the first, and loads that were visited twice.
pub const TIME_GROWTH_RATIO: f64 = 1.25;
/// See [`TIME_GROWTH_RATIO`]; where other work disturbed the points, and the share that a line by requests served
/// explains.
pub const UNQUIET_TIME_GROWTH: f64 = 1.5;
/// See [`UNQUIET_TIME_GROWTH`].
pub const UNQUIET_EXPLAINED: f64 = 0.85;
/// See [`TIME_GROWTH_RATIO`].
pub const LEAST_LOADS: usize = 3;
/// A leak: bytes, their ratio, points, the share that a line explains, the late slope over the early one, bytes a
/// request.
pub const LEAK_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// See [`LEAK_BYTES`].
pub const LEAK_RATIO: f64 = 1.5;
/// See [`LEAK_BYTES`].
pub const LEAST_LEAK_POINTS: usize = 8;
/// See [`LEAK_BYTES`].
pub const LEAK_EXPLAINED: f64 = 0.95;
/// See [`LEAK_BYTES`].
pub const LEAK_STEADY: f64 = 0.6;
/// See [`LEAK_BYTES`].
pub const LEAST_LEAK_PER_REQUEST: f64 = 64.0;
/// From the first byte of an answer to its last, less a round trip, where that waited for a delayed acknowledgement: 40
/// ms, and ticks of the clock.
pub const DELAYED_ACK_US: std::ops::RangeInclusive<f64> = 38e3..=48e3;
/// Longer answers may take so long to arrive.
pub const MOST_ANSWER_BYTES: f64 = 65536.0;
/// Connections that take longer to open are over a path: an answer that does not fit into one window takes more round
/// trips.
pub const FAR_CONNECT_US: f64 = 5e3;
/// See [`FAR_CONNECT_US`]: 9 segments of 1,460 bytes, as the first window of 10 (RFC 6928) has the head of the answer,
/// too.
pub const MOST_ANSWER_FAR_BYTES: f64 = 13_140.0;
/// Requests of a point whose median counts for that.
pub const LEAST_ANSWERS: u64 = 10;
/// Requests in flight on a connection (Little's law): from so many on, more than one is sent at a time.
pub const PIPELINED_REQUESTS: f64 = 1.5;

/// Periods of a limit of CPU time that a share of them rests on at least; the share in which the group was stopped, and
/// the share of the limit that it used.
pub const LEAST_PERIODS: f64 = 5.0;
/// See [`LEAST_PERIODS`].
pub const THROTTLED_RATIO: f64 = 0.2;
/// See [`LEAST_PERIODS`].
pub const QUOTA_USED_RATIO: f64 = 0.8;

/// CPUs of a process whose threads run one at a time: a little less while the lock changes hands, and more where the
/// kernel works for one of them meanwhile.
pub const ONE_CPU: std::ops::RangeInclusive<f64> = 0.9..=1.05;
/// See [`ONE_CPU`]: the share of the points under strain that show it, and the highest of their loads over the lowest.
pub const ONE_CPU_POINTS: f64 = 0.8;
/// See [`ONE_CPU_POINTS`].
pub const ONE_CPU_LOADS: f64 = 1.5;
/// See [`ONE_CPU`]: the busiest thread's share of it at most, and the CPUs that the server may use at least.
pub const ONE_CPU_THREAD: f64 = 0.8;
/// See [`ONE_CPU_THREAD`].
pub const ONE_CPU_OF: f64 = 1.5;

/// All rules.
pub const RULES: [Rule; 35] = [
    Rule {
        id: "client-ports",
        cause: "the client had no local port left",
        evidence: "requests that ended for want of a local port or descriptor (`local_limit`)",
        threshold: "more than the criterion `error_ratio` of the requests in most points of a load",
        refuted_by: "the same requests over keep-alive, or from more addresses, are sent",
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
        evidence: "`client.cpu_utilisation_ratio` and the client's doubts against the server's busiest thread and CPUs",
        threshold: "the client saturated (criterion `saturation_ratio`), the server not, and no yield point before",
        refuted_by: "a second client machine gets no more out of the server",
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
                   that got no answer, or that were refused or closed",
        threshold: "97 % of the limit in use in most points of a load and of the loads above it, and such connections",
        refuted_by: "`/proc/PID/limits` is far above what is open",
        remedy: "`sh -c 'ulimit -n 65536; exec SERVER'`; `LimitNOFILE=` in a unit of systemd",
        source: "accept(2), EMFILE",
        is_limit: true,
        is_counted: true,
        hidden_by: &[],
        judge: judge::descriptors,
    },
    Rule {
        id: "cpu-quota",
        cause: "the server's limit of CPU time",
        evidence: "`server.cpu_throttled_ratio` and `server.cpu_quota_used_ratio`: the kernel's account of the control \
                   group (`cpu.stat`)",
        threshold: "beyond the yield point the group was stopped in 20 % of its periods at least (lower end of the \
                    interval, 5 periods or more), and used 80 % of the limit",
        refuted_by: "`nr_throttled` in the group's `cpu.stat` does not grow under this load",
        remedy: "a higher limit: `docker update --cpus`, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd; less CPU \
                 time a request",
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
        evidence: "good answers per second on the way down against those on the way up, load by load within repeats \
                   (`find --unload`)",
        threshold: "at a load that held on the way up, three quarters or less in the median of 3 repeats or more, 90 % \
                    at the upper end of the interval; of a server that never came back: at the two lowest loads or \
                    more the same against what it gave before, in all of 5 visits or more since, always a possibility",
        refuted_by: "the way up after it is as slow: then the server slows with time",
        remedy: "bound what waits (a limit of requests under way, a timeout of queued work), retries with a budget and \
                 backoff; until then let the load fall below the recovery point",
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
        threshold: "most of the requests that load added (1 or more) were there, or queued for threads without idle \
                    time (criterion `saturation_ratio`) that were there more than anywhere else; a possibility where \
                    these are less than 40 % of the requests added",
        refuted_by: "the log on /dev/shm brings no more throughput",
        remedy: "`findmnt -T FILE`; by call: write it buffered, or to another device or reader; one sync for several \
                 requests; more memory for the cache of files or more threads that read",
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
        threshold: "most of the requests that load added (1 or more) waited so, or were queued for threads without \
                    idle time (criterion `saturation_ratio`) that waited so more than for anything else; half a thread \
                    more than before the strain, one wait for 100 requests; a possibility where these are less than \
                    40 % of the requests added",
        refuted_by: "the stacks on the page show threads that wait for work, not for what another thread holds",
        remedy: "hold it for less, or divide it; the page has the stacks of the threads that waited and of those that \
                 released it",
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
                   account, where it is kept",
        threshold: "0.9 to 1.05 CPUs in 80 % of the points under strain, of which the highest load is 1.5 times the \
                    lowest or more; no thread used more than 80 % of it; 1.5 CPUs or more to use, not full of the \
                    run's own work; where the account is kept, its threads waited for another thread (a lock, a \
                    condition) for a quarter of their time or more; a possibility unless the program is Python or \
                    Ruby, or they waited so for half of it, a quarter more than at low loads",
        refuted_by: "twice as many processes bring no more throughput",
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
        evidence: "the account: the idle time of the threads of one name, and what they were blocked in otherwise; \
                   requests under way",
        threshold: "most of the requests that load added (1 or more) were queued in the server or asleep; threads of \
                    one name had no idle time (criterion `saturation_ratio`), ran for less than 40 % of it, and were \
                    mostly blocked in something other than a lock, a file or another server; a possibility where these \
                    are less than 40 % of the requests added",
        refuted_by: "more workers bring no more throughput",
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
        threshold: "38 to 48 ms and a round trip (the time to connect) between the first byte and the last in every \
                    point of two loads or more below the yield point (10 requests or more in each, 30 in all; answers \
                    of 64 KiB at most, of 13,140 bytes where connecting takes more than 5 ms, so that it is not a \
                    second window): Linux delays an acknowledgement by 40 ms",
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
        threshold: "most of the requests that load added (1 or more) waited for such calls, or were queued for threads \
                    without idle time (criterion `saturation_ratio`) that waited for them more than for anything else; \
                    the backend is full where a call takes twice as long as at the lowest load or more; a possibility \
                    where these are less than 40 % of the requests added",
        refuted_by: "the backend alone takes more",
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
        threshold: "70 % of the time or more each connection had a call under way, fewer connections than 70 % of the \
                    requests, a call at most twice as long as at the lowest load",
        refuted_by: "twice as many connections bring no more throughput",
        remedy: "a larger pool in the server's configuration, or fewer calls a request",
        source: "Little's law; utilisation law",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: |evidence| stage::found(evidence, "backend-pool"),
    },
    Rule {
        id: "unequal-workers",
        cause: "one of several processes is slower than the others, or full alone",
        evidence: "the account: each process's time with and without work, at the highest load under strain; requests \
                   by process",
        threshold: "twice the time of the median process for a request, busy for 70 % of the time or more; or one \
                    process without idle time, the median one busy for 70 % of it or less",
        refuted_by: "the full process is another one in each run",
        remedy: "one queue for all processes, connections that do not stay with one, the same CPUs for each",
        source: "Little's law; socket(7), SO_REUSEPORT: connections are spread by a hash, whatever the load of each",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client", "forks"],
        judge: |evidence| stage::found(evidence, "unequal-workers"),
    },
    Rule {
        id: "neighbour",
        cause: "other work has the server's CPUs",
        evidence: "the account: time in which threads of the server were runnable while something else ran on their \
                   CPU",
        threshold: "threads without idle time that waited so for 40 % of it or more, and more than they ran or were \
                    blocked",
        refuted_by: "the server alone on the machine answers no more",
        remedy: "stop it, CPUs for the server alone, `cpu.weight` of its control group",
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
        threshold: "fewer CPUs than the machine has, which straingauge did not choose, full of the server's own work, \
                    while a quarter of a CPU or more is idle elsewhere",
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
        threshold: "10 ms at the two lowest loads, and 20 times the mean at the lowest; one thread a process",
        refuted_by: "the longest work is as short as the others once that request is left out",
        remedy: "a worker thread or process for it; `straingauge profile :PORT` names its functions",
        source: "Node.js documentation, \"Don't Block the Event Loop\"; Welsh, Culler and Brewer, \"SEDA\" (SOSP 2001)",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client"],
        judge: stage::blocked_loop,
    },
    Rule {
        id: "slows-with-time",
        cause: "the server slows down with each request served",
        evidence: "`server.cpu_us_per_request` at the first and the last visit of each load, points that nothing \
                   disturbed; the yardstick",
        threshold: "1.25 times in the median of three loads or more, 1.1 times at each of them, the median response \
                    time 1.1 times, the machine's own change (yardstick) taken off; where other work disturbed the \
                    points, 1.5 times, and a straight line by requests served explains 85 % of all costs",
        refuted_by: "a new start of the server brings no speed back",
        remedy: "`perf top -p PID` names the function; bound what is kept for each request",
        source: "comparison within a load: time, not load",
        is_limit: false,
        is_counted: false,
        hidden_by: &["client"],
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
        threshold: "90 % of 5 or more sleeps, sets of 64 or more, and 1.25 times the CPU per request (medians, and \
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
        threshold: "as `memory-bound`, twice the user time, and a wait for a CPU as long as the CPU time; always a \
                    possibility",
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
        threshold: "CPU per request grew 1.25 times, half of it or more in user mode, which grew 1.5 times and by more \
                    than three standard errors (30 requests or more on both sides; where the low loads have less than \
                    20 ticks, all their CPU time counts as user time), the CPU saturated, no more processes than \
                    before; memory grew by more than the cache; the same functions; without counters a possibility",
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
        threshold: "the CPU 90 % busy or more, 25 % of its time or more softirq, 70 % of all softirq on it, another \
                    CPU of the server less than 70 % busy; 20 ticks of softirq or more",
        refuted_by: "steering to more CPUs brings no more throughput",
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
        threshold: "in most points of a load and of the loads above it 1 overflow a second or more, or 1 while \
                    connections were opened, and the point fails with a response of a second or more, or none; more \
                    connections than the queue has room for",
        refuted_by: "a larger backlog leaves the overflows (the server does not accept at all)",
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
        threshold: "1 a second or more in most points of a load and of the loads above it",
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
        threshold: "85 % or more of the link beyond the yield point, no CPU of the server saturated; a device is not \
                    as full where the server answers less",
        refuted_by: "smaller answers bring no more requests a second",
        remedy: "smaller answers (compression, caching by clients), or a faster link: `ethtool DEVICE` shows its speed",
        source: "utilisation law: a resource that is busy all the time is the bottleneck",
        is_limit: true,
        is_counted: false,
        hidden_by: &["client"],
        judge: judge::bandwidth,
    },
    Rule {
        id: "leak",
        cause: "memory grows with each request",
        evidence: "`server.anonymous_memory_bytes` against the requests served",
        threshold: "16 MiB, 1.5 times and 64 bytes a request or more, a straight line explains 95 %, the second half \
                    grows at 60 % of the first half's rate or more, 8 points or more; always a possibility",
        refuted_by: "the growth ends under a longer steady load (a cache that fills, a heap before it is collected)",
        remedy: "`grep -E 'VmRSS|RssAnon' /proc/PID/status` under a longer steady load; heaptrack, valgrind \
                 --tool=massif",
        source: "a leak is a straight line over requests, a cache is not",
        is_limit: false,
        is_counted: true,
        hidden_by: &[],
        judge: growth::leak,
    },
];
