use super::classes::SIZE_CLASSES;
use crate::bpf::types::watch::{AnsweredRow, ClassRow, PortCounts, Sweep};
use record::watch::{ClassTotals, ConnectTotals, Counts, Log2Histogram, OpenRequest, OpenTotals};

const LISTED: usize = 10;

/// Finished requests of all CPUs by class, including those that are answered but not ended by an event yet.
pub fn classes(rows: impl Iterator<Item = ClassRow>, swept: &Sweep, count: usize) -> Vec<ClassTotals> {
    let mut sums = [ClassRow::default(); SIZE_CLASSES];
    rows.enumerate().for_each(|(index, row)| sums[index % SIZE_CLASSES].add(&row));
    let total = |(ended, answered): (&ClassRow, &AnsweredRow)| ClassTotals {
        requests: ended.requests + answered.requests,
        bytes_in: ended.bytes_in + answered.bytes_in,
        bytes_out: ended.bytes_out + answered.bytes_out,
        receives: ended.receives + answered.receives,
        cpu_ns: ended.cpu_ns + answered.cpu_ns,
        elapsed_ns: ended.elapsed_ns,
        timed: ended.timed,
        elapsed: Log2Histogram(ended.elapsed.buckets),
    };
    sums.iter().zip(&swept.answered).take(count).map(total).collect()
}

pub fn counted(counts: &PortCounts, is_loss: bool) -> Counts {
    Counts::from_fn(|counter| (counter.is_loss() == is_loss).then(|| counts.counters[counter as usize]))
}

pub fn connects(counts: &PortCounts) -> ConnectTotals {
    ConnectTotals {
        connects: counts.connects,
        connect_elapsed_ns: counts.connect_elapsed_ns,
        connect_cpu_ns: counts.connect_cpu_ns,
        connects_with_cpu: counts.connects_with_cpu,
    }
}

/// Requests in progress, oldest first.
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
