use super::calibration;
use super::programs::{self, ExactPrograms};
use super::result::{self, Burst};
use crate::cpu_clock;
use crate::group::ServerGroup;
use crate::listening::{ServerProcess, server_on_port};
use crate::namespace::namespace_number;
use crate::processes::ProcessTable;
use crate::profile::error::ProfileError;
use crate::profile::symbols;
use record::boundaries;
use record::profile::exact::{ExactProfile, HookCosts, Machine};
use record::time::monotonic_ns;
use std::time::{Duration, Instant};

/// Number of bursts in a profile; their spread gives the intervals.
pub const BURSTS: u32 = 10;
/// The programs need this time to learn each thread's state before counting begins.
const ACQUAINTANCE: Duration = Duration::from_millis(30);
const SETTLE: Duration = Duration::from_millis(8);

/// Maximum attempts at a burst if this program loses its CPU at one of its ends.
const ATTEMPTS: u32 = 4;

/// The settings of an exact profile.
#[derive(Debug, Clone)]
pub struct BurstOptions {
    /// The server's port.
    pub port: u16,
    /// A process in whose network namespace the server listens; `None` = the caller's.
    pub netns_pid: Option<u32>,
    /// Length of one burst.
    pub burst: Duration,
}

/// An attached exact profiler. Hooks cost time while they are attached, so call [`finish`](Self::finish) soon.
#[derive(Debug)]
pub struct ExactProfiler {
    options: BurstOptions,
    server: ServerProcess,
    programs: ExactPrograms,
    group: ServerGroup,
    table: ProcessTable,
    costs: HookCosts,
    bursts: Vec<Burst>,
    began: Instant,
    attach_ns: u64,
}

impl ExactProfiler {
    /// Finds the server, measures the cost of hooks, and hooks the boundaries.
    pub fn attach(options: BurstOptions) -> Result<Self, ProfileError> {
        let server =
            server_on_port(options.port, options.netns_pid)?.ok_or(ProfileError::NoServer { port: options.port })?;
        // The kernel verifies all programs before it refuses to attach the first one.
        programs::try_out()?;
        let functions = symbols::functions().map_err(ProfileError::Symbols)?;
        let bare_call_ns = calibration::bare_call_ns();
        let began = Instant::now();
        let mut programs =
            ExactPrograms::load(boundaries::built_in(), &functions, options.port, namespace_number(Some(server.pid)))?;
        programs.attach_tracepoints()?;
        let costs = calibration::measure(&mut programs, bare_call_ns)?;
        programs.attach_functions()?;
        let attach_ns = began.elapsed().as_nanos() as u64;
        let (group, table) = (ServerGroup::new(server.sharing.iter().copied(), None), ProcessTable::default());
        let mut profiler =
            ExactProfiler { options, server, programs, group, table, costs, bursts: Vec::new(), began, attach_ns };
        profiler.admit()?;
        std::thread::sleep(ACQUAINTANCE);
        Ok(profiler)
    }

    /// Measures a burst, again if this program lost its CPU at one of its ends.
    pub fn burst(&mut self) -> Result<(), ProfileError> {
        self.admit()?;
        let pids = self.group.pids();
        for attempt in 1..=ATTEMPTS {
            let (burst, edges_ns) = self.attempt(&pids)?;
            if edges_ns * 100 <= burst.length_ns || attempt == ATTEMPTS {
                self.bursts.push(burst);
                break;
            }
        }
        Ok(())
    }

    /// A burst, and the longest time between reading the scheduler's account and opening or closing the gate.
    fn attempt(&self, pids: &[u32]) -> Result<(Burst, u64), ProfileError> {
        let before = self.programs.read(u64::MAX, 0)?;
        let packets_before = self.programs.packets()?;
        let began_ns = monotonic_ns();
        let cpu_before = cpu_times(pids);
        let opens_ns = monotonic_ns();
        self.programs.set_gate(opens_ns, u64::MAX)?;
        let opening_ns = monotonic_ns() - began_ns;
        std::thread::sleep(self.options.burst);
        let ending_ns = monotonic_ns();
        let cpu_after = cpu_times(pids);
        let closes_ns = monotonic_ns();
        self.programs.set_gate(opens_ns, closes_ns)?;
        let closing_ns = monotonic_ns() - ending_ns;
        // An active CPU soon reaches a hook; for a sleeping one, the reader adds the rest.
        std::thread::sleep(SETTLE);
        let after = self.programs.read(opens_ns, closes_ns)?;
        // Processes that have ended meanwhile are in neither sum.
        let both = cpu_before.iter().zip(&cpu_after).filter_map(|(then, now)| Some((*now)?.saturating_sub((*then)?)));
        let burst = Burst {
            length_ns: closes_ns - opens_ns,
            scheduler_ns: both.sum(),
            counted: after.since(&before),
            packets: self.programs.packets()?.since(&packets_before),
        };
        Ok((burst, opening_ns.max(closing_ns)))
    }

    fn admit(&mut self) -> Result<(), ProfileError> {
        self.table.scan();
        self.group.admit(&self.table);
        self.programs.set_members(&self.group.processes())
    }

    /// Removes the hooks and returns the result of the bursts.
    pub fn finish(mut self) -> Result<ExactProfile, ProfileError> {
        let hooked = self.programs.hooked();
        let unhooked = std::mem::take(&mut self.programs.unhooked);
        let detaching = Instant::now();
        drop(self.programs);
        let machine = Machine {
            port: self.options.port,
            pid: self.server.pid,
            command: self.server.command,
            cpus: record::machine::online_cpus(),
            hooked,
            unhooked,
            attach_ns: self.attach_ns,
            detach_ns: detaching.elapsed().as_nanos() as u64,
            duration_ns: self.began.elapsed().as_nanos() as u64,
        };
        result::profile(machine, self.costs, &self.bursts)
    }
}

fn cpu_times(pids: &[u32]) -> Vec<Option<u64>> {
    pids.iter().map(|pid| cpu_clock::of_process(*pid).ok()).collect()
}

/// Measures [`BURSTS`] bursts, or fewer if `is_stopped`.
pub fn run(options: BurstOptions, is_stopped: &dyn Fn() -> bool) -> Result<ExactProfile, ProfileError> {
    let mut profiler = ExactProfiler::attach(options)?;
    for _ in 0..BURSTS {
        if is_stopped() {
            break;
        }
        profiler.burst()?;
    }
    profiler.finish()
}
