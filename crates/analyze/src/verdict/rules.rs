//! The rules of the verdict as a table: what is looked at, from which value on it counts, what is said of it, what to try,
//! and where the rule comes from. `docs/verdict.md` is this table for readers; a test keeps both alike.
//!
//! A rule that is `hidden_by` another is not told where that one holds: its evidence is then a consequence. The order is
//! that of the telling: the first cause of a verdict is the one to mend first.

use super::evidence::Evidence;
use super::judge::{self, Told};

/// One rule.
pub struct Rule {
    /// Its name in JSON.
    pub id: &'static str,
    /// The cause, in a few words.
    pub cause: &'static str,
    /// What is looked at: figures of [`record::names`] and findings.
    pub evidence: &'static str,
    /// From which values on it holds.
    pub threshold: &'static str,
    /// What to try, with the command's general form.
    pub remedy: &'static str,
    /// Where the rule comes from.
    pub source: &'static str,
    /// Rules whose holding makes this one a consequence.
    pub hidden_by: &'static [&'static str],
    /// Looks at a run.
    pub judge: fn(&Evidence<'_>) -> Option<Told>,
}

/// Mean number of a server's threads asleep for a file from which on files count as what it waits for.
pub const FILE_SLEEPERS: f64 = 0.3;
/// Share of looks that found a thread asleep for a lock, and by how much that share grew with load.
pub const LOCK_RATIO: f64 = 0.5;
/// See [`LOCK_RATIO`].
pub const LOCK_GROWTH: f64 = 0.25;
/// Open descriptors over their limit.
pub const DESCRIPTORS_RATIO: f64 = 0.97;
/// Overflows of the accept queue, or connections that skipped TIME_WAIT, per second.
pub const LOST_PER_SEC: f64 = 1.0;
/// Of the sleeps that were seen, this share or more in select or poll; fewer sleeps than that say nothing.
pub const SELECT_RATIO: f64 = 0.9;
/// See [`SELECT_RATIO`].
pub const SELECT_SEEN: f64 = 5.0;
/// The library leaves smaller sets to the kernel.
pub const SELECT_SET: f64 = 64.0;
/// CPU time of a request at the dearest load over that at the cheapest.
pub const GROWTH_RATIO: f64 = 1.25;
/// Of that growth, the user part's share; and the user part's own growth.
pub const USER_GROWTH_SHARE: f64 = 0.5;
/// See [`USER_GROWTH_SHARE`].
pub const USER_GROWTH_RATIO: f64 = 1.5;
/// Softirq share of a CPU's time, and that CPU's share of all softirq time.
pub const SOFTIRQ_RATIO: f64 = 0.25;
/// See [`SOFTIRQ_RATIO`].
pub const SOFTIRQ_CONCENTRATION: f64 = 0.8;
/// A CPU less busy than this could take over work.
pub const IDLE_CPU_BUSY: f64 = 0.7;
/// Share of a link's speed, headers included.
pub const LINK_RATIO: f64 = 0.85;

/// All rules.
pub const RULES: [Rule; 11] = [
    Rule {
        id: "client-ports",
        cause: "the client had no local port left",
        evidence: "requests that ended for want of a local port or descriptor (`local_limit`)",
        threshold: "more than the criterion `error_ratio` of the requests in most points of a load",
        remedy: "`sysctl -w net.ipv4.ip_local_port_range='1024 65535' net.ipv4.tcp_tw_reuse=1` on the client, `--source-address`, keep-alive",
        source: "Almeida, Almeida and Yates (1996), section 5.5: ports wait in TIME_WAIT for a minute",
        hidden_by: &[],
        judge: judge::client_ports,
    },
    Rule {
        id: "client",
        cause: "the client was the bottleneck",
        evidence: "`client.cpu_utilisation_ratio` and the client's doubts against the server's busiest thread and CPUs",
        threshold: "the client saturated (criterion `saturation_ratio`), the server not, and no yield point before",
        remedy: "`--client 'ssh HOST straingauge load --worker'`, `--cpus`, `--threads`",
        source: "Banga and Druschel (1997): a client must be able to overload the server",
        hidden_by: &["client-ports"],
        judge: judge::client,
    },
    Rule {
        id: "descriptors",
        cause: "the server's descriptor limit",
        evidence: "`server.descriptors_used_ratio`; failing points, connections that nobody accepted (`tcp.accept_queue_max`)",
        threshold: "97 % of the limit in use in most points of a load, and requests failed or connections waited",
        remedy: "`sh -c 'ulimit -n 65536; exec SERVER'`; `LimitNOFILE=` in a unit of systemd",
        source: "accept(2), EMFILE",
        hidden_by: &[],
        judge: judge::descriptors,
    },
    Rule {
        id: "slow-file",
        cause: "the server waits for a file or a slow log",
        evidence: "`server.file_waits_ratio` times threads, the file's name; `machine.cpu_iowait_ratio`",
        threshold: "0.3 threads or more asleep in write, sync or read of a file at any time beyond the yield point, no CPU of the server saturated",
        remedy: "`findmnt -T FILE`; write it buffered and without a sync for each request, or to another device",
        source: "Almeida, Almeida and Yates (1996), table 5: logging took most of a small request's elapsed time",
        hidden_by: &["client"],
        judge: judge::slow_file,
    },
    Rule {
        id: "lock",
        cause: "threads wait for each other's lock",
        evidence: "`server.lock_waits_ratio` beyond the yield point and at the lowest load, `server.context_switches_per_request`, idle CPU",
        threshold: "half of the looks or more found a thread asleep for a lock, a quarter more than at the lowest load; no CPU of the server saturated",
        remedy: "`gdb -p PID -batch -ex 'thread apply all backtrace'` under load names it",
        source: "futex(2); Gunther (2007): contention is what keeps throughput flat with idle CPUs",
        hidden_by: &["client", "slow-file"],
        judge: judge::lock,
    },
    Rule {
        id: "scalable-select",
        cause: "select or poll over many idle connections",
        evidence: "`server.select_or_poll_waits_ratio`, `server.select_set_descriptors`, growth of CPU per request, cold connections",
        threshold: "90 % of 5 or more sleeps, sets of 64 or more, and 1.25 times the CPU per request or 64 cold connections",
        remedy: "`straingauge scale -- SERVER`",
        source: "Banga and Mogul (1998)",
        hidden_by: &["client"],
        judge: judge::scalable_select,
    },
    Rule {
        id: "memory-bound",
        cause: "the server's own state outgrew the cache",
        evidence: "user part of CPU per request by load, `server.memory_bytes`, second-level cache, functions by sampling",
        threshold: "CPU per request grew 1.25 times, half of it or more in user mode, which grew 1.5 times; memory grew by more than the cache; the same functions",
        remedy: "`memwalk -p BUILD --report` on its source; `straingauge simulate` counts the misses",
        source: "Bhatia, Consel and Lawall (2006)",
        hidden_by: &["client", "scalable-select"],
        judge: judge::memory_bound,
    },
    Rule {
        id: "interrupts",
        cause: "one CPU takes all receive processing",
        evidence: "`server.softirq_cpu_busy_ratio`, `server.softirq_cpu_softirq_ratio`, `server.softirq_concentration_ratio`, `server.idlest_cpu_busy_ratio`",
        threshold: "the CPU saturated, 25 % of its time or more softirq, 80 % of all softirq on it, another CPU of the server less than 70 % busy",
        remedy: "`echo MASK > /sys/class/net/DEVICE/queues/rx-0/rps_cpus`, `ethtool -L DEVICE combined N`",
        source: "Linux, Documentation/networking/scaling.rst (RSS, RPS)",
        hidden_by: &["client"],
        judge: judge::interrupts,
    },
    Rule {
        id: "backlog",
        cause: "the listen backlog is too small",
        evidence: "`tcp.listen_overflows_per_sec`, `tcp.accept_queue_limit`, net.core.somaxconn",
        threshold: "1 overflow a second or more in most points of a load",
        remedy: "a larger backlog in the server's configuration (nginx `listen ... backlog=4096`, Apache `ListenBacklog`), `sysctl -w net.core.somaxconn=4096`",
        source: "listen(2); Banga and Druschel (1997): a full queue drops SYNs, and each costs a second or more",
        hidden_by: &["client", "descriptors", "slow-file", "scalable-select"],
        judge: judge::backlog,
    },
    Rule {
        id: "time-wait",
        cause: "the server's TIME_WAIT sockets reached their limit",
        evidence: "`tcp.time_wait_overflows_per_sec`, `time-wait` connections",
        threshold: "1 a second or more in most points of a load",
        remedy: "let clients close first (keep-alive), `sysctl -w net.ipv4.tcp_max_tw_buckets=262144`",
        source: "Almeida, Almeida and Yates (1996), section 5.5",
        hidden_by: &["client-ports"],
        judge: judge::time_wait,
    },
    Rule {
        id: "bandwidth",
        cause: "the network's bandwidth",
        evidence: "bytes received over the emulated path's bandwidth, or `net.busiest_link_used_ratio`; the server's CPUs",
        threshold: "85 % or more of the link beyond the yield point, no CPU of the server saturated",
        remedy: "smaller answers (compression, caching by clients), or a faster link: `ethtool DEVICE` tells its speed",
        source: "utilisation law: a resource that is busy all the time is the bottleneck",
        hidden_by: &["client"],
        judge: judge::bandwidth,
    },
];
