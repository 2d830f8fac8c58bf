//! The server's work by process: requests and phases from the programs' records of threads, CPU time from the
//! scheduler. The processes with the most work are listed, and one row has all others, so the rows add up to the
//! group.

use crate::bpf::types::watch::{PortCounts, ThreadRecord};
use crate::group::ProcessCpu;
use crate::processes::Process;
use record::PlainText;
use record::watch::{ClassTotals, PHASES, ProcessCounts, ProcessTotals};
use std::collections::BTreeMap;

/// Number of processes listed in a reading.
pub const LISTED: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessWork {
    /// Threads that have read a request.
    pub threads: u64,
    /// CPU time of these threads since each of them first read a request.
    pub charged_ns: i64,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    timed: u64,
    elapsed_ns: [u64; PHASES],
    cpu_ns: [i64; PHASES],
}

record::adds_up!(ProcessWork { threads, charged_ns, requests, bytes_in, bytes_out, timed, elapsed_ns, cpu_ns });

impl ProcessWork {
    fn counts(&self) -> ProcessCounts {
        let ProcessWork { requests, bytes_in, bytes_out, timed, .. } = *self;
        let mean = |total: f64| (timed > 0).then(|| total / timed as f64);
        let elapsed_ns = self.elapsed_ns.map(|total| mean(total as f64));
        let phase_cpu_ns = self.cpu_ns.map(|total| mean(total as f64));
        ProcessCounts { requests, bytes_in, bytes_out, timed, elapsed_ns, phase_cpu_ns }
    }
}

/// Key for threads whose records were overwritten.
const REST: Process = Process { pid: 0, start_ticks: 0 };

/// Work by process, with threads whose records were overwritten under [`REST`]. Also returns the CPU time that
/// threads spent between connections.
pub fn work(threads: impl Iterator<Item = ThreadRecord>, counts: &PortCounts) -> (BTreeMap<Process, ProcessWork>, i64) {
    let mut by_process: BTreeMap<Process, ProcessWork> = BTreeMap::new();
    let mut between_ns = counts.displaced_thread_other_cpu_ns;
    for thread in threads.filter(|thread| thread.tgid != 0) {
        between_ns += thread.other_cpu_ns;
        let process = Process { pid: thread.tgid, start_ticks: thread.process_start_ticks };
        by_process.entry(process).or_default().add(&ProcessWork {
            threads: u64::from(thread.requests > 0),
            charged_ns: thread.charged_ns,
            requests: thread.requests,
            bytes_in: thread.bytes_in,
            bytes_out: thread.bytes_out,
            timed: u64::from(thread.timed),
            elapsed_ns: thread.elapsed_ns,
            cpu_ns: thread.phase_cpu_ns,
        });
    }
    by_process.insert(
        REST,
        ProcessWork {
            threads: 0,
            charged_ns: 0,
            requests: counts.displaced_thread_requests,
            bytes_in: counts.displaced_thread_bytes_in,
            bytes_out: counts.displaced_thread_bytes_out,
            timed: counts.displaced_thread_timed,
            elapsed_ns: counts.displaced_thread_elapsed_ns,
            cpu_ns: counts.displaced_thread_phase_cpu_ns,
        },
    );
    (by_process, between_ns)
}

/// The rows by CPU time, then requests; the last row is the remainder. `work`: `None` if requests are not counted.
/// `group_ns` and `all`: the sums of all rows.
pub fn rows(
    work: Option<&BTreeMap<Process, ProcessWork>>,
    scheduler: &[ProcessCpu],
    group_ns: u64,
    all: &ClassTotals,
) -> Vec<ProcessTotals> {
    let mut by_process: BTreeMap<Process, ProcessTotals> = BTreeMap::new();
    for living in scheduler {
        by_process.insert(
            living.process,
            ProcessTotals {
                pid: living.process.pid,
                name: living.name.clone(),
                cpu_ns: Some(living.cpu_ns),
                counted: work.map(|_| ProcessCounts::default()),
                processes: 1,
            },
        );
    }
    for (process, work) in work.into_iter().flatten().filter(|(of, work)| **of != REST && work.requests > 0) {
        let unseen = || ProcessTotals { pid: process.pid, processes: 1, ..ProcessTotals::default() };
        let row = by_process.entry(*process).or_insert_with(unseen);
        row.counted = Some(work.counts());
    }
    let mut list: Vec<(Process, ProcessTotals)> = by_process.into_iter().collect();
    let requests = |row: &ProcessTotals| row.counted.map_or(0, |counts| counts.requests);
    list.sort_by_key(|(_, row)| std::cmp::Reverse((row.cpu_ns.unwrap_or(0), requests(row))));
    let rest: Vec<Process> = list.split_off(list.len().min(LISTED)).into_iter().map(|(process, _)| process).collect();
    let mut list: Vec<ProcessTotals> = list.into_iter().map(|(_, row)| row).collect();
    list.extend(others(&list, &rest, work, group_ns, all));
    list
}

fn others(
    listed: &[ProcessTotals],
    rest: &[Process],
    work: Option<&BTreeMap<Process, ProcessWork>>,
    group_ns: u64,
    all: &ClassTotals,
) -> Option<ProcessTotals> {
    let cpu_ns = group_ns.saturating_sub(listed.iter().filter_map(|row| row.cpu_ns).sum());
    let counted = work.map(|work| {
        let mut sum = work.get(&REST).copied().unwrap_or_default();
        rest.iter().filter_map(|process| work.get(process)).for_each(|work| sum.add(work));
        let left = |whole: u64, of: fn(&ProcessCounts) -> u64| {
            whole.saturating_sub(listed.iter().filter_map(|row| row.counted.as_ref()).map(of).sum())
        };
        ProcessCounts {
            requests: left(all.requests, |counts| counts.requests),
            bytes_in: left(all.bytes_in, |counts| counts.bytes_in),
            bytes_out: left(all.bytes_out, |counts| counts.bytes_out),
            ..sum.counts()
        }
    });
    let has_any = cpu_ns > 0 || !rest.is_empty() || counted.is_some_and(|counts| counts.requests > 0);
    has_any.then(|| ProcessTotals {
        pid: 0,
        name: PlainText::default(),
        processes: rest.len() as u64,
        cpu_ns: Some(cpu_ns),
        counted,
    })
}
