//! Other work on the machine: CPU time of neither the server, its backends, the client nor the watcher.

use super::ObservedWindow;
use record::PlainText;

/// Other work in a window: a lower bound, and its largest process.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbours {
    /// CPU time divided by the window's length, in CPUs.
    pub cpus: f64,
    /// Number of other processes that used CPU time.
    pub processes: usize,
    /// The largest process: pid, program, CPUs.
    pub largest: Option<(u32, PlainText, f64)>,
}

impl Neighbours {
    /// The larger of two lower bounds:
    ///
    /// - the exact CPU clocks of all other living processes, without short-lived ones;
    /// - the busy time of the CPUs minus that of server, backends, client and watcher, minus interrupts (part of
    ///   which is subtracted twice, because their time includes it), minus the error of the ticks.
    ///
    /// The kernel's ksoftirqd threads are left out, because they work for the load.
    pub fn measure(window: &ObservedWindow) -> Option<Self> {
        let elapsed_ns = window.elapsed_ns() as f64;
        if elapsed_ns <= 0.0 {
            return None;
        }
        let own = std::process::id();
        let mut neighbours = Neighbours { cpus: 0.0, processes: 0, largest: None };
        for (process, now_ns) in &window.end.clocks {
            let (used, pid) = (window.cpus_of(process, *now_ns), &process.pid);
            let (parent, command) = window.commands.get(pid).cloned().unwrap_or_default();
            let is_beside = window.beside.as_ref().is_some_and(|beside| beside.pids.binary_search(pid).is_ok());
            let is_watched = is_beside || window.backends.contains(pid) || window.members.binary_search(pid).is_ok();
            let is_ours = *pid == own || *pid == window.client_pid || is_watched;
            let is_softirq_thread = parent == 2 && command.starts_with("ksoftirqd/");
            if used <= 0.0 || is_ours || is_softirq_thread {
                continue;
            }
            neighbours.cpus += used;
            neighbours.processes += 1;
            if neighbours.largest.as_ref().is_none_or(|(_, _, most)| used > *most) {
                neighbours.largest = Some((*pid, command, used));
            }
        }
        neighbours.cpus = neighbours.cpus.max(remainder(window)?.max(0.0));
        Some(neighbours)
    }
}

/// Busy time outside of the run's processes, in CPUs; may be negative.
fn remainder(window: &ObservedWindow) -> Option<f64> {
    let machine = window.machine_use();
    let elapsed_ns = window.elapsed_ns() as f64;
    let client_ns = match (window.begin.client_cpu_ns, window.end.client_cpu_ns) {
        (Some(begin), Some(end)) => end.saturating_sub(begin),
        _ => 0,
    };
    // Within straingauge, the watcher's time is part of the client's.
    let observer_ns = if window.client_pid == std::process::id() { 0 } else { window.observer_cpu_ns() };
    let ours = (window.server_cpu_ns() + client_ns + observer_ns) as f64 / elapsed_ns
        + window.beside_cpus()
        + window.backend_cpus();
    let interrupts = (machine.times.irq + machine.times.softirq) as f64 / machine.elapsed_ticks;
    let stolen = machine.times.steal as f64 / machine.elapsed_ticks;
    Some(machine.busy_cpus()? - ours - interrupts - stolen - machine.busy_error_cpus())
}
