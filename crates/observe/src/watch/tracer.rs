//! The privileged part of a watch: the programs, and the windows in which phases are timed.

use super::active_pack::{ActivePack, PACK_SHARE, PACK_WINDOW};
use super::by_process;
use super::calibration::{self, EventCosts};
use super::classes::SizeClasses;
use super::duty::{CostAccount, Duty, DutyAction};
use super::edges::RequestProgress;
use super::error::WatchError;
use super::kernel::{KernelHooks, ReceiveHook};
use super::pack_places;
use super::phases::PhaseSums;
use super::probe_cost;
use super::programs::{PortOptions, WAYS, WatchPrograms};
use super::schedule::{DRAIN, WINDOW, WindowTimes};
use super::shares::{EventPrices, WINDOW_COST_PER_CPU_NS};
use super::totals;
use super::watcher::{ChargedTime, WatchOptions};
use crate::bpf::types::watch::PortCounts;
use record::time::monotonic_ns;
use record::watch::{AddedCost, ClassTotals, Counter, Mode, PackTotals, PhaseTotals, Reading, Traffic};
use std::time::Duration;

/// Where the budget permits no windows of phases, the status of answers is read for this long at each reading.
const GLANCE: Duration = Duration::from_millis(2);
/// Share of the budget up to which the costs so far permit that.
const GLANCE_SHARE: f64 = 0.8;
/// Events at the state hook during the life of a connection.
const TRANSITIONS_PER_CONNECTION: f64 = 6.0;
/// In one of this many windows, system calls also end the parse phase.
const SPLIT_EVERY: u32 = 12;
const FEWEST_SLOTS: u32 = 16 << 10;
const MOST_SLOTS: u32 = 128 << 10;
/// Number and interval of the initial readings of the kernel's tick.
const WHEEL_READINGS: usize = 40;
const WHEEL_REST: Duration = Duration::from_micros(100);
/// Maximum tracked clients. A client address has about 28,000 ports; further clients are counted in TIME_WAIT, but
/// their early return is not noticed.
const MOST_WAITING_CLIENTS: u32 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Open {
        opened_ns: u64,
        is_pack: bool,
    },
    /// No request begins in the window any more; those in progress are still timed.
    Draining {
        opened_ns: u64,
        until_ns: u64,
        is_pack: bool,
    },
}

#[derive(Debug)]
pub struct Tracer {
    pub(super) programs: WatchPrograms,
    sizes: SizeClasses,
    mode: Mode,
    costs: EventCosts,
    schedule: WindowTimes,
    stage: Stage,
    window: u32,
    phases: PhaseSums,
    windows: u64,
    window_ns: u64,
    window_receives: u64,
    glances: u64,
    may_glance: bool,
    started_ns: u64,
    splits: bool,
    /// The detected protocol; `None` if no reads are sampled.
    traffic: Option<Traffic>,
    pack: Option<ActivePack>,
    pack_failure: Option<String>,
    failure: Option<String>,
    /// Counted time up to the end of the last counting period, and since when requests are counted.
    counted_ns: u64,
    counting_since_ns: Option<u64>,
    has_gaps: bool,
    duty: Option<Duty>,
}

/// Slots of the table: four per expected connection, so that few sets of [`WAYS`] are full.
fn slots(room: Option<u32>, connections: u64) -> u32 {
    let (expected, fewest) = match room {
        Some(room) => (u64::from(room), WAYS),
        None => (connections, FEWEST_SLOTS),
    };
    expected.saturating_mul(4).clamp(u64::from(fewest), u64::from(MOST_SLOTS)) as u32
}

impl Tracer {
    /// Calibrates, loads and attaches. `connections`: their current number, for the size of the table.
    pub fn start(options: &WatchOptions, netns_inum: u32, connections: u64) -> Result<Self, WatchError> {
        let mut hooks = KernelHooks::detect()?;
        if options.reads_by_position {
            hooks.receive = ReceiveHook::Position;
        }
        let slots = slots(options.room, connections);
        let mut programs = WatchPrograms::load(
            hooks,
            &PortOptions {
                class_below_bytes: options.classes.upper_ends(),
                slots,
                has_boundaries: options.pack.is_some(),
                waiting_clients: MOST_WAITING_CLIENTS,
            },
        )?;
        let costs = calibration::measure(&mut programs)?;
        programs.watch(options.port, netns_inum);
        programs.attach_states()?;
        // Several readings within a tick show where it begins.
        for _ in 0..WHEEL_READINGS {
            programs.wheel()?;
            std::thread::sleep(WHEEL_REST);
        }
        let now_ns = monotonic_ns();
        let mut tracer = Tracer {
            programs,
            sizes: options.classes.clone(),
            mode: options.mode,
            costs,
            schedule: WindowTimes::new(now_ns, now_ns ^ u64::from(std::process::id())),
            stage: Stage::Idle,
            window: 0,
            phases: PhaseSums::new(options.classes.count()),
            windows: 0,
            window_ns: 0,
            window_receives: 0,
            glances: 0,
            may_glance: false,
            started_ns: now_ns,
            splits: options.splits,
            traffic: options.detects_protocol.then(Traffic::default),
            pack: None,
            pack_failure: None,
            failure: None,
            counted_ns: 0,
            counting_since_ns: None,
            has_gaps: !options.mode.counts_requests(),
            duty: None,
        };
        if tracer.mode.counts_requests() {
            tracer.begin_counting()?;
            tracer.has_gaps = false;
        }
        if tracer.mode == Mode::Exact {
            tracer.open(false, tracer.splits)?;
        }
        Ok(tracer)
    }

    pub fn set_mode(&mut self, mode: Mode) -> Result<(), WatchError> {
        self.end(monotonic_ns());
        match (self.mode.counts_requests(), mode.counts_requests()) {
            (false, true) => self.begin_counting()?,
            (true, false) => self.end_counting()?,
            // Counting may be between two windows.
            (true, true) if self.counting_since_ns.is_none() => self.begin_counting()?,
            _ => {}
        }
        self.mode = mode;
        self.duty = None;
        if mode == Mode::Exact {
            self.open(false, self.splits)?;
        }
        Ok(())
    }

    fn begin_counting(&mut self) -> Result<(), WatchError> {
        self.programs.attach_receive()?;
        self.counting_since_ns = Some(monotonic_ns());
        self.has_gaps = true;
        Ok(())
    }

    fn shut_counting(&mut self) {
        self.programs.set_counts(false);
        self.has_gaps = true;
        if let Some(since_ns) = self.counting_since_ns.take() {
            self.counted_ns += monotonic_ns().saturating_sub(since_ns);
        }
    }

    fn end_counting(&mut self) -> Result<(), WatchError> {
        self.shut_counting();
        self.programs.detach_receive()
    }

    fn counted_ns_at(&self, now_ns: u64) -> u64 {
        self.counted_ns + self.counting_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    fn run_action(&mut self, act: DutyAction) -> Result<(), WatchError> {
        match act {
            DutyAction::Begin => self.begin_counting(),
            DutyAction::Shut => {
                // Phases are not timed in windows of counting.
                self.end(monotonic_ns());
                self.shut_counting();
                Ok(())
            }
            DutyAction::End => self.end_counting(),
        }
    }

    /// Why some requests are not counted, if so.
    pub fn counting_note(&self) -> Option<String> {
        self.duty.as_ref().filter(|duty| duty.is_in_windows())?;
        let now_ns = monotonic_ns();
        let share = self.counted_ns_at(now_ns) as f64 / now_ns.saturating_sub(self.started_ns).max(1) as f64;
        Some(format!(
            "requests are counted {:.1} % of the time so far: counting all of them would exceed the limit of overhead",
            share * 100.0
        ))
    }

    pub fn use_pack(&mut self, pack: &super::pack::Pack, pids: &[u32]) {
        let found = pack_places::find(pack, pids).and_then(|places| {
            let costs = probe_cost::measure(&self.programs, &places).map_err(|error| error.to_string())?;
            Ok((places, costs))
        });
        match found {
            Ok((places, costs)) => {
                self.pack = Some(ActivePack::new(pack, places, costs, self.sizes.count()));
                self.pack_failure = None;
            }
            Err(why) => self.pack_failure = Some(why),
        }
    }

    fn pack(&self) -> Option<PackTotals> {
        let hits = self.programs.counts.get(0).boundaries_seen;
        self.pack.as_ref().map(|pack| pack.totals(self.sizes.count(), hits))
    }

    pub fn pack_note(&self) -> Option<&str> {
        self.pack_failure.as_deref()
    }

    fn open(&mut self, is_pack: bool, with_syscalls: bool) -> Result<u64, WatchError> {
        self.window = self.next_window();
        self.programs.sum_by_thread(!is_pack);
        let mut opened = self.programs.open_window(self.window, with_syscalls);
        if let (Ok(()), Some(pack)) = (&opened, self.pack.as_ref().filter(|_| is_pack)) {
            // Requests that began before the probes were attached lack the mark of their first boundary, so they are
            // left out.
            opened = self.programs.attach_boundaries(&pack.places);
        }
        if let Err(error) = opened {
            self.programs.sum_by_thread(true);
            return Err(error);
        }
        let opened_ns = monotonic_ns();
        self.stage = Stage::Open { opened_ns, is_pack };
        Ok(opened_ns)
    }

    fn next_window(&self) -> u32 {
        self.window.wrapping_add(1).max(1)
    }

    /// Lets no further request begin in the window; returns the time until which those in progress are timed.
    fn shut(&mut self, now_ns: u64) -> u64 {
        let until_ns = now_ns + DRAIN.as_nanos() as u64;
        if let Stage::Open { opened_ns, is_pack } = self.stage {
            self.programs.set_window(self.window, 0);
            if !is_pack {
                self.window_ns += now_ns.saturating_sub(opened_ns);
            }
            self.stage = Stage::Draining { opened_ns, until_ns, is_pack };
        }
        until_ns
    }

    fn end(&mut self, now_ns: u64) {
        let (opened_ns, is_pack) = match self.stage {
            Stage::Idle => return,
            Stage::Open { opened_ns, is_pack } | Stage::Draining { opened_ns, is_pack, .. } => (opened_ns, is_pack),
        };
        self.programs.close_window();
        self.programs.sum_by_thread(true);
        self.stage = Stage::Idle;
        self.windows += 1;
        let unfinished = self.programs.requests.iter();
        let grown = self.phases.take_window(self.programs.phases.iter(), unfinished, self.window, &self.sizes);
        self.window_receives += grown.iter().map(|row| row.requests).sum::<u64>();
        match self.pack.as_mut().filter(|_| is_pack) {
            Some(pack) => {
                pack.add_window(now_ns, opened_ns, self.programs.boundary_phases.iter(), &grown, &self.sizes);
            }
            None => self.phases.add_rows(&grown),
        }
    }

    /// Opens or closes a window if it is due; returns when to call again.
    pub fn step(&mut self, now_ns: u64) -> Option<u64> {
        if let Some(duty) = self.duty.as_mut().filter(|duty| duty.is_in_windows()) {
            return match duty.step(now_ns) {
                Err(next_ns) => next_ns,
                Ok(act) => {
                    if let Err(error) = self.run_action(act) {
                        self.failure = Some(error.to_string());
                        return None;
                    }
                    Some(now_ns)
                }
            };
        }
        if self.mode != Mode::Budgeted && (self.mode != Mode::Counts || self.pack.is_none()) {
            return None;
        }
        let length = |is_pack| if is_pack { PACK_WINDOW } else { WINDOW }.as_nanos() as u64;
        match self.stage {
            Stage::Idle => {
                let pack_ns = self.pack.as_ref().and_then(|pack| pack.next_ns);
                let scheduled_ns = (self.mode == Mode::Budgeted).then(|| self.schedule.next_ns()).flatten();
                let opens_ns = [scheduled_ns, pack_ns].into_iter().flatten().min()?;
                if now_ns < opens_ns {
                    return Some(opens_ns);
                }
                let is_pack = pack_ns.is_some_and(|at_ns| at_ns <= now_ns);
                let with_syscalls = !is_pack && self.splits && self.next_window() % SPLIT_EVERY == 1;
                match self.open(is_pack, with_syscalls) {
                    Ok(opened_ns) => Some(opened_ns + length(is_pack)),
                    Err(error) if is_pack => {
                        self.pack_failure = Some(error.to_string());
                        self.pack.iter_mut().for_each(|pack| pack.next_ns = None);
                        scheduled_ns
                    }
                    Err(error) => {
                        self.failure = Some(error.to_string());
                        self.mode = Mode::Counts;
                        None
                    }
                }
            }
            Stage::Open { opened_ns, is_pack } if now_ns < opened_ns + length(is_pack) => {
                Some(opened_ns + length(is_pack))
            }
            Stage::Open { .. } => Some(self.shut(now_ns)),
            Stage::Draining { until_ns, .. } if now_ns < until_ns => Some(until_ns),
            Stage::Draining { is_pack, .. } => {
                self.end(now_ns);
                if is_pack {
                    return Some(now_ns);
                }
                self.schedule.plan_next(now_ns);
                self.schedule.next_ns()
            }
        }
    }

    pub fn open_held(&mut self) -> Result<(), WatchError> {
        if self.mode == Mode::Counts && self.stage == Stage::Idle {
            self.open(false, false)?;
        }
        Ok(())
    }

    pub fn open_held_pack(&mut self) -> Result<(), WatchError> {
        if self.mode == Mode::Counts && self.stage == Stage::Idle && self.pack.is_some() && self.pack_failure.is_none()
        {
            self.open(true, false).inspect_err(|error| self.pack_failure = Some(error.to_string()))?;
        }
        Ok(())
    }

    pub fn shut_held(&mut self) {
        if self.mode == Mode::Counts {
            self.shut(monotonic_ns());
        }
    }

    pub fn close_held(&mut self) {
        if self.mode == Mode::Counts {
            self.end(monotonic_ns());
        }
    }

    pub fn restart_phases(&mut self) {
        self.phases.restart(self.programs.phases.iter());
        if let Some(pack) = &mut self.pack {
            pack.restart(self.programs.boundary_phases.iter(), self.sizes.count());
        }
    }

    /// Phases since the restart, given the exact counts of the same time, and the number of requests that were not
    /// answered in their window.
    pub fn phases_of(&mut self, share: f64, exact: &[ClassTotals]) -> (Vec<PhaseTotals>, u64) {
        self.take_exact();
        (self.phases.totals(share, exact), self.phases.late)
    }

    pub fn prices(&self) -> EventPrices {
        let costs = self.costs;
        EventPrices {
            receive_ns: costs.receive_ns + costs.away_ns,
            window_receive_ns: costs.window_receive_ns,
            send_ns: costs.send_ns,
            sends_per_receive: self.sends_per_receive(),
            pack_request_ns: self.pack.as_ref().filter(|_| self.pack_failure.is_none()).map(ActivePack::request_ns),
        }
    }

    fn sends_per_receive(&self) -> Option<f64> {
        (self.window_receives > 0).then(|| self.sends_in_windows() as f64 / self.window_receives as f64)
    }

    fn sends_in_windows(&self) -> u64 {
        self.programs.threads.iter().map(|thread| u64::from(thread.sends_in_windows)).sum()
    }

    /// Adapts the windows to the budget: they become rarer, then stop. Counting continues.
    pub fn keep_budget(&mut self, server_cpu_ns: u64, receives: u64, budget: f64) {
        if self.mode == Mode::Budgeted {
            self.keep_duty(server_cpu_ns, receives, budget);
        }
        self.may_glance = self.cost(receives, None).added_ns < GLANCE_SHARE * budget * server_cpu_ns as f64;
        // Shares of a nearly idle server are not significant.
        if server_cpu_ns < 100_000_000 || receives == 0 {
            return;
        }
        let per_receive_cpu_ns = server_cpu_ns as f64 / receives as f64;
        let mut budget = budget;
        if let Some(pack) = self.pack.as_mut().filter(|_| self.pack_failure.is_none()) {
            pack.adapt(monotonic_ns(), per_receive_cpu_ns, budget);
            budget *= 1.0 - PACK_SHARE;
        }
        if self.mode != Mode::Budgeted {
            return;
        }
        let away_ns = self.away(receives) as f64 * self.costs.away_ns;
        let always = self.costs.receive_ns / per_receive_cpu_ns + away_ns / server_cpu_ns as f64;
        let sends_per_receive = self.sends_per_receive().unwrap_or(2.0);
        let window = (self.costs.window_receive_ns + sends_per_receive * self.costs.send_ns) / per_receive_cpu_ns;
        self.schedule.adapt(always, window, budget);
    }

    /// Counts everything, or in windows if that would exceed the budget.
    fn keep_duty(&mut self, server_ns: u64, receives: u64, budget: f64) {
        let at_ns = monotonic_ns();
        let runs = self.programs.runs();
        let counting_ns = receives as f64 * self.costs.receive_ns
            + runs.receives.saturating_sub(receives) as f64 * self.costs.away_ns;
        let counted_ns = self.counted_ns_at(at_ns);
        let added_ns = self.cost(receives, None).added_ns;
        let account = CostAccount { at_ns, server_ns, counted_ns, counting_ns, added_ns };
        match &mut self.duty {
            None => self.duty = Some(Duty::new(account)),
            Some(duty) => {
                if let Some(Err(error)) = duty.account(account, budget).map(|act| self.run_action(act)) {
                    self.failure = Some(error.to_string());
                }
            }
        }
    }

    /// The programs' counts of the port's connections; only reads memory.
    pub fn counted(&self) -> PortCounts {
        self.programs.counts.get(0)
    }

    pub fn read(&mut self, reading: &mut Reading) -> ChargedTime {
        let mut charged = ChargedTime::default();
        if self.mode.counts_requests() {
            let swept = self.programs.sweep().unwrap_or_default();
            reading.classes = totals::classes(self.programs.classes.iter(), &swept, self.sizes.count());
            reading.phases = self.phases(reading.at_ns, &reading.classes);
            reading.open = self.counting_since_ns.map(|_| totals::open(&swept));
            reading.counted_ns = self.has_gaps.then(|| self.counted_ns_at(reading.at_ns));
            reading.traffic = self.traffic();
            reading.pack = self.pack();
            charged.requests_ns = reading.classes.iter().map(|class| class.cpu_ns).sum::<i64>() + swept.waiting_cpu_ns;
        }
        let has_no_windows = self.has_gaps || self.schedule.period().is_none();
        if self.mode == Mode::Budgeted && has_no_windows && self.may_glance && self.glance().is_ok() {
            self.glances += 1;
        }
        let (work, between_ns) = by_process::work(self.programs.threads.iter(), &self.programs.counts.get(0));
        ChargedTime { between_ns, work: self.mode.counts_requests().then_some(work), ..charged }
    }

    /// Briefly reads the status of every answer.
    fn glance(&self) -> Result<(), WatchError> {
        let links = self.programs.attach_sends()?;
        std::thread::sleep(GLANCE);
        drop(links);
        Ok(())
    }

    /// Requests that are not answered, or not fully acknowledged.
    pub fn in_flight(&mut self) -> Option<u64> {
        self.programs.sweep().ok().map(|swept| swept.waiting + swept.sending)
    }

    /// Requests by progress. `closing`: connections that the client but not the server has closed.
    pub fn progress(&mut self, closing: u64) -> Option<RequestProgress> {
        let swept = self.programs.sweep().ok()?;
        Some(RequestProgress {
            finished: self.programs.classes.iter().map(|row| row.requests).sum(),
            answered: swept.answered.iter().map(|row| row.requests).sum(),
            unfinished: swept.waiting + swept.sending + closing,
        })
    }

    /// The protocol according to the reads sampled so far; permits a few more samples.
    fn traffic(&mut self) -> Option<Traffic> {
        let traffic = self.traffic.as_mut()?;
        for look in self.programs.sampled_reads() {
            let kept = look.head.get(..look.kept as usize).filter(|head| !head.is_empty());
            super::traffic::add(traffic, kept, look.bytes);
        }
        self.traffic
    }

    /// Adds the measurements so far of the window, which stays open in the exact mode.
    fn take_exact(&mut self) {
        if self.mode == Mode::Exact {
            self.phases.add_window(self.programs.phases.iter(), std::iter::empty(), self.window, &self.sizes);
        }
    }

    fn phases(&mut self, now_ns: u64, exact: &[ClassTotals]) -> Vec<PhaseTotals> {
        self.take_exact();
        if self.mode == Mode::Exact {
            return self.phases.totals(1.0, exact);
        }
        if self.windows == 0 {
            return Vec::new();
        }
        let share = self.window_ns as f64 / now_ns.saturating_sub(self.started_ns).max(1) as f64;
        self.phases.totals(share, exact)
    }

    /// Runs of programs on events that do not belong to the server: of other ports or threads, or reads without data.
    fn away(&self, receives: u64) -> u64 {
        let runs = self.programs.runs();
        runs.receives.saturating_sub(receives)
            + runs.sends.saturating_sub(self.sends_in_windows())
            + runs.switches
            + runs.syscalls
            + runs.disk_reads
            + runs.others
    }

    /// The cost of the programs for all kinds of events: their number times the calibrated cost of one.
    pub fn cost(&self, receives: u64, server_cpu_ns: Option<u64>) -> AddedCost {
        let counts = self.programs.counts.get(0);
        let cpus = record::machine::online_cpus() as f64;
        let counted = if self.mode.counts_requests() { receives as f64 * self.costs.receive_ns } else { 0.0 };
        let window_receives = if self.mode == Mode::Exact { receives } else { self.window_receives };
        let away_events = self.away(receives);
        let away_ns = away_events as f64 * self.costs.away_ns;
        let added_ns = counted
            + away_ns
            + counts.counters[Counter::Accepted as usize] as f64 * TRANSITIONS_PER_CONNECTION * self.costs.receive_ns
            + self.sends_in_windows() as f64 * self.costs.send_ns
            + window_receives as f64 * self.costs.window_receive_ns
            + (self.windows + self.glances) as f64 * WINDOW_COST_PER_CPU_NS * cpus
            + self.pack.as_ref().map_or(0.0, |pack| pack.cost_ns(counts.boundaries_seen));
        AddedCost {
            added_ns,
            receive_event_ns: self.costs.receive_ns,
            away_event_ns: self.costs.away_ns,
            away_events,
            away_ns,
            added_ratio: server_cpu_ns.filter(|cpu| *cpu > 0).map(|cpu| added_ns / cpu as f64),
            windows: self.windows,
            window_ns: self.window_ns,
        }
    }

    /// Describes the current rate of windows, or why there are none.
    pub fn windows_note(&self) -> Option<String> {
        match (&self.failure, self.mode) {
            (Some(why), _) => Some(format!("phases are not timed: {why}")),
            (None, Mode::Budgeted) if self.schedule.period().is_none() => Some(
                "phases are not timed: windows would exceed the overhead budget (raise it with --overhead, or use \
                 --detail exact)"
                    .into(),
            ),
            _ => None,
        }
    }
}
