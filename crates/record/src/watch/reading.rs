//! The contents of a reading: totals since the watch began, so any two readings give rates. Plain data, written as
//! JSON without conversion. When a reading is read, absent members mean that nothing was counted, and unknown members
//! are ignored.

use super::counters::Counter;
use super::counts::Counts;
use super::histogram::Log2Histogram;
use super::limits::LimitTotals;
use super::system::{ControlGroupTotals, GroupIo, SystemTotals};
use crate::PlainText;
use crate::account::Account;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The number of phases of a request: parse, process, log.
pub const PHASES: usize = 3;
/// With fewer windows, a mean has no interval.
pub const FEWEST_WINDOWS: u64 = 5;

/// Requests of one size class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ClassTotals {
    /// Requests answered (counted).
    pub requests: u64,
    /// Bytes of request, as read by the server (counted).
    pub bytes_in: u64,
    /// Bytes of response, as written by the server (counted).
    pub bytes_out: u64,
    /// Reads from the socket (counted).
    pub receives: u64,
    /// CPU time of the server's threads from a request's first read until they served another one (timed).
    pub cpu_ns: i64,
    /// Time from the first read until the response's last segment was sent, summed (timed).
    pub elapsed_ns: u64,
    /// Number of requests in `elapsed_ns`.
    pub timed: u64,
    /// Distribution of the elapsed times in `elapsed_ns`.
    pub elapsed: Log2Histogram,
}

// A growing response may move a request to a larger class, so a class may seem to shrink.
crate::grows!(ClassTotals { requests, bytes_in, bytes_out, receives, cpu_ns, elapsed_ns, timed, elapsed });

impl ClassTotals {
    /// The sum of several classes.
    pub fn sum<'a>(classes: impl IntoIterator<Item = &'a ClassTotals>) -> ClassTotals {
        let mut all = ClassTotals::default();
        classes.into_iter().for_each(|class| all.add(class));
        all
    }
}

/// Phases of one size class, from windows or from every request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct PhaseTotals {
    /// Requests whose phases were timed.
    pub requests: u64,
    /// Number of windows in which requests were timed.
    pub windows: u64,
    /// Requests whose parse phase ended at a system call instead of the first send.
    pub split: u64,
    /// Sends per request.
    pub sends: Option<Mean>,
    /// Bytes read from disks per request; blocks of the paper's Table 2 have 512 bytes.
    pub disk_bytes: Option<Mean>,
    /// Disk reads issued per request, including read-ahead; always 0 if the kernel has no `block_bio_queue`.
    pub disk_reads: Option<Mean>,
    /// Elapsed nanoseconds per request: parse, process, log.
    pub elapsed_ns: [Option<Mean>; PHASES],
    /// CPU nanoseconds per request: parse, process, log. Scaled so that their sum is the class's exact CPU time.
    pub cpu_ns: [Option<Mean>; PHASES],
}

/// The port's connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ConnectionTotals {
    /// Current sockets by TCP state.
    pub states: BTreeMap<Cow<'static, str>, u64>,
    /// Comparison of the states with scans; absent if scans are the only source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciliation: Option<Reconciliation>,
    /// Transitions and TCP's own counters; empty without programs.
    #[serde(flatten)]
    pub counted: Counts,
    /// Times from establishment to the first read; absent if reads are not observed.
    #[serde(flatten)]
    pub connects: Option<ConnectTotals>,
    /// Connections waiting to be accepted at the listener with the fullest queue.
    pub accept_queue: Option<u64>,
    /// Limit of the fullest listener's accept queue.
    pub accept_queue_limit: Option<u64>,
    /// Half-open connections at the last scan (length of the SYN backlog).
    pub syn_backlog: u64,
    /// Connections and SYNs that this port's listeners dropped because a queue was full, since the watch began;
    /// absent if it could not be read.
    pub port_drops: Option<u64>,
    /// Connections dropped because the accept queue was full, in the whole network namespace.
    pub listen_overflows: Option<u64>,
    /// SYNs dropped at listeners, in the whole network namespace.
    pub listen_drops: Option<u64>,
}

/// Times from the establishment of connections to their first read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConnectTotals {
    /// Connections whose first byte was read.
    pub connects: u64,
    /// Sum of the times from establishment to the first read, nanoseconds.
    #[serde(default)]
    pub connect_elapsed_ns: u64,
    /// CPU time of accepting, counted if the thread did nothing else since its last connection ended.
    #[serde(default)]
    pub connect_cpu_ns: i64,
    /// Number of connections in `connect_cpu_ns`.
    #[serde(default)]
    pub connects_with_cpu: u64,
}

/// The programs' counts of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessCounts {
    /// Requests that the process finished.
    pub requests: u64,
    /// Bytes of requests that the process read.
    #[serde(default)]
    pub bytes_in: u64,
    /// Bytes of responses that the process wrote.
    #[serde(default)]
    pub bytes_out: u64,
    /// Requests that the process finished and whose phases were timed.
    #[serde(default)]
    pub timed: u64,
    /// Mean elapsed nanoseconds of the timed requests: parse, process, log.
    #[serde(default)]
    pub elapsed_ns: [Option<f64>; PHASES],
    /// Mean CPU nanoseconds of the timed requests: parse, process, log.
    #[serde(default)]
    pub phase_cpu_ns: [Option<f64>; PHASES],
}

/// One process of the server, or the sum of all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ProcessTotals {
    /// Process id; 0 = all others: unlisted processes, ended processes, and requests that no event of a process has
    /// ended.
    pub pid: u32,
    /// Name of the process's program; empty for the row of all others and for an ended process.
    pub name: PlainText,
    /// Number of processes in the row; for all others, of those with a known id.
    pub processes: u64,
    /// CPU time of the process by the scheduler since the watch began, nanoseconds; absent for an ended process,
    /// whose time is in the row of all others.
    pub cpu_ns: Option<u64>,
    /// Requests; absent if requests are not counted.
    #[serde(flatten)]
    pub counted: Option<ProcessCounts>,
}

/// A request that has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct OpenRequest {
    /// Time since the first read of the request, nanoseconds.
    pub age_ns: u64,
    /// Bytes of the request read so far.
    pub bytes_in: u64,
    /// Bytes of the response written so far.
    pub bytes_out: u64,
    /// CPU time of the request so far, nanoseconds.
    pub cpu_ns: i64,
    /// Id of the thread that reads it.
    pub thread: u32,
    /// Whether the response is partly written and waits for the client or the network.
    pub is_sending: bool,
}

/// Requests in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct OpenTotals {
    /// Requests that were read and have no response yet.
    pub waiting: u64,
    /// Requests that are answered, but not fully acknowledged by the client.
    pub sending: u64,
    /// The oldest requests in progress, oldest first.
    pub longest: Vec<OpenRequest>,
}

/// The scheduler's account of the server's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CpuTotals {
    /// CPU time of all processes of the group (timed by the scheduler).
    pub group_ns: u64,
    /// Share in user mode, as the kernel divides it.
    pub user_ratio: Option<f64>,
    /// CPU time by purpose; absent if reads are not visible.
    #[serde(flatten)]
    pub charged: Option<ChargedCpu>,
    /// Context switches of the group's observed threads.
    pub switches: u64,
    /// Part of `group_ns` used by the threads in `switches`; absent in older recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounted_ns: Option<u64>,
    /// Major faults of the group.
    pub major_faults: u64,
    /// Current number of processes.
    pub processes: u64,
    /// Current number of threads.
    pub threads: u64,
    /// Current resident memory, bytes.
    pub resident_bytes: u64,
}

impl CpuTotals {
    /// Context switches since an earlier reading; `None` if threads were missed ([`sees_all_threads`]).
    pub fn switches_since(&self, earlier: &CpuTotals) -> Option<u64> {
        let used_ns = self.group_ns.saturating_sub(earlier.group_ns);
        let accounted_ns = self.accounted_ns.map(|now| now.saturating_sub(earlier.accounted_ns.unwrap_or(0)));
        let is_whole = accounted_ns.is_none_or(|accounted_ns| sees_all_threads(used_ns, accounted_ns));
        is_whole.then(|| self.switches.saturating_sub(earlier.switches))
    }
}

/// Whether the observed threads used the CPU time of their processes. A thread that begins and ends between two
/// readings is missed, and the account of a running one is up to a tick old.
pub fn sees_all_threads(used_ns: u64, accounted_ns: u64) -> bool {
    const TICKS_NS: u64 = 50_000_000;
    used_ns.saturating_sub(accounted_ns) <= TICKS_NS.max(used_ns / 10)
}

/// CPU time by purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChargedCpu {
    /// CPU time charged to requests, finished or in progress.
    pub requests_ns: i64,
    /// CPU time of accepting connections, nanoseconds.
    #[serde(default)]
    pub connect_ns: i64,
    /// CPU time of closing connections, and of other work of threads between the end of a connection and the next
    /// request.
    #[serde(default)]
    pub between_ns: i64,
    /// Remaining CPU time: of threads that never read from the port, and of threads before their first read.
    #[serde(default)]
    pub elsewhere_ns: i64,
}

/// Phases by the server's own functions, and by reads and sends of the same requests. CPU times include the cost of
/// the probes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct PackTotals {
    /// Name of the server in the pack.
    pub server: String,
    /// Number of timed windows.
    pub windows: u64,
    /// Length of all timed windows, nanoseconds.
    pub window_ns: u64,
    /// Cost of the probes per request while a window is open, measured on functions of straingauge that begin with the
    /// same kinds of instructions.
    pub request_ns: f64,
    /// Time between windows, chosen so that this cost stays within the budget.
    pub period_ns: u64,
    /// Function calls observed in windows.
    pub hits: u64,
    /// Phases by functions, by class.
    pub by_functions: Vec<PhaseTotals>,
    /// Phases by reads and sends, for the requests of the same windows.
    pub by_events: Vec<PhaseTotals>,
}

/// Cost of the watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CostTotals {
    /// CPU time of the watching process, nanoseconds.
    pub own_cpu_ns: u64,
    /// Cost of the programs to the server; absent without programs.
    #[serde(flatten)]
    pub added: Option<AddedCost>,
}

/// Cost of the programs to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AddedCost {
    /// CPU time added to the server and to other programs: the number of events times the calibrated cost of one.
    pub added_ns: f64,
    /// Cost of one event that counts a request.
    #[serde(default)]
    pub receive_event_ns: f64,
    /// Cost of one event that a program rejects.
    #[serde(default)]
    pub away_event_ns: f64,
    /// Number of events that the programs rejected: on sockets of other ports, and in windows also switches and
    /// system calls of all threads.
    #[serde(default)]
    pub away_events: u64,
    /// Part of `added_ns` for rejected events, paid by the thread that caused the event.
    #[serde(default)]
    pub away_ns: f64,
    /// `added_ns` as a share of the server's CPU time since the watch began.
    pub added_ratio: Option<f64>,
    /// Number of timed windows.
    #[serde(default)]
    pub windows: u64,
    /// Length of all timed windows, nanoseconds.
    #[serde(default)]
    pub window_ns: u64,
}

/// Reading of a watch. Counts are totals since the watch began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Reading {
    /// Time of the reading by CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// Wall clock, Unix milliseconds.
    pub unix_ms: u64,
    /// Time since the watch began, nanoseconds.
    pub elapsed_ns: u64,
    /// Part of the time in which requests were counted, nanoseconds; absent if all of it. `classes`, `processes`,
    /// `losses` and times to the first read cover only this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_ns: Option<u64>,
    /// Requests by size class; empty when requests are not counted.
    pub classes: Vec<ClassTotals>,
    /// Phases by size class; empty when none are timed.
    pub phases: Vec<PhaseTotals>,
    /// Phases by the server's own functions; absent without a pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackTotals>,
    /// Connections of the server's port.
    pub connections: ConnectionTotals,
    /// Server's work by process, most CPU time first, the others last: CPU time, requests and bytes add up to the
    /// group's.
    pub processes: Vec<ProcessTotals>,
    /// Requests in progress; absent when requests are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenTotals>,
    /// Protocols of the reads that were inspected; absent if none was.
    pub traffic: Option<Traffic>,
    /// CPU time of the server; absent if its processes may not be read, or if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuTotals>,
    /// Cost of watching.
    pub cost: CostTotals,
    /// Losses, all 0 in a sound run; empty when requests were never counted.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    pub losses: Counts,
    /// Last reading of the machine's counters, which have their own interval, with its time.
    pub system: SystemTotals,
    /// Bytes that the server's processes read and wrote, at the interval of `system`; absent if they may not be read.
    pub io: Option<GroupIo>,
    /// Counters of the watched control group; absent without one.
    pub control_group: Option<ControlGroupTotals>,
    /// Inputs of the headroom: limits of the server and their use; absent if not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitTotals>,
    /// Account of the server's threads for part of the time since the last reading; absent if not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

impl Reading {
    /// Time in which requests were counted since the watch began, nanoseconds.
    pub fn counted_time_ns(&self) -> u64 {
        self.counted_ns.unwrap_or(self.elapsed_ns)
    }
}

/// A mean per request with the half-width of its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Mean {
    /// Mean per request.
    pub mean: f64,
    /// Half width of the 95 % interval; absent with fewer than five windows, and in exact mode, which does not
    /// sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Requests that were timed.
    pub requests: u64,
    /// Number of windows in which requests were timed.
    pub windows: u64,
}

/// Differences between scans and the model of the states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Reconciliation {
    /// Scans so far, including the first one at the start.
    pub scans: u64,
    /// Difference of the last scan, summed over states, that transitions during the scan do not explain.
    pub last_difference: u64,
    /// Largest such difference so far.
    pub largest_difference: u64,
    /// Number of sockets in the last scan.
    pub last_scan: u64,
}

/// Contents of reads that began a request. Only inspected reads are counted, not all reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Traffic {
    /// Number of inspected reads; the following numbers are parts of it.
    pub looked_into: u64,
    /// Reads with one HTTP/1 request, or its beginning.
    pub http1: u64,
    /// Reads with one Redis command (RESP), or its beginning.
    pub redis: u64,
    /// Reads with one memcached command, or its beginning.
    pub memcached: u64,
    /// Reads with several HTTP/1 requests or commands; each read counts as one request.
    pub pipelined: u64,
    /// Requests, commands and streams that began in the inspected reads, by their first KiB.
    pub requests: u64,
    /// Reads in `http1` and `pipelined` whose request has a body.
    pub uploads: u64,
    /// Reads in `uploads` whose client waits for permission (`Expect: 100-continue`); each is counted as two requests.
    pub expecting: u64,
    /// Reads in `http1` whose request asks for a WebSocket.
    pub websockets: u64,
    /// Reads with HTTP/2: the preface, or frames.
    pub http2: u64,
    /// Reads with TLS records.
    pub tls: u64,
    /// Reads in an unknown protocol.
    pub other: u64,
    /// Reads whose buffer is not visible (io_uring).
    pub hidden: u64,
}

impl Traffic {
    /// Mean number of requests, commands or streams in an inspected read that counts as one request. `None` if most
    /// reads could not be inspected.
    pub fn requests_per_read(&self) -> Option<f64> {
        let known = self.http1 + self.redis + self.memcached + self.pipelined + self.http2;
        (known > 0 && 2 * known >= self.looked_into).then(|| self.requests as f64 / known as f64)
    }
}

impl Reading {
    /// The number of a counter; `None` if it is not measured.
    pub fn count(&self, counter: Counter) -> Option<u64> {
        if counter.is_loss() { self.losses.get(counter) } else { self.connections.counted.get(counter) }
    }

    /// CPU time of the server as accounted by the scheduler.
    pub fn group_ns(&self) -> Option<u64> {
        self.cpu.map(|cpu| cpu.group_ns)
    }

    /// CPU time by purpose.
    pub fn charged(&self) -> Option<ChargedCpu> {
        self.cpu?.charged
    }

    /// The sum of the classes.
    pub fn all(&self) -> ClassTotals {
        ClassTotals::sum(&self.classes)
    }

    /// The increase of each class since an earlier reading.
    pub fn classes_since(&self, earlier: &Reading) -> Vec<ClassTotals> {
        let none = ClassTotals::default();
        let before = earlier.classes.iter().chain(std::iter::repeat(&none));
        self.classes.iter().zip(before).map(|(class, before)| class.since(before)).collect()
    }
}
