//! The engine's own cost: the CPU time of its threads, their waiting for a CPU, and their memory.

use crate::socket::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadReading {
    pub(crate) at_ns: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    /// Time ready to run but without a CPU; `None` if the kernel does not account it.
    pub(crate) run_queue_wait_ns: Option<u64>,
    pub(crate) polling_ns: u64,
    pub(crate) system_calls: u64,
}

impl ThreadReading {
    pub(crate) fn now(at_ns: u64, polling_ns: u64, system_calls: u64) -> Self {
        // SAFETY: all-zero bytes are a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a live, writable rusage.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        let nanos = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        ThreadReading {
            at_ns,
            user_ns: nanos(usage.ru_utime),
            system_ns: nanos(usage.ru_stime),
            run_queue_wait_ns: run_queue_wait_ns(),
            polling_ns,
            system_calls,
        }
    }
}

/// Reads the wait from the second number of schedstat.
fn run_queue_wait_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Resources used by the engine in the measured window; all threads together unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineCost {
    /// User CPU time in the window. The kernel splits user and system by ticks: their sum is exact, the split is not.
    pub cpu_user_ns: u64,
    /// System CPU time in the window, the receive processing that the kernel charged to the engine included.
    pub cpu_system_ns: u64,
    /// The busiest thread's CPU time over the window's length, without deliberate polling; 1 = saturated.
    pub busiest_thread_ratio: f64,
    /// The largest share of the window in which a thread was ready to run but had no CPU; `None` if not accounted.
    pub run_queue_wait_ratio: Option<f64>,
    /// CPU time spent polling on purpose just before intended sends (`precise`), in the window.
    pub polling_ns: u64,
    /// System calls in the window, without clock readings and the one-time option of sampled sockets.
    pub system_calls: u64,
    /// Maximum memory for connections, divided by their number. `memory_bytes_fixed` has the histograms and buffers,
    /// which do not grow with the connections.
    pub memory_bytes_per_connection: f64,
    /// Memory of histograms, series and buffers.
    pub memory_bytes_fixed: u64,
    /// Engine threads.
    pub threads: usize,
    /// How the threads waited for events and intended sends.
    pub wait_method: String,
    /// `normal`, or `SCHED_FIFO` if `precise` asked for it and it was permitted.
    pub scheduling: String,
}

impl EngineCost {
    pub(crate) fn add(&mut self, begin: &ThreadReading, end: &ThreadReading) {
        let elapsed = end.at_ns.saturating_sub(begin.at_ns);
        let user = end.user_ns.saturating_sub(begin.user_ns);
        let system = end.system_ns.saturating_sub(begin.system_ns);
        let polling = end.polling_ns.saturating_sub(begin.polling_ns);
        self.cpu_user_ns += user;
        self.cpu_system_ns += system;
        self.polling_ns += polling;
        self.system_calls += end.system_calls.saturating_sub(begin.system_calls);
        if elapsed == 0 {
            return;
        }
        let busy = (user + system).saturating_sub(polling) as f64 / elapsed as f64;
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

pub(crate) fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Makes timers of the calling thread fire when due instead of up to 50 us later.
pub(crate) fn sharpen_timers() {
    // A failure leaves the default.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Gives the calling thread real-time priority, if permitted. The thread must sleep now and then: the kernel suspends
/// a real-time thread that never sleeps for tens of milliseconds.
pub(crate) fn try_real_time() -> bool {
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: the parameter is live; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameter) == 0 }
}
