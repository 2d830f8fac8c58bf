//! What a reading holds: totals since the watch began, so that any two readings give rates. Plain data; JSON as it stands. Where
//! a reading is read back, what is absent is as it was when nothing was counted, and unknown members are passed over.

use super::counters::Counter;
use super::counts::Counts;
use super::system::{ControlGroupTotals, GroupIo, SystemTotals};
use crate::Outside;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Buckets of a histogram.
pub const BUCKETS: usize = 40;
/// Phases that are measured between first read and readiness: parse, process, log.
pub const PHASES: usize = 3;
/// Fewer windows than this give a mean and no interval.
pub const FEWEST_WINDOWS: u64 = 5;

/// Upper end (exclusive) of a histogram's bucket, nanoseconds: bucket b holds `[2^(b+5), 2^(b+6))`, bucket 0 all below.
pub fn bucket_end_ns(bucket: usize) -> u64 {
    1 << (bucket.min(BUCKETS - 1) + 6)
}

/// Counts by powers of two of nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log2Histogram(pub [u64; BUCKETS]);

impl Default for Log2Histogram {
    fn default() -> Self {
        Log2Histogram([0; BUCKETS])
    }
}

impl Serialize for Log2Histogram {
    /// As pairs of (upper end in nanoseconds, count), without the empty buckets.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        serializer.collect_seq(filled.map(|(bucket, count)| (bucket_end_ns(bucket), *count)))
    }
}

impl<'de> Deserialize<'de> for Log2Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Log2Histogram::default();
        for (end_ns, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            let bucket = (0..BUCKETS).find(|bucket| bucket_end_ns(*bucket) == end_ns);
            let bucket = bucket.ok_or_else(|| serde::de::Error::custom(format!("no bucket ends at {end_ns} ns")))?;
            histogram.0[bucket] = count;
        }
        Ok(histogram)
    }
}

impl crate::sum::Summand for Log2Histogram {
    fn add(&mut self, other: &Log2Histogram) {
        Log2Histogram::add(self, &other.0);
    }
}

impl Log2Histogram {
    /// Adds another's counts.
    pub fn add(&mut self, other: &[u64; BUCKETS]) {
        for (mine, theirs) in self.0.iter_mut().zip(other) {
            *mine = mine.wrapping_add(*theirs);
        }
    }

    /// Counts since an earlier reading.
    pub fn since(&self, earlier: &Log2Histogram) -> Log2Histogram {
        let mut difference = self.clone();
        for (mine, theirs) in difference.0.iter_mut().zip(&earlier.0) {
            *mine = mine.saturating_sub(*theirs);
        }
        difference
    }

    /// The upper end of the bucket in which a quantile lies: the value is at most this, and more than half of it. `None`
    /// when empty.
    pub fn quantile_at_most_ns(&self, quantile: f64) -> Option<u64> {
        let total: u64 = self.0.iter().sum();
        let rank = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        self.0
            .iter()
            .position(|count| {
                seen += count;
                total > 0 && seen >= rank
            })
            .map(bucket_end_ns)
    }
}

/// Requests of one size class.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassTotals {
    /// Requests answered (counted).
    pub requests: u64,
    /// Bytes of request, as read by the server (counted).
    pub bytes_in: u64,
    /// Bytes of response, as written by the server (counted).
    pub bytes_out: u64,
    /// Reads (counted).
    pub receives: u64,
    /// CPU time of the server's threads from the request's first read on, until they turned to another (timed).
    pub cpu_ns: i64,
    /// First read to the departure of the response's last segment, summed (timed).
    pub elapsed_ns: u64,
    /// How many requests `elapsed_ns` holds.
    pub timed: u64,
    /// Their distribution.
    pub elapsed: Log2Histogram,
}

crate::sum::adds_up!(ClassTotals { requests, bytes_in, bytes_out, receives, cpu_ns, elapsed_ns, timed, elapsed });

impl ClassTotals {
    /// Several classes together.
    pub fn sum<'a>(classes: impl IntoIterator<Item = &'a ClassTotals>) -> ClassTotals {
        let mut all = ClassTotals::default();
        classes.into_iter().for_each(|class| all.add(class));
        all
    }

    /// What it gained since an earlier reading. A request in progress may move to a larger class while its response grows, so a
    /// class may seem to shrink: that counts as 0.
    pub fn since(&self, earlier: &ClassTotals) -> ClassTotals {
        ClassTotals {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            receives: self.receives.saturating_sub(earlier.receives),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns).max(0),
            elapsed_ns: self.elapsed_ns.saturating_sub(earlier.elapsed_ns),
            timed: self.timed.saturating_sub(earlier.timed),
            elapsed: self.elapsed.since(&earlier.elapsed),
        }
    }
}

/// Phases of one size class, from windows or from every request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseTotals {
    /// Requests whose phases were timed.
    pub requests: u64,
    /// Windows in which there were any.
    pub windows: u64,
    /// How many of them had their parse phase ended by a system call; the others by the first send.
    pub split: u64,
    /// Sends per request.
    pub sends: Option<Estimate>,
    /// Reads per request.
    pub receives: Option<Estimate>,
    /// Bytes read from disks per request (blocks of the paper's Table 2 are 512 of them).
    pub disk_bytes: Option<Estimate>,
    /// Reads asked of disks per request, read ahead included; 0 throughout where the kernel has no `block_bio_queue`.
    pub disk_reads: Option<Estimate>,
    /// Elapsed nanoseconds per request: parse, process, log.
    pub elapsed_ns: [Option<Estimate>; PHASES],
    /// CPU nanoseconds per request: parse, process, log. Scaled so that their sum is the class's exact CPU time.
    pub cpu_ns: [Option<Estimate>; PHASES],
    /// Distributions of elapsed times.
    pub elapsed: [Log2Histogram; PHASES],
    /// Distributions of CPU times.
    pub cpu: [Log2Histogram; PHASES],
}

/// The port's connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionTotals {
    /// Sockets now, by TCP state.
    pub states: BTreeMap<Cow<'static, str>, u64>,
    /// How the states compare with scans; absent where all there is are scans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciliation: Option<Reconciliation>,
    /// Transitions and TCP's own counters; empty without programs.
    #[serde(flatten)]
    pub counted: Counts,
    /// From establishment to the first read; absent where reads are not seen.
    #[serde(flatten)]
    pub connects: Option<ConnectTotals>,
    /// Connections waiting to be accepted, over all listeners, and the limit of each.
    pub accept_queue: Option<u64>,
    /// See `accept_queue`.
    pub accept_queue_limit: Option<u64>,
    /// Half-open connections at the last scan (the SYN backlog's length).
    pub syn_backlog: u64,
    /// Connections and SYNs that this port's listeners dropped because a queue was full, since the watch began; absent where
    /// they could not be asked.
    pub port_drops: Option<u64>,
    /// Connections dropped because the accept queue was full, in the whole network namespace.
    pub listen_overflows: Option<u64>,
    /// SYNs dropped at listeners, in the whole network namespace.
    pub listen_drops: Option<u64>,
}

/// From the establishment of connections to their first read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectTotals {
    /// Connections whose first byte was read.
    pub connects: u64,
    /// From establishment to the first read, summed.
    #[serde(default)]
    pub connect_elapsed_ns: u64,
    /// Distribution of it.
    #[serde(default)]
    pub connect_elapsed: Log2Histogram,
    /// CPU time of accepting, where the thread did nothing else since its last connection ended.
    #[serde(default)]
    pub connect_cpu_ns: i64,
    /// How many connections `connect_cpu_ns` is of.
    #[serde(default)]
    pub connects_with_cpu: u64,
}

/// What the programs counted of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCounts {
    /// Requests that it finished.
    pub requests: u64,
    /// Bytes read.
    #[serde(default)]
    pub bytes_in: u64,
    /// Bytes written.
    #[serde(default)]
    pub bytes_out: u64,
    /// Requests that it finished whose phases were timed.
    #[serde(default)]
    pub timed: u64,
    /// Their means, elapsed nanoseconds: parse, process, log.
    #[serde(default)]
    pub elapsed_ns: [Option<f64>; PHASES],
    /// Their means, CPU nanoseconds as timed.
    #[serde(default)]
    pub phase_cpu_ns: [Option<f64>; PHASES],
}

/// One process of the server, or all that are not listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTotals {
    /// Its number; 0 = all others: those beyond the list, those that ended, and requests that no process's own event has ended.
    pub pid: u32,
    /// Name of its program; empty for the others and for one that has ended.
    pub name: Outside,
    /// Processes that the row is of; of the others those that are known by number.
    pub processes: u64,
    /// CPU time by the scheduler since the watch began; absent for one that has ended, whose time is the others'.
    pub cpu_ns: Option<u64>,
    /// Requests; absent when requests are not counted.
    #[serde(flatten)]
    pub counted: Option<ProcessCounts>,
}

/// A request that has not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenRequest {
    /// Since its first read.
    pub age_ns: u64,
    /// Bytes read so far.
    pub bytes_in: u64,
    /// Bytes written so far.
    pub bytes_out: u64,
    /// CPU time so far.
    pub cpu_ns: i64,
    /// Process that reads it (thread's number).
    pub thread: u32,
    /// Written in part: waits for the client or the network.
    pub is_sending: bool,
}

/// Requests in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenTotals {
    /// Read, not answered yet.
    pub waiting: u64,
    /// Answered, not all of it acknowledged by the client.
    pub sending: u64,
    /// The longest, oldest first.
    pub longest: Vec<OpenRequest>,
}

/// The scheduler's account of the server's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTotals {
    /// All processes of the group (timed by the scheduler).
    pub group_ns: u64,
    /// Part in user mode, by the kernel's own division.
    pub user_ratio: Option<f64>,
    /// How much of it is explained; absent where reads are not seen.
    #[serde(flatten)]
    pub charged: Option<ChargedCpu>,
    /// Context switches of the group.
    pub switches: u64,
    /// Major faults of the group.
    pub major_faults: u64,
    /// Processes and threads now.
    pub processes: u64,
    /// See `processes`.
    pub threads: u64,
    /// Resident memory now.
    pub resident_bytes: u64,
}

/// CPU time by what it was spent on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ChargedCpu {
    /// Charged to requests, finished or in progress.
    pub requests_ns: i64,
    /// Accepting connections.
    #[serde(default)]
    pub connect_ns: i64,
    /// Closing connections and whatever threads did between the end of one and the next request.
    #[serde(default)]
    pub between_ns: i64,
    /// The rest: threads that never read from the port, and what threads did before their first read.
    #[serde(default)]
    pub elsewhere_ns: i64,
}

/// Phases by the server's own functions, beside those by reads and sends of the same requests. CPU times are as they were
/// timed, with what the probes added.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackTotals {
    /// The pack's server.
    pub server: String,
    /// Windows held, and nanoseconds in them.
    pub windows: u64,
    /// See `windows`.
    pub window_ns: u64,
    /// Cost of the dearest of its probes at a function's call and at a return, measured on functions of straingauge's own that begin
    /// alike.
    pub call_ns: f64,
    /// See `call_ns`.
    pub return_ns: f64,
    /// What the probes add to a request while a window is open.
    pub request_ns: f64,
    /// Time between windows that follows from it.
    pub period_ns: u64,
    /// Functions hit in windows.
    pub hits: u64,
    /// Phases by functions, by class.
    pub by_functions: Vec<PhaseTotals>,
    /// Phases by reads and sends, of the requests of the same windows.
    pub by_events: Vec<PhaseTotals>,
}

/// What the watch itself costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostTotals {
    /// CPU time of this process.
    pub own_cpu_ns: u64,
    /// What the programs add to the server's work; absent without programs.
    #[serde(flatten)]
    pub added: Option<AddedCost>,
}

/// What the programs add to the server's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AddedCost {
    /// Added to the server and to others: events times the calibrated cost of one.
    pub added_ns: f64,
    /// Cost of one event that counts a request, and of one send in a window.
    #[serde(default)]
    pub receive_event_ns: f64,
    /// See `receive_event_ns`.
    #[serde(default)]
    pub send_event_ns: f64,
    /// Cost of one event that a program turns away.
    #[serde(default)]
    pub away_event_ns: f64,
    /// How many there were: on sockets of other ports, in windows also switches and system calls of all threads.
    #[serde(default)]
    pub away_events: u64,
    /// Their part of `added_ns`; whoever made the event paid it.
    #[serde(default)]
    pub away_ns: f64,
    /// `added_ns` as a share of the server's CPU time since the watch began.
    #[serde(default)]
    pub added_ratio: Option<f64>,
    /// Windows held, and nanoseconds in them.
    #[serde(default)]
    pub windows: u64,
    /// See `windows`.
    #[serde(default)]
    pub window_ns: u64,
}

/// A reading. Counts are totals since the watch began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Wall clock, Unix milliseconds.
    pub unix_ms: u64,
    /// Since the watch began.
    pub elapsed_ns: u64,
    /// Requests by size class; empty when requests are not counted.
    pub classes: Vec<ClassTotals>,
    /// Phases by size class; empty when none are timed.
    pub phases: Vec<PhaseTotals>,
    /// Phases by the server's own functions; absent without a pack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackTotals>,
    /// Connections.
    pub connections: ConnectionTotals,
    /// The server's work by process, most CPU time first, the others last: CPU time, requests and bytes add up to the group's.
    pub processes: Vec<ProcessTotals>,
    /// Requests in progress; absent when requests are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenTotals>,
    /// What is spoken, by looking into a few reads; absent when none is looked into.
    pub traffic: Option<Traffic>,
    /// CPU time; absent where the server's processes may not be looked into, or there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuTotals>,
    /// Cost of watching.
    pub cost: CostTotals,
    /// What was lost or could not be told apart, all 0 in a sound run; empty when requests were never counted.
    #[serde(skip_serializing_if = "Counts::is_empty")]
    pub losses: Counts,
    /// The machine, at its own interval; the last reading with its own moment.
    pub system: SystemTotals,
    /// What the server's processes read and wrote, at the same interval; absent where they may not be looked into.
    pub io: Option<GroupIo>,
    /// Counters of the control group that is watched; absent without one.
    pub control_group: Option<ControlGroupTotals>,
}

/// A mean per request with the half-width of its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// Mean per request.
    pub mean: f64,
    /// Half of the 95 % interval's width; `None` with fewer than five windows, or in exact mode where there is no sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// Requests that were timed.
    pub requests: u64,
    /// Windows in which there were any.
    pub windows: u64,
}

/// What a scan showed against the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reconciliation {
    /// Scans so far, the first of them at the start.
    pub scans: u64,
    /// Sum over states of what the last scan showed beyond what transitions during it can explain.
    pub last_difference: u64,
    /// The largest of them so far.
    pub largest_difference: u64,
    /// Sockets in the last scan.
    pub last_scan: u64,
    /// What it took, nanoseconds of this process's CPU time.
    pub last_cost_ns: u64,
}

/// What reads that began a request were seen to hold. Counts are of reads looked into, not of all reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Reads looked into; the following are parts of it.
    pub looked_into: u64,
    /// One request of HTTP/1, or its beginning.
    pub http1: u64,
    /// One command of Redis (RESP), or its beginning.
    pub redis: u64,
    /// Several requests of HTTP/1 or commands of Redis at once: they count as one.
    pub pipelined: u64,
    /// Of `http1` and `pipelined`: with a body.
    pub uploads: u64,
    /// Of `uploads`: the client waits for leave (`Expect: 100-continue`), so each counts twice.
    pub expecting: u64,
    /// Of `http1`: asks to go on as a WebSocket.
    pub websockets: u64,
    /// HTTP/2: its beginning, or frames of it.
    pub http2: u64,
    /// Records of TLS.
    pub tls: u64,
    /// None of these.
    pub other: u64,
    /// Read in a way that hides where the bytes are, as io_uring does.
    pub hidden: u64,
}

impl Reading {
    /// The number of a counter; absent where it is not measured.
    pub fn count(&self, counter: Counter) -> Option<u64> {
        if counter.is_loss() { self.losses.get(counter) } else { self.connections.counted.get(counter) }
    }

    /// CPU time of the server by the scheduler.
    pub fn group_ns(&self) -> Option<u64> {
        self.cpu.map(|cpu| cpu.group_ns)
    }

    /// What of it is explained.
    pub fn charged(&self) -> Option<ChargedCpu> {
        self.cpu?.charged
    }

    /// The classes together.
    pub fn all(&self) -> ClassTotals {
        ClassTotals::sum(&self.classes)
    }

    /// What each class gained since an earlier reading.
    pub fn classes_since(&self, earlier: &Reading) -> Vec<ClassTotals> {
        let none = ClassTotals::default();
        let before = earlier.classes.iter().chain(std::iter::repeat(&none));
        self.classes.iter().zip(before).map(|(class, before)| class.since(before)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_upper_end_of_its_bucket() {
        let mut histogram = Log2Histogram::default();
        assert_eq!(histogram.quantile_at_most_ns(0.5), None);
        histogram.0[0] = 9;
        histogram.0[4] = 1;
        assert_eq!(histogram.quantile_at_most_ns(0.5), Some(64));
        assert_eq!(histogram.quantile_at_most_ns(0.9), Some(64));
        assert_eq!(histogram.quantile_at_most_ns(0.91), Some(1024));
        assert_eq!(histogram.quantile_at_most_ns(1.0), Some(1024));
    }

    #[test]
    fn json_leaves_empty_buckets_out() {
        let mut histogram = Log2Histogram::default();
        histogram.0[1] = 3;
        assert_eq!(serde_json::to_string(&histogram).unwrap(), "[[128,3]]");
    }
}
