//! The load that real clients put on a server, seen from its machine alone: rates, response times, and requests that
//! wait in its sockets.

use super::watcher::{WatchOptions, Watcher};
use crate::error::ObserveError;
use crate::sock_diag::{DiagSocket, PortSockets, Scope};
use libbpf_rs::Link;
use record::Latency;
use record::watch::{BUCKETS, ClassTotals, Counter, Log2Histogram, Mode, Reading, bucket_end_ns};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

const SPREAD: u64 = 16;

/// Watches the live requests of a server.
#[derive(Debug)]
pub struct LiveTraffic {
    watcher: Watcher,
    /// Hooks that read the status of answers.
    _sends: Option<Vec<Link>>,
    sockets: DiagSocket,
    /// The listeners at the start, by inode.
    listeners: BTreeSet<u64>,
    unread_sum: u64,
    looks: u64,
}

/// The totals at one moment.
#[derive(Debug, Clone, Default)]
pub struct LiveMark {
    /// All counts of the watch.
    pub reading: Reading,
    /// Whether all listeners of the start are gone.
    pub is_gone: bool,
    /// Connections with unread bytes at this moment.
    pub unread: u64,
    /// Sum of `unread` over all looks.
    pub unread_sum: u64,
    /// Number of looks at the sockets.
    pub looks: u64,
}

/// The traffic between two moments.
#[derive(Debug, Clone)]
pub struct TrafficSpan {
    /// Time between the moments, nanoseconds.
    pub span_ns: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Answers whose status line was read, and those of them that are errors of the server.
    pub statuses: [u64; 2],
    /// Connections that the listeners dropped because a queue was full.
    pub dropped: u64,
    /// Change in the number of requests in the server and its sockets.
    pub in_flight_change: i64,
    /// Connections of the server at the end.
    pub connections: u64,
    /// Mean time that requests waited in the sockets before they were read, nanoseconds; absent if none was answered.
    pub wait_ns: Option<f64>,
    /// Bytes of all requests and of all responses.
    pub bytes: [u64; 2],
    /// Response times: from the first read to the last segment of the response, plus the wait before the read, which
    /// is taken as exponentially distributed around its mean.
    pub response: Latency,
}

impl LiveTraffic {
    /// Attaches the watch of a port. The error says why requests cannot be counted.
    pub fn start(port: u16) -> Result<LiveTraffic, String> {
        let options = WatchOptions { mode: Mode::Counts, detects_protocol: false, ..WatchOptions::of_port(port) };
        let said = |error: ObserveError| error.to_string();
        let watcher = Watcher::start(options).map_err(said)?;
        if let Some(why) = watcher.why_no_programs() {
            return Err(why.to_string());
        }
        // If the kernel refuses, no status is read, which the run reports.
        let sends = watcher.tracer.as_ref().and_then(|tracer| tracer.programs.attach_sends().ok());
        let unlisted = |error| format!("its sockets cannot be listed: {error}");
        let mut sockets = DiagSocket::connect().map_err(unlisted)?;
        let listed = sockets.read_port(port, Scope::Listeners).map_err(unlisted)?;
        let listeners: BTreeSet<u64> = listed.listeners.iter().map(|listener| listener.inode).collect();
        if listeners.is_empty() {
            return Err(format!("nothing listens on port {port} of this machine"));
        }
        Ok(LiveTraffic { watcher, _sends: sends, sockets, listeners, unread_sum: 0, looks: 0 })
    }

    /// Sleeps until `deadline_ns` (monotonic) or until `stop` is set.
    pub fn wait_until(&mut self, deadline_ns: u64, stop: &AtomicBool) {
        self.watcher.wait_until(deadline_ns, stop);
    }

    /// Reads all totals.
    pub fn mark(&mut self) -> LiveMark {
        let reading = self.watcher.read();
        let listed = self.sockets.read_port(self.watcher.options().port, Scope::AllStates);
        let is_known =
            |sockets: &PortSockets| sockets.listeners.iter().any(|listener| self.listeners.contains(&listener.inode));
        let is_gone = listed.as_ref().is_ok_and(|sockets| !is_known(sockets));
        let unread = listed.map_or(0, |sockets| sockets.unread);
        self.unread_sum += unread;
        self.looks += 1;
        LiveMark { reading, is_gone, unread, unread_sum: self.unread_sum, looks: self.looks }
    }
}

impl LiveMark {
    /// Time of the reading (CLOCK_MONOTONIC).
    pub fn at_ns(&self) -> u64 {
        self.reading.at_ns
    }

    /// The traffic since an earlier moment.
    pub fn since(&self, earlier: &LiveMark) -> TrafficSpan {
        let (before, now) = (&earlier.reading, &self.reading);
        let span_ns = now.at_ns.saturating_sub(before.at_ns).max(1);
        let all = ClassTotals::sum(&now.classes_since(before));
        let grown = |now: Option<u64>, before: Option<u64>| now.unwrap_or(0).saturating_sub(before.unwrap_or(0));
        let looks = self.looks.saturating_sub(earlier.looks).max(1);
        let unread = self.unread_sum.saturating_sub(earlier.unread_sum) as f64 / looks as f64;
        // Little's law.
        let wait_ns = (all.requests > 0).then(|| unread * span_ns as f64 / all.requests as f64);
        let counted = |counter: Counter| grown(now.count(counter), before.count(counter));
        TrafficSpan {
            span_ns,
            answered: all.requests,
            statuses: [counted(Counter::StatusLines), counted(Counter::ServerErrors)],
            dropped: grown(now.connections.port_drops, before.connections.port_drops),
            in_flight_change: self.in_flight() - earlier.in_flight(),
            connections: now.connections.states.get("established").copied().unwrap_or(0),
            wait_ns,
            bytes: [all.bytes_in, all.bytes_out],
            response: response(&all.elapsed, wait_ns.unwrap_or(0.0)),
        }
    }

    fn in_flight(&self) -> i64 {
        (self.reading.open.as_ref().map_or(0, |open| open.waiting) + self.unread) as i64
    }
}

/// Elapsed times, spread evenly within their buckets, plus exponentially distributed waits with this mean.
fn response(elapsed: &Log2Histogram, wait_ns: f64) -> Latency {
    let mut response = Latency::new();
    for bucket in (0..BUCKETS).filter(|bucket| elapsed.0[*bucket] > 0) {
        let count = elapsed.0[bucket];
        let end_ns = bucket_end_ns(bucket) as f64;
        let begin_ns = if bucket == 0 { 0.0 } else { end_ns / 2.0 };
        for part in 0..SPREAD.min(count) {
            let parts = SPREAD.min(count);
            let within = (part as f64 + 0.5) / parts as f64;
            // Another order of the same quantiles, so that long times do not always meet long waits.
            let of_wait = ((part * 7 + bucket as u64 * 3) % parts) as f64;
            let wait = -(1.0 - (of_wait + 0.5) / parts as f64).ln() * wait_ns;
            let counted = count / parts + u64::from(part < count % parts);
            response.record_many_ns((begin_ns + within * (end_ns - begin_ns) + wait) as u64, counted);
        }
    }
    response
}
