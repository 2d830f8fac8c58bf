//! The machine's counters, as in the kernel module of Almeida, Almeida and Yates (1996, Table 2): CPU by mode, disk,
//! paging, interrupts by kind, context switches, processes started and running, memory. All are cumulative since boot
//! and have the time of their reading, so any two readings give rates.

use super::system_text::{parse_counts_by_kind, parse_disks};
use crate::group::clock_ticks_per_sec;
use crate::kept_file::{KeptFile, read};
use crate::proc_text::{CpuTimes, parse_machine_stat, parse_named_numbers};
use record::time::monotonic_ns;
use record::watch::system::{CpuModes, Memory, Paging, SystemKind, SystemTotals};

/// The rest is summed as `other`.
const MOST_KINDS: usize = 24;

/// Keeps the files open, because reading an open file costs half as much as opening it each time.
#[derive(Debug)]
pub struct SystemReader {
    stat: Option<KeptFile>,
    vmstat: Option<KeptFile>,
    disks: Option<KeptFile>,
    interrupts: Option<KeptFile>,
    softirqs: Option<KeptFile>,
    memory: Option<KeptFile>,
    buffer: Vec<u8>,
    tick_ms: u64,
}

impl SystemReader {
    /// Opens the files that exist.
    pub fn open() -> Self {
        let file = |name: &str| KeptFile::open(format!("/proc/{name}")).ok();
        SystemReader {
            stat: file("stat"),
            vmstat: file("vmstat"),
            disks: file("diskstats"),
            interrupts: file("interrupts"),
            softirqs: file("softirqs"),
            memory: file("meminfo"),
            buffer: Vec::new(),
            tick_ms: 1000 / clock_ticks_per_sec().max(1),
        }
    }

    /// Reads all kinds.
    pub fn read(&mut self) -> SystemTotals {
        let mut totals = SystemTotals::default();
        self.read_into(&mut totals, &SystemKind::ALL);
        totals
    }

    /// Reads these kinds; the others in `totals` stay unchanged.
    pub fn read_into(&mut self, totals: &mut SystemTotals, kinds: &[SystemKind]) {
        for kind in kinds {
            totals.at_ns = monotonic_ns();
            totals.read_at_ns.insert(kind.word().into(), totals.at_ns);
            match kind {
                SystemKind::Cpu => self.read_cpu(totals),
                SystemKind::Interrupts => {
                    let buffer = &mut self.buffer;
                    if let Some(text) = read(&self.interrupts, buffer) {
                        totals.interrupts_by_kind = parse_counts_by_kind(text, MOST_KINDS);
                    }
                    if let Some(text) = read(&self.softirqs, buffer) {
                        totals.softirqs_by_kind = parse_counts_by_kind(text, MOST_KINDS);
                    }
                }
                SystemKind::Disk => totals.disk = read(&self.disks, &mut self.buffer).and_then(parse_disks),
                SystemKind::Paging => totals.paging = read(&self.vmstat, &mut self.buffer).and_then(paging),
                SystemKind::Memory => totals.memory = read(&self.memory, &mut self.buffer).and_then(memory),
                // These counts belong to processes and are read elsewhere.
                SystemKind::Server => {}
            }
        }
    }

    fn read_cpu(&mut self, totals: &mut SystemTotals) {
        let Some(text) = read(&self.stat, &mut self.buffer) else { return };
        if let Some(stat) = parse_machine_stat(text) {
            let mut times = CpuTimes::default();
            stat.cpus.iter().for_each(|(_, cpu)| times.add(cpu));
            totals.cpus = stat.cpus.len() as u64;
            totals.cpu = Some(modes(&times, self.tick_ms));
            totals.interrupts = Some(stat.interrupts);
            totals.context_switches = Some(stat.context_switches);
        }
        [totals.started, totals.running, totals.blocked] =
            parse_named_numbers(text, ["processes", "procs_running", "procs_blocked"]);
    }
}

fn modes(times: &CpuTimes, tick_ms: u64) -> CpuModes {
    let ms = |ticks: u64| ticks.saturating_mul(tick_ms);
    CpuModes {
        user_ms: ms(times.user),
        system_ms: ms(times.system),
        irq_ms: ms(times.irq),
        softirq_ms: ms(times.softirq),
        idle_ms: ms(times.idle),
        iowait_ms: ms(times.iowait),
        steal_ms: ms(times.steal),
    }
}

fn paging(text: &[u8]) -> Option<Paging> {
    let [kib_in, kib_out, swapped_in, swapped_out, major_faults, faults] =
        parse_named_numbers(text, ["pgpgin", "pgpgout", "pswpin", "pswpout", "pgmajfault", "pgfault"]);
    Some(Paging {
        in_bytes: kib_in?.saturating_mul(1024),
        out_bytes: kib_out?.saturating_mul(1024),
        swapped_in: swapped_in.unwrap_or(0),
        swapped_out: swapped_out.unwrap_or(0),
        major_faults: major_faults?,
        faults: faults?,
    })
}

fn memory(text: &[u8]) -> Option<Memory> {
    let kib = parse_named_numbers(text, ["MemTotal:", "MemAvailable:", "MemFree:", "Cached:", "Dirty:"]);
    let [total, available, free, cached, dirty] = kib.map(|kib| kib.map(|kib| kib.saturating_mul(1024)));
    Some(Memory {
        total_bytes: total?,
        available_bytes: available?,
        free_bytes: free?,
        cached_bytes: cached?,
        dirty_bytes: dirty?,
    })
}
