//! The machine's CPUs: time by mode from `/proc/stat`, read together with a clock.
//!
//! Busy modes are sampled by the timer tick on most kernels (an interrupt, a few hundred times a second, reads which
//! mode the CPU is in). Tickless kernels (CONFIG_NO_HZ_COMMON, the usual ones) time idle and iowait, so *elapsed time
//! - idle - iowait* is the better measure of a CPU's use. Both are in ticks of 10 ms.

use crate::error::ObserveError;
use crate::group::clock_ticks_per_sec;
use crate::kept_file::KeptFile;
use crate::proc_text::{CpuTimes, MachineStat, parse_machine_stat};
use record::time::monotonic_ns;

const PATH: &str = "/proc/stat";

#[derive(Debug)]
pub struct MachineReader {
    file: KeptFile,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineReading {
    /// Monotonic clock.
    pub at_ns: u64,
    pub stat: MachineStat,
}

impl MachineReader {
    pub fn open() -> Result<Self, ObserveError> {
        let file = KeptFile::open(PATH).map_err(|source| ObserveError::Unreadable { path: PATH.into(), source })?;
        Ok(MachineReader { file, buffer: Vec::new() })
    }

    pub fn read(&mut self) -> Result<MachineReading, ObserveError> {
        let unreadable = |source| ObserveError::Unreadable { path: PATH.into(), source };
        let before = monotonic_ns();
        let text = self.file.read(&mut self.buffer).map_err(unreadable)?;
        let after = monotonic_ns();
        let stat = parse_machine_stat(text)
            .ok_or_else(|| unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, "it names no CPU")))?;
        Ok(MachineReading { at_ns: before + (after - before) / 2, stat })
    }
}

/// The use of a set of CPUs between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuUse {
    /// CPUs that are in both readings.
    pub cpus: usize,
    /// Time by mode in ticks, summed over these CPUs.
    pub times: CpuTimes,
    /// Length of the interval in ticks.
    pub elapsed_ticks: f64,
}

impl CpuUse {
    /// Change between two readings for the CPUs that `is_wanted` selects.
    pub fn between(begin: &MachineReading, end: &MachineReading, is_wanted: impl Fn(usize) -> bool) -> Self {
        let elapsed_ns = end.at_ns.saturating_sub(begin.at_ns) as f64;
        let mut cpu_use =
            CpuUse { elapsed_ticks: elapsed_ns * clock_ticks_per_sec() as f64 / 1e9, ..CpuUse::default() };
        for (cpu, now) in end.stat.cpus.iter().filter(|(cpu, _)| is_wanted(*cpu)) {
            if let Some((_, earlier)) = begin.stat.cpus.iter().find(|(known, _)| known == cpu) {
                cpu_use.times.add(&now.since(earlier));
                cpu_use.cpus += 1;
            }
        }
        cpu_use
    }

    /// Share of a mode in the time that the kernel accounted; `None` if it accounted nothing.
    pub fn share(&self, ticks: u64) -> Option<f64> {
        let total = self.times.total();
        (total > 0).then(|| ticks as f64 / total as f64)
    }

    /// CPU time that was neither idle nor waiting for disks, in CPUs, by the clock. Never negative.
    pub fn busy_cpus(&self) -> Option<f64> {
        if self.elapsed_ticks <= 0.0 || self.cpus == 0 {
            return None;
        }
        let idle = (self.times.idle + self.times.iowait) as f64;
        Some((self.cpus as f64 - idle / self.elapsed_ticks).clamp(0.0, self.cpus as f64))
    }

    /// The rounding error of [`busy_cpus`](Self::busy_cpus), in CPUs: a tick at each end of each CPU.
    pub fn busy_error_cpus(&self) -> f64 {
        if self.elapsed_ticks > 0.0 { 2.0 * (self.cpus as f64).sqrt() / self.elapsed_ticks } else { f64::INFINITY }
    }
}
