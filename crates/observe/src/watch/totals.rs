use super::classes::SIZE_CLASSES;
use super::kernel::KernelHooks;
use super::states::Transitions;
use super::watcher::ProgramCounts;
use crate::bpf::types::watch::{ClassRow, PortCounts, Sweep};
use record::watch::{ClassTotals, ConnectTotals, Counter, Counts, OpenRequest, OpenTotals};

const LISTED: usize = 10;

/// Finished requests of all CPUs by class, including those that are answered but not ended by an event yet.
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

pub fn counted(counts: &PortCounts, hooks: KernelHooks) -> ProgramCounts {
    let is_seen = |counter: Counter| hooks.observes(counter.declaration().source);
    let number = |counter: Counter| is_seen(counter).then(|| counts.counters[counter as usize]);
    let of = |is_loss| Counts::from_fn(|counter| number(counter).filter(|_| counter.is_loss() == is_loss));
    ProgramCounts {
        transitions: Transitions {
            entered: counts.entered,
            left: counts.left,
            time_waits: counts.time_waits,
            time_wait_entered: counts.time_wait_entered,
            time_wait_reused: counts.time_wait_reused,
        },
        connections: of(false),
        losses: of(true),
        connects: ConnectTotals {
            connects: counts.connects,
            connect_elapsed_ns: counts.connect_elapsed_ns,
            connect_cpu_ns: counts.connect_cpu_ns,
            connects_with_cpu: counts.connects_with_cpu,
        },
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
