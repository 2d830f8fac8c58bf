//! From the programs' rows to a reading's totals.

use super::layout::{ClassRow, PortCounts, SIZE_CLASSES, Sweep, ThreadRecord};
use super::reading::{ClassTotals, OpenRequest, OpenTotals, ProcessTotals};
use std::collections::BTreeMap;

/// Longest requests that a reading lists.
const LISTED: usize = 10;
/// Processes that a reading lists.
const PROCESSES: usize = 64;

/// The classes: finished requests of all CPUs, and those that are answered but not ended by an event yet.
pub fn classes(rows: impl Iterator<Item = ClassRow>, swept: &Sweep, count: usize) -> Vec<ClassTotals> {
    let mut totals = vec![ClassTotals::default(); SIZE_CLASSES];
    for (index, row) in rows.enumerate() {
        let total = &mut totals[index % SIZE_CLASSES];
        total.requests += row.requests;
        total.bytes_in += row.bytes_in;
        total.bytes_out += row.bytes_out;
        total.receives += row.receives;
        total.cpu_ns += row.cpu_ns;
        total.elapsed_ns += row.elapsed_ns;
        total.timed += row.timed;
        total.elapsed.add(&row.elapsed);
    }
    for (total, row) in totals.iter_mut().zip(&swept.answered) {
        total.requests += row.requests;
        total.bytes_in += row.bytes_in;
        total.bytes_out += row.bytes_out;
        total.receives += row.receives;
        total.cpu_ns += row.cpu_ns;
    }
    totals.truncate(count);
    totals
}

/// Requests in progress, the oldest first.
pub fn open(swept: &Sweep) -> OpenTotals {
    let mut longest: Vec<OpenRequest> = swept
        .open
        .iter()
        .take(swept.listed as usize)
        .map(|open| OpenRequest {
            age_ns: swept.now_ns.saturating_sub(open.begun_ns),
            bytes_in: open.bytes_in,
            bytes_out: open.bytes_out,
            cpu_ns: open.cpu_ns,
            thread: open.pid,
            is_sending: open.is_sending != 0,
        })
        .collect();
    longest.sort_by_key(|request| std::cmp::Reverse(request.age_ns));
    longest.truncate(LISTED);
    OpenTotals { waiting: swept.waiting, sending: swept.sending, longest }
}

/// Requests by process, most first, and the CPU time that threads spent between connections.
pub fn processes(threads: impl Iterator<Item = ThreadRecord>, counts: &PortCounts) -> (Vec<ProcessTotals>, i64) {
    let mut by_pid: BTreeMap<u32, ProcessTotals> = BTreeMap::new();
    let mut between_ns = counts.displaced_thread_other_cpu_ns;
    for thread in threads.filter(|thread| thread.pid != 0) {
        between_ns += thread.other_cpu_ns;
        let process = by_pid.entry(thread.tgid).or_default();
        process.pid = thread.tgid;
        process.requests += thread.requests;
        process.bytes_in += thread.bytes_in;
        process.bytes_out += thread.bytes_out;
    }
    if counts.displaced_thread_requests > 0 {
        by_pid.insert(
            0,
            ProcessTotals {
                pid: 0,
                requests: counts.displaced_thread_requests,
                bytes_in: counts.displaced_thread_bytes_in,
                bytes_out: counts.displaced_thread_bytes_out,
            },
        );
    }
    let mut list: Vec<ProcessTotals> = by_pid.into_values().filter(|process| process.requests > 0).collect();
    list.sort_by_key(|process| std::cmp::Reverse(process.requests));
    list.truncate(PROCESSES);
    (list, between_ns)
}
