//! The privileged half of a watch: the programs, and the windows in which phases are timed.

use super::calibration::{self, EventCosts};
use super::classes::SizeClasses;
use super::error::WatchError;
use super::kernel::{KernelHooks, ReceiveHook};
use super::layout::{PortCounts, Sweep};
use super::phases::PhaseSums;
use super::programs::{PortOptions, Programs};
use super::reading::{ClassTotals, CostTotals, PhaseTotals};
use super::schedule::{DRAIN, Mode, Schedule, WINDOW};
use super::totals;
use super::watcher::WatchOptions;
use record::time::monotonic_ns;

/// Attaching and detaching the hooks of one window costs each CPU this much (text is patched under its feet).
const WINDOW_COST_PER_CPU_NS: f64 = 150_000.0;
/// Events on the state hook of one connection's life.
const TRANSITIONS_PER_CONNECTION: f64 = 6.0;
/// One window in this many also ends the parse phase at system calls.
const SPLIT_EVERY: u32 = 12;
const FEWEST_SLOTS: u32 = 16 << 10;
const MOST_SLOTS: u32 = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Open { opened_ns: u64 },
    Draining { until_ns: u64 },
}

/// Counts requests and holds windows.
#[derive(Debug)]
pub struct Tracer {
    programs: Programs,
    sizes: SizeClasses,
    mode: Mode,
    costs: EventCosts,
    schedule: Schedule,
    stage: Stage,
    window: u32,
    phases: PhaseSums,
    windows: u64,
    window_ns: u64,
    window_receives: u64,
    started_ns: u64,
    splits: bool,
    /// Why no windows are held, if something failed in one.
    trouble: Option<String>,
}

impl Tracer {
    /// Calibrates, loads and attaches. `connections`: how many there are now, for the size of the table.
    pub fn start(options: &WatchOptions, netns_inum: u32, connections: u64) -> Result<Self, WatchError> {
        let mut hooks = KernelHooks::detect()?;
        if options.reads_by_position {
            hooks.receive = ReceiveHook::Position;
        }
        let costs = calibration::measure(hooks)?;
        let slots = (connections.saturating_mul(4)).clamp(u64::from(FEWEST_SLOTS), u64::from(MOST_SLOTS)) as u32;
        let mut programs = Programs::load(
            hooks,
            &PortOptions { port: options.port, netns_inum, class_below_bytes: options.classes.upper_ends(), slots },
        )?;
        programs.attach_states()?;
        if options.mode.counts_requests() {
            programs.attach_receive()?;
        }
        let now_ns = monotonic_ns();
        let mut tracer = Tracer {
            programs,
            sizes: options.classes.clone(),
            mode: options.mode,
            costs,
            schedule: Schedule::new(now_ns, now_ns ^ u64::from(std::process::id())),
            stage: Stage::Idle,
            window: 0,
            phases: PhaseSums::new(options.classes.count()),
            windows: 0,
            window_ns: 0,
            window_receives: 0,
            started_ns: now_ns,
            splits: options.splits,
            trouble: None,
        };
        if tracer.mode == Mode::Exact {
            tracer.window = 1;
            tracer.programs.open_window(1, tracer.splits)?;
            tracer.stage = Stage::Open { opened_ns: now_ns };
        }
        Ok(tracer)
    }

    /// Changes how closely is watched; what was counted stays.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), WatchError> {
        if self.stage != Stage::Idle {
            self.programs.shut_gate(self.window);
            self.end_window();
        }
        match (self.mode.counts_requests(), mode.counts_requests()) {
            (false, true) => self.programs.attach_receive()?,
            (true, false) => self.programs.detach_receive(),
            _ => {}
        }
        self.mode = mode;
        if mode == Mode::Exact {
            self.window = self.window.wrapping_add(1).max(1);
            self.programs.open_window(self.window, self.splits)?;
            self.stage = Stage::Open { opened_ns: monotonic_ns() };
        }
        Ok(())
    }

    /// Opens or closes a window if it is time; says when to come again.
    pub fn step(&mut self, now_ns: u64) -> Option<u64> {
        if self.mode != Mode::Default {
            return None;
        }
        match self.stage {
            Stage::Idle => {
                let opens_ns = self.schedule.next_ns()?;
                if now_ns < opens_ns {
                    return Some(opens_ns);
                }
                self.window = self.window.wrapping_add(1).max(1);
                let with_syscalls = self.splits && self.window % SPLIT_EVERY == 1;
                if let Err(error) = self.programs.open_window(self.window, with_syscalls) {
                    self.trouble = Some(error.to_string());
                    self.mode = Mode::Counts;
                    return None;
                }
                let opened_ns = monotonic_ns();
                self.stage = Stage::Open { opened_ns };
                Some(opened_ns + WINDOW.as_nanos() as u64)
            }
            Stage::Open { opened_ns } => {
                let ends_ns = opened_ns + WINDOW.as_nanos() as u64;
                if now_ns < ends_ns {
                    return Some(ends_ns);
                }
                self.programs.shut_gate(self.window);
                self.window_ns += now_ns - opened_ns;
                let until_ns = now_ns + DRAIN.as_nanos() as u64;
                self.stage = Stage::Draining { until_ns };
                Some(until_ns)
            }
            Stage::Draining { until_ns } => {
                if now_ns < until_ns {
                    return Some(until_ns);
                }
                self.end_window();
                self.schedule.held(now_ns);
                self.schedule.next_ns()
            }
        }
    }

    fn end_window(&mut self) {
        self.programs.close_window();
        self.stage = Stage::Idle;
        self.windows += 1;
        let before = self.phases_requests();
        self.phases.add_window(self.programs.phases.iter(), self.programs.requests.iter(), self.window, &self.sizes);
        self.window_receives += self.phases_requests() - before;
    }

    fn phases_requests(&self) -> u64 {
        self.phases
            .totals(0.0, &vec![ClassTotals::default(); self.sizes.count()])
            .iter()
            .map(|class| class.requests)
            .sum()
    }

    fn sends_in_windows(&self) -> u64 {
        self.programs.threads.iter().map(|thread| u64::from(thread.sends_in_windows)).sum()
    }

    /// Adapts the windows to the budget: they become rare, then stop. Counting goes on.
    pub fn keep_budget(&mut self, server_cpu_ns: u64, receives: u64, budget: f64) {
        // A server that did next to nothing says nothing about shares.
        if server_cpu_ns < 100_000_000 || self.mode != Mode::Default || receives == 0 {
            return;
        }
        let per_receive_cpu_ns = server_cpu_ns as f64 / receives as f64;
        let always = self.costs.receive_ns / per_receive_cpu_ns;
        let sends_per_receive = match self.window_receives {
            0 => 2.0,
            seen => self.sends_in_windows() as f64 / seen as f64,
        };
        let window = (self.costs.window_receive_ns + sends_per_receive * self.costs.send_ns) / per_receive_cpu_ns;
        self.schedule.adapt(always, window, budget);
    }

    /// Connections and losses: reads memory, nothing else.
    pub fn counts(&self) -> PortCounts {
        self.programs.counts.get(0)
    }

    /// The requests that no event has ended yet.
    pub fn sweep(&mut self) -> Result<Sweep, WatchError> {
        self.programs.sweep()
    }

    /// Requests by class.
    pub fn classes(&self, swept: &Sweep) -> Vec<ClassTotals> {
        totals::classes(self.programs.classes.iter(), swept, self.sizes.count())
    }

    /// Phases by class.
    pub fn phases(&mut self, now_ns: u64, exact: &[ClassTotals]) -> Vec<PhaseTotals> {
        if self.mode == Mode::Exact {
            self.phases.add_window(self.programs.phases.iter(), std::iter::empty(), self.window, &self.sizes);
            return self.phases.totals(1.0, exact);
        }
        if self.windows == 0 {
            return Vec::new();
        }
        let share = self.window_ns as f64 / now_ns.saturating_sub(self.started_ns).max(1) as f64;
        self.phases.totals(share, exact)
    }

    /// Threads that read from the port.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// What the programs added to the server's work, by count and calibration.
    pub fn cost(&self, receives: u64, counts: &PortCounts, server_cpu_ns: Option<u64>) -> CostTotals {
        let cpus = record::machine::online_cpus() as f64;
        let counted = if self.mode.counts_requests() { receives as f64 * self.costs.receive_ns } else { 0.0 };
        let window_receives = if self.mode == Mode::Exact { receives } else { self.window_receives };
        let added_ns = counted
            + counts.accepted as f64 * TRANSITIONS_PER_CONNECTION * self.costs.receive_ns
            + self.sends_in_windows() as f64 * self.costs.send_ns
            + window_receives as f64 * self.costs.window_receive_ns
            + self.windows as f64 * WINDOW_COST_PER_CPU_NS * cpus;
        CostTotals {
            own_cpu_ns: 0,
            added_ns,
            receive_event_ns: self.costs.receive_ns,
            send_event_ns: self.costs.send_ns,
            added_ratio: server_cpu_ns.filter(|cpu| *cpu > 0).map(|cpu| added_ns / cpu as f64),
            windows: self.windows,
            window_ns: self.window_ns,
        }
    }

    /// How often windows are held now, and why there are none.
    pub fn windows_note(&self) -> Option<String> {
        match (&self.trouble, self.mode) {
            (Some(why), _) => Some(format!("phases are not timed: {why}")),
            (None, Mode::Default) if self.schedule.period().is_none() => Some(
                "phases are not timed: windows would exceed the overhead budget (raise it with --overhead, or use --mode exact)".into(),
            ),
            _ => None,
        }
    }

    /// Slots of the table of connections.
    pub fn slots(&self) -> usize {
        self.programs.requests.len()
    }
}
