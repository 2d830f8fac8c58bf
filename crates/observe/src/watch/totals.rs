//! From the programs' rows to a reading's totals.

use super::classes::SIZE_CLASSES;
use super::kernel::KernelHooks;
use super::states::Transitions;
use super::watcher::Counted;
use crate::bpf::types::watch::{ClassRow, PortCounts, Sweep};
use record::watch::{ClassTotals, ConnectTotals, ConnectionCounts, Log2Histogram, Losses, OpenRequest, OpenTotals};

/// Longest requests that a reading lists.
const LISTED: usize = 10;

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
        total.elapsed.add(&row.elapsed.buckets);
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

/// Connections.
pub fn counted(counts: &PortCounts, hooks: KernelHooks) -> Counted {
    let mut connect_elapsed = Log2Histogram::default();
    connect_elapsed.add(&counts.connect_elapsed.buckets);
    Counted {
        transitions: Transitions {
            entered: counts.entered,
            left: counts.left,
            time_waits: counts.time_waits,
            time_wait_entered: counts.time_wait_entered,
            time_wait_reused: counts.time_wait_reused,
        },
        connections: ConnectionCounts {
            accepted: counts.accepted,
            closed: counts.closed,
            aborted: counts.aborted,
            retransmits: hooks.has_retransmits.then_some(counts.retransmits),
            resets_sent: hooks.has_resets.then_some(counts.resets_sent),
            resets_received: hooks.has_resets.then_some(counts.resets_received),
            closed_bytes_received: counts.closed_bytes_received,
            closed_bytes_acked: counts.closed_bytes_acked,
            closed_data_segments_in: counts.closed_data_segs_in,
            closed_data_segments_out: counts.closed_data_segs_out,
        },
        connects: ConnectTotals {
            connects: counts.connects,
            connect_elapsed_ns: counts.connect_elapsed_ns,
            connect_elapsed,
            connect_cpu_ns: counts.connect_cpu_ns,
            connects_with_cpu: counts.connects_with_cpu,
        },
        losses: Losses {
            displaced_open: counts.lost_open,
            displaced_answered: counts.displaced,
            unanswered: counts.unanswered,
        },
    }
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
