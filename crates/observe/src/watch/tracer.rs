//! The privileged half of a watch: the programs, and the windows in which phases are timed.

use super::active_pack::{ActivePack, PACK_SHARE, PACK_WINDOW};
use super::calibration::{self, EventCosts};
use super::classes::SizeClasses;
use super::error::WatchError;
use super::kernel::{KernelHooks, ReceiveHook};
use super::layout::{PortCounts, Sweep};
use super::pack_places;
use super::phases::PhaseSums;
use super::probe_cost;
use super::programs::{PortOptions, Programs};
use super::schedule::{DRAIN, Schedule, WINDOW};
use super::shares::WINDOW_COST_PER_CPU_NS;
use super::timer_wheel::TimerWheel;
use super::totals;
use super::watcher::WatchOptions;
use record::time::monotonic_ns;
use record::watch::{AddedCost, ClassTotals, Mode, PackTotals, PhaseTotals, Traffic};
use std::time::Duration;

/// Events on the state hook of one connection's life.
const TRANSITIONS_PER_CONNECTION: f64 = 6.0;
/// One window in this many also ends the parse phase at system calls.
const SPLIT_EVERY: u32 = 12;
const FEWEST_SLOTS: u32 = 16 << 10;
const MOST_SLOTS: u32 = 128 << 10;
/// Readings of the kernel's tick at the start, and the time between them.
const WHEEL_READINGS: usize = 40;
const WHEEL_REST: Duration = Duration::from_micros(100);
/// A client has some 28,000 ports to come from; clients beyond this number are counted in TIME_WAIT, but not seen to come back.
const MOST_WAITING_CLIENTS: u32 = 64 << 10;

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
    /// What was seen of it; `None` when nothing is looked into.
    traffic: Option<Traffic>,
    pack: Option<ActivePack>,
    /// The window that is open is the pack's.
    is_pack_window: bool,
    /// When it was opened by who holds it; 0 = by the schedule.
    pack_opened_ns: u64,
    /// Why no functions are probed although a pack was given.
    pack_trouble: Option<String>,
    /// Why no windows are held, if something failed in one.
    trouble: Option<String>,
}

/// Slots of the table: four for each connection that is to be expected, so that few sets of [`super::layout::WAYS`] are full.
fn slots(room: Option<u32>, connections: u64) -> u32 {
    let (expected, fewest) = match room {
        Some(room) => (u64::from(room), super::layout::WAYS),
        None => (connections, FEWEST_SLOTS),
    };
    expected.saturating_mul(4).clamp(u64::from(fewest), u64::from(MOST_SLOTS)) as u32
}

impl Tracer {
    /// Calibrates, loads and attaches. `connections`: how many there are now, for the size of the table.
    pub fn start(options: &WatchOptions, netns_inum: u32, connections: u64) -> Result<Self, WatchError> {
        let mut hooks = KernelHooks::detect()?;
        if options.reads_by_position {
            hooks.receive = ReceiveHook::Position;
        }
        let costs = calibration::measure(hooks)?;
        let slots = slots(options.room, connections);
        let mut programs = Programs::load(
            hooks,
            &PortOptions {
                port: options.port,
                netns_inum,
                class_below_bytes: options.classes.upper_ends(),
                slots,
                has_boundaries: options.pack.is_some(),
                waiting_clients: MOST_WAITING_CLIENTS,
            },
        )?;
        programs.attach_states()?;
        // Some moments within the length of a tick show where one begins.
        for _ in 0..WHEEL_READINGS {
            programs.wheel()?;
            std::thread::sleep(WHEEL_REST);
        }
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
            traffic: options.looks.then(Traffic::default),
            pack: None,
            is_pack_window: false,
            pack_opened_ns: 0,
            pack_trouble: None,
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
            if self.is_pack_window {
                self.end_pack_window(monotonic_ns());
            } else {
                self.end_window();
            }
        }
        match (self.mode.counts_requests(), mode.counts_requests()) {
            (false, true) => {
                // What threads did while nobody counted is no request's.
                self.programs.forget_threads();
                self.programs.attach_receive()?;
            }
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

    /// Takes up a pack for these processes. Where its functions are not there, that is said in the doubts.
    pub fn use_pack(&mut self, pack: &super::pack::Pack, pids: &[u32]) {
        let found = pack_places::find(pack, pids).and_then(|places| {
            let costs = probe_cost::measure(&self.programs, &places).map_err(|error| error.to_string())?;
            Ok((places, costs))
        });
        match found {
            Ok((places, costs)) => {
                self.pack = Some(ActivePack::new(pack, places, costs, self.sizes.count()));
                self.pack_trouble = None;
            }
            Err(why) => self.pack_trouble = Some(why),
        }
    }

    /// What a pack showed.
    pub fn pack(&self) -> Option<PackTotals> {
        let hits = self.programs.counts.get(0).boundaries_seen;
        self.pack.as_ref().map(|pack| pack.totals(self.sizes.count(), hits))
    }

    /// Why functions are not probed.
    pub fn pack_note(&self) -> Option<&str> {
        self.pack_trouble.as_deref()
    }

    fn open_pack_window(&mut self) -> Result<(), WatchError> {
        self.window = self.window.wrapping_add(1).max(1);
        self.programs.sum_by_thread(false);
        let opened = self.programs.open_window(self.window, false);
        if opened.is_err() {
            self.programs.sum_by_thread(true);
        }
        opened?;
        if let Some(pack) = &self.pack {
            // Requests that began before the probes were there have no mark of their first boundary, and are left out.
            let attached = self.programs.attach_boundaries(&pack.places);
            if attached.is_err() {
                self.programs.sum_by_thread(true);
            }
            attached?;
        }
        self.is_pack_window = true;
        Ok(())
    }

    /// Opens or closes a window if it is time; says when to come again.
    pub fn step(&mut self, now_ns: u64) -> Option<u64> {
        let pack_ns = self.pack.as_ref().and_then(ActivePack::next_ns);
        let holds = self.mode == Mode::Default || (self.mode == Mode::Counts && self.pack.is_some());
        if !holds {
            return None;
        }
        let length_ns = if self.is_pack_window { PACK_WINDOW } else { WINDOW }.as_nanos() as u64;
        match self.stage {
            Stage::Idle => {
                let scheduled_ns = (self.mode == Mode::Default).then(|| self.schedule.next_ns()).flatten();
                let opens_ns = [scheduled_ns, pack_ns].into_iter().flatten().min()?;
                if now_ns < opens_ns {
                    return Some(opens_ns);
                }
                if pack_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                    if let Err(error) = self.open_pack_window() {
                        self.pack_trouble = Some(error.to_string());
                        self.pack.iter_mut().for_each(ActivePack::suspend);
                        return scheduled_ns;
                    }
                    let opened_ns = monotonic_ns();
                    self.stage = Stage::Open { opened_ns };
                    return Some(opened_ns + PACK_WINDOW.as_nanos() as u64);
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
                let ends_ns = opened_ns + length_ns;
                if now_ns < ends_ns {
                    return Some(ends_ns);
                }
                self.programs.shut_gate(self.window);
                if !self.is_pack_window {
                    self.window_ns += now_ns - opened_ns;
                }
                let until_ns = now_ns + DRAIN.as_nanos() as u64;
                self.stage = Stage::Draining { until_ns };
                Some(until_ns)
            }
            Stage::Draining { until_ns } => {
                if now_ns < until_ns {
                    return Some(until_ns);
                }
                if self.is_pack_window {
                    self.end_pack_window(now_ns);
                    return Some(now_ns);
                }
                self.end_window();
                self.schedule.held(now_ns);
                self.schedule.next_ns()
            }
        }
    }

    /// Opens a window now, beside the schedule's. In mode counts only; an open one stays.
    pub fn open_held(&mut self) -> Result<(), WatchError> {
        if self.mode == Mode::Counts && self.stage == Stage::Idle {
            self.window = self.window.wrapping_add(1).max(1);
            self.programs.open_window(self.window, false)?;
            self.stage = Stage::Open { opened_ns: monotonic_ns() };
        }
        Ok(())
    }

    /// Opens a window of the pack now, in mode counts, where no window is open.
    pub fn open_held_pack(&mut self) -> Result<(), WatchError> {
        if self.mode == Mode::Counts && self.stage == Stage::Idle && self.pack.is_some() && self.pack_trouble.is_none()
        {
            if let Err(error) = self.open_pack_window() {
                self.pack_trouble = Some(error.to_string());
                return Err(error);
            }
            self.pack_opened_ns = monotonic_ns();
            self.stage = Stage::Open { opened_ns: self.pack_opened_ns };
        }
        Ok(())
    }

    /// No further request begins in it.
    pub fn shut_held(&mut self) {
        if let (Mode::Counts, Stage::Open { opened_ns }) = (self.mode, self.stage) {
            self.programs.shut_gate(self.window);
            if !self.is_pack_window {
                self.window_ns += monotonic_ns().saturating_sub(opened_ns);
            }
            self.stage = Stage::Draining { until_ns: 0 };
        }
    }

    /// Ends it and takes in what it showed.
    pub fn close_held(&mut self) {
        if self.mode == Mode::Counts && self.stage != Stage::Idle {
            if self.is_pack_window {
                self.end_pack_window(monotonic_ns());
            } else {
                self.end_window();
            }
        }
    }

    /// Phases are summed anew from now on.
    pub fn restart_phases(&mut self) {
        self.phases.restart(self.programs.phases.iter());
        if let Some(pack) = &mut self.pack {
            pack.restart(self.programs.boundary_phases.iter(), self.sizes.count());
        }
    }

    /// Phases since the restart, given what was counted exactly meanwhile; and the requests that were not answered in their
    /// window.
    pub fn phases_of(&mut self, share: f64, exact: &[ClassTotals]) -> (Vec<PhaseTotals>, u64) {
        if self.mode == Mode::Exact {
            self.phases.add_window(self.programs.phases.iter(), std::iter::empty(), self.window, &self.sizes);
        }
        (self.phases.totals(share, exact), self.phases.late())
    }

    /// What the probes of a pack add to a request; `None` where none are set.
    pub fn pack_request_ns(&self) -> Option<f64> {
        self.pack.as_ref().filter(|_| self.pack_trouble.is_none()).map(ActivePack::request_ns)
    }

    /// What one event costs.
    pub fn costs(&self) -> EventCosts {
        self.costs
    }

    /// Sends for each read, as far as windows have shown.
    pub fn sends_per_receive(&self) -> Option<f64> {
        (self.window_receives > 0).then(|| self.sends_in_windows() as f64 / self.window_receives as f64)
    }

    fn end_window(&mut self) {
        self.programs.close_window();
        self.stage = Stage::Idle;
        self.windows += 1;
        let before = self.phases_requests();
        self.phases.add_window(self.programs.phases.iter(), self.programs.requests.iter(), self.window, &self.sizes);
        self.window_receives += self.phases_requests() - before;
    }

    fn end_pack_window(&mut self, now_ns: u64) {
        self.programs.close_window();
        self.programs.sum_by_thread(true);
        self.stage = Stage::Idle;
        self.is_pack_window = false;
        let unfinished = self.programs.requests.iter();
        let grown = self.phases.take_window(self.programs.phases.iter(), unfinished, self.window, &self.sizes);
        self.window_receives += grown.iter().map(|row| row.requests).sum::<u64>();
        self.windows += 1;
        if let Some(pack) = &mut self.pack {
            let opened_ns = match std::mem::take(&mut self.pack_opened_ns) {
                0 => now_ns.saturating_sub((PACK_WINDOW + DRAIN).as_nanos() as u64),
                opened_ns => opened_ns,
            };
            pack.held(now_ns, opened_ns, self.programs.boundary_phases.iter(), &grown, &self.sizes);
        }
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
        if server_cpu_ns < 100_000_000 || receives == 0 {
            return;
        }
        let per_receive_cpu_ns = server_cpu_ns as f64 / receives as f64;
        let mut budget = budget;
        if let Some(pack) = self.pack.as_mut().filter(|_| self.pack_trouble.is_none()) {
            pack.adapt(monotonic_ns(), per_receive_cpu_ns, budget);
            budget *= 1.0 - PACK_SHARE;
        }
        if self.mode != Mode::Default {
            return;
        }
        let away_ns = self.away(receives) as f64 * self.costs.away_ns;
        let always = self.costs.receive_ns / per_receive_cpu_ns + away_ns / server_cpu_ns as f64;
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

    /// Whether the kernel has hooks on retransmissions, and on resets.
    pub fn hooks_on_segments(&self) -> (bool, bool) {
        let hooks = self.programs.hooks();
        (hooks.has_retransmits, hooks.has_resets)
    }

    /// See [`Programs::wheel`].
    pub fn wheel(&mut self) -> Result<TimerWheel, WatchError> {
        self.programs.wheel()
    }

    /// See [`Programs::update_waiting_clients`].
    pub fn update_waiting_clients(&mut self, clients: &[(u64, u64)]) -> Result<(), WatchError> {
        self.programs.update_waiting_clients(clients)
    }

    /// The requests that no event has ended yet.
    pub fn sweep(&mut self) -> Result<Sweep, WatchError> {
        self.programs.sweep()
    }

    /// Requests that an event has ended, of all classes.
    pub fn finished(&self) -> u64 {
        self.programs.classes.iter().map(|row| row.requests).sum()
    }

    /// Requests by class.
    pub fn classes(&self, swept: &Sweep) -> Vec<ClassTotals> {
        totals::classes(self.programs.classes.iter(), swept, self.sizes.count())
    }

    /// What is spoken, by the reads looked into so far; grants a few more.
    pub fn traffic(&mut self) -> Option<Traffic> {
        let traffic = self.traffic.as_mut()?;
        for look in self.programs.looks() {
            let kept = look.head.get(..look.kept as usize).filter(|head| !head.is_empty());
            super::traffic::add(traffic, kept);
        }
        self.traffic
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

    /// Runs of programs on events that are not the server's: of other ports, other threads, or reads that found nothing.
    fn away(&self, receives: u64) -> u64 {
        let runs = self.programs.runs();
        runs.receives.saturating_sub(receives)
            + runs.sends.saturating_sub(self.sends_in_windows())
            + runs.switches
            + runs.syscalls
            + runs.disk_reads
            + runs.others
    }

    /// What the programs added, by count and calibration, on whatever event they ran.
    pub fn cost(&self, receives: u64, counts: &PortCounts, server_cpu_ns: Option<u64>) -> AddedCost {
        let cpus = record::machine::online_cpus() as f64;
        let counted = if self.mode.counts_requests() { receives as f64 * self.costs.receive_ns } else { 0.0 };
        let window_receives = if self.mode == Mode::Exact { receives } else { self.window_receives };
        let away_events = self.away(receives);
        let away_ns = away_events as f64 * self.costs.away_ns;
        let added_ns = counted
            + away_ns
            + counts.accepted as f64 * TRANSITIONS_PER_CONNECTION * self.costs.receive_ns
            + self.sends_in_windows() as f64 * self.costs.send_ns
            + window_receives as f64 * self.costs.window_receive_ns
            + self.windows as f64 * WINDOW_COST_PER_CPU_NS * cpus
            + self.pack.as_ref().map_or(0.0, |pack| pack.cost_ns(counts.boundaries_seen));
        AddedCost {
            added_ns,
            receive_event_ns: self.costs.receive_ns,
            send_event_ns: self.costs.send_ns,
            away_event_ns: self.costs.away_ns,
            away_events,
            away_ns,
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
                "phases are not timed: windows would exceed the overhead budget (raise it with --overhead, or use --detail exact)".into(),
            ),
            _ => None,
        }
    }

    /// Slots of the table of connections.
    pub fn slots(&self) -> usize {
        self.programs.requests.len()
    }
}
