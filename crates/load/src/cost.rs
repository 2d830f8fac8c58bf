use crate::socket::Errno;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadReading {
    pub(crate) at_ns: u64,
    pub(crate) cpu_ns: u64,
    /// Time ready to run but without a CPU; `None` if the kernel does not account it.
    pub(crate) run_queue_wait_ns: Option<u64>,
    pub(crate) polling_ns: u64,
}

impl ThreadReading {
    pub(crate) fn now(at_ns: u64, polling_ns: u64) -> Self {
        ThreadReading { at_ns, cpu_ns: thread_cpu_ns(), run_queue_wait_ns: run_queue_wait_ns(), polling_ns }
    }
}

pub(crate) fn thread_cpu_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

fn run_queue_wait_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Resources used by the engine in the measured window; all threads together unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineCost {
    /// CPU time in the window, the receive processing that the kernel charged to the engine included.
    pub cpu_ns: u64,
    /// The busiest thread's CPU time over the window's length, without deliberate polling; 1 = saturated.
    pub busiest_thread_ratio: f64,
    /// The largest share of the window in which a thread was ready to run but had no CPU; `None` if not accounted.
    pub run_queue_wait_ratio: Option<f64>,
    /// CPU time spent polling on purpose just before intended sends (`precise`), in the window.
    pub polling_ns: u64,
    /// Maximum memory for connections, divided by their number. The histograms and buffers do not grow with them.
    pub memory_bytes_per_connection: f64,
    /// Engine threads.
    pub threads: usize,
}

impl EngineCost {
    pub(crate) fn add(&mut self, begin: &ThreadReading, end: &ThreadReading) {
        let elapsed = end.at_ns.saturating_sub(begin.at_ns);
        let cpu = end.cpu_ns.saturating_sub(begin.cpu_ns);
        let polling = end.polling_ns.saturating_sub(begin.polling_ns);
        self.cpu_ns += cpu;
        self.polling_ns += polling;
        if elapsed == 0 {
            return;
        }
        let busy = cpu.saturating_sub(polling) as f64 / elapsed as f64;
        self.busiest_thread_ratio = self.busiest_thread_ratio.max(busy);
        if let (Some(before), Some(after)) = (begin.run_queue_wait_ns, end.run_queue_wait_ns) {
            let waited = after.saturating_sub(before) as f64 / elapsed as f64;
            self.run_queue_wait_ratio = Some(self.run_queue_wait_ratio.unwrap_or(0.0).max(waited));
        }
    }
}

pub(crate) fn pin_to(cpu: usize) -> Result<(), Errno> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// Timers of the calling thread fire when due instead of up to 50 us later.
pub(crate) fn sharpen_timers() {
    // A failure leaves the default.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Gives the calling thread real-time priority, if permitted. The thread must sleep now and then: the kernel suspends
/// a real-time thread that never sleeps for tens of milliseconds.
pub(crate) fn try_real_time() {
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: the parameter is live; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameter) };
}
