//! The watch of a port: by programs if the kernel permits them, else by scans. Both give the same form of reading.

use super::by_process;
use super::classes::SizeClasses;
use super::error::WatchError;
use super::group_io::{GroupIoReader, read_control_group};
use super::intervals::{DueKinds, Intervals};
use super::kernel::ReceiveHook;
use super::pack::Pack;
use super::server::{Roots, ServerReader, ServerReading};
use super::states::{ByState, Scan, StateModel, Stillness};
use super::system::SystemReader;
use super::timer_wheel::TimerWheel;
use super::totals;
use super::tracer::Tracer;
use crate::account::Accountant;
use crate::bpf::types::watch::PortCounts;
use crate::cpu_clock;
use crate::error::ObserveError;
use crate::group::Group;
use crate::namespace::{namespace_number, needs_hosts_process_ids};
use crate::processes::{Process, ProcessOrigin, in_control_group};
use crate::sock_diag::STATES;
use record::account::Account;
use record::time::{monotonic_ns, unix_ms};
use record::units::percent;
use record::watch::system::{ControlGroupTotals, GroupIo, SystemKind, SystemTotals};
use record::watch::{ChargedCpu, ConnectionTotals, Counter, Counts, CpuTotals, LimitTotals, Mode, Reading};
use record::{Doubt, DoubtKind, Severity};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Scans check the states at this interval, even while connections change.
const RECONCILE: Duration = Duration::from_secs(10);
/// Scans may use one part in this many of a CPU.
const SCAN_SHARE: u64 = 1000;
const MOST_SCAN_CREDIT_NS: i64 = 50_000_000;
/// After this long without a change, a scan is probably undisturbed.
const STILL_NS: u64 = 100_000_000;
/// Sleeps are divided into pieces of this length, so that a signal just before a sleep is noticed.
const NAP_NS: u64 = 200_000_000;

/// The share of the allowed overhead for the account of the threads, and its minimum.
const ACCOUNT_OF_OVERHEAD: f64 = 0.5;
const LEAST_ACCOUNT_NS: u64 = 200_000;

/// The options of a watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The server's port.
    pub port: u16,
    /// Its processes.
    pub group: Group,
    /// Watch in this process's network namespace; `None`: in that of the control group, or of the calling thread.
    pub netns_pid: Option<u32>,
    /// The level of detail.
    pub mode: Mode,
    /// The highest average cost to the server, as a share of its CPU time.
    pub overhead_ratio: f64,
    /// Size classes.
    pub classes: SizeClasses,
    /// Whether the parse phase ends, in some windows, when the server opens or looks up a file instead of at its
    /// first send.
    pub splits: bool,
    /// The server is everything in this control group (version 2); `group` is then unused.
    pub control_group: Option<PathBuf>,
    /// Times between readings of the machine's counters.
    pub system_intervals: Intervals,
    /// Room for this many connections; `None`: for those that exist at the start, and some more.
    pub room: Option<u32>,
    /// Whether to sample the first bytes of a few reads per second to identify the protocol.
    pub detects_protocol: bool,
    /// Functions of the server whose time is also counted as phases, in short windows.
    pub pack: Option<Pack>,
    /// Whether to read the limits of the server, too.
    pub limits: bool,
    /// Whether to account for the time of the server's threads, in part of the time between readings.
    pub accounts: bool,
    /// Whether to count reads as on kernels before 6.3 (by `tcp_rcv_space_adjust`) even on newer ones, for
    /// comparison.
    pub reads_by_position: bool,
}

impl WatchOptions {
    /// Default options for a port of this namespace.
    pub fn of_port(port: u16) -> Self {
        WatchOptions {
            port,
            group: Group::ListeningOn(port),
            netns_pid: None,
            mode: Mode::Budgeted,
            overhead_ratio: 0.01,
            classes: SizeClasses::default(),
            splits: true,
            control_group: None,
            system_intervals: Intervals::default(),
            room: None,
            detects_protocol: true,
            pack: None,
            limits: false,
            accounts: false,
            reads_by_position: false,
        }
    }
}

/// A watch. Dropping it detaches every program.
#[derive(Debug)]
pub struct Watcher {
    pub(super) options: WatchOptions,
    pub(super) tracer: Option<Tracer>,
    why_no_programs: Option<WatchError>,
    /// Why the programs' process ids differ from those of /proc, if so.
    why_no_ids: Option<ObserveError>,
    accountant: Option<Result<Accountant, WatchError>>,
    /// Whether requests were counted at any time during this watch.
    has_counted: bool,
    server: ServerReader,
    pub(super) states: StateModel,
    started_ns: u64,
    own_cpu_at_start_ns: u64,
    stillness: Stillness,
    /// CPU time currently available for scans, nanoseconds, and when it was last increased.
    scan_credit_ns: i64,
    scan_credit_at_ns: u64,
    last_scan_ns: u64,
    scan_error: Option<String>,
    /// Connections of the namespace for which TIME_WAIT had no place, and their number at the last scan.
    overflows: u64,
    overflows_at_scan: u64,
    last: Reading,
    slow: SlowReadings,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ChargedTime {
    /// Time charged to requests, including those in progress.
    pub requests_ns: i64,
    /// Time charged to threads between connections.
    pub between_ns: i64,
    /// Work by process, if requests are counted and the process ids are those of /proc.
    pub work: Option<BTreeMap<Process, by_process::ProcessWork>>,
}

/// Readings with an interval of their own.
#[derive(Debug)]
struct SlowReadings {
    due: DueKinds,
    reader: SystemReader,
    io_reader: GroupIoReader,
    system: SystemTotals,
    io: Option<GroupIo>,
    control_group: Option<ControlGroupTotals>,
}

impl SlowReadings {
    fn new() -> Self {
        SlowReadings {
            due: DueKinds::default(),
            reader: SystemReader::open(),
            io_reader: GroupIoReader::default(),
            system: SystemTotals::default(),
            io: None,
            control_group: None,
        }
    }

    fn read(&mut self, now_ns: u64, options: &WatchOptions, members: &[(u32, &ProcessOrigin)]) {
        let due = self.due.at(now_ns, &options.system_intervals);
        self.reader.read_into(&mut self.system, &due);
        if due.contains(&SystemKind::Server) {
            self.io = self.io_reader.read(members);
            self.control_group = options.control_group.as_deref().map(read_control_group);
        }
    }
}

impl Watcher {
    /// Starts watching. If programs cannot be loaded, connections are scanned and requests are not counted;
    /// [`Watcher::why_no_programs`] has the reason.
    pub fn start(mut options: WatchOptions) -> Result<Self, ObserveError> {
        let group = match &options.control_group {
            None => Roots::Of(options.group),
            Some(folder) => {
                let pids = in_control_group(folder).map_err(|source| ObserveError::Unreadable {
                    path: folder.join("cgroup.procs").display().to_string(),
                    source,
                })?;
                // 0 is a process that is not visible from here.
                let first = pids.iter().copied().find(|pid| *pid != 0);
                options.netns_pid = options.netns_pid.or(first);
                Roots::ControlGroup(folder.clone(), pids)
            }
        };
        let mut server = ServerReader::open(options.port, group, options.netns_pid)?;
        let own_cpu_at_start_ns = cpu_clock::of_process(std::process::id()).unwrap_or(0);
        let seen = server.scan().map(|sockets| sockets.by_state.iter().sum()).unwrap_or(0);
        let namespace = namespace_number(options.netns_pid);
        let (mut tracer, why_no_programs) = match Tracer::start(&options, namespace, seen) {
            Ok(tracer) => (Some(tracer), None),
            Err(error) => (None, Some(error)),
        };
        let why_no_ids = needs_hosts_process_ids().err();
        let accountant = options.accounts.then(|| Accountant::start(options.port).map_err(WatchError::from));
        if let (Some(tracer), None) = (&mut tracer, &why_no_ids) {
            server.restart(tracer.programs.follow(&server.processes()).ok());
        } else {
            server.restart(None);
        }
        let started_ns = monotonic_ns();
        let mut watcher = Watcher {
            has_counted: why_no_programs.is_none() && options.mode.counts_requests(),
            options,
            tracer,
            why_no_programs,
            why_no_ids,
            accountant,
            server,
            states: StateModel::new(TimerWheel::of_this_kernel()),
            started_ns,
            own_cpu_at_start_ns,
            stillness: Stillness::default(),
            scan_credit_ns: MOST_SCAN_CREDIT_NS,
            scan_credit_at_ns: started_ns,
            last_scan_ns: 0,
            scan_error: None,
            overflows: 0,
            overflows_at_scan: 0,
            last: Reading::default(),
            slow: SlowReadings::new(),
        };
        watcher.take_up_pack();
        watcher.reconcile();
        watcher.last = watcher.read();
        Ok(watcher)
    }

    fn take_up_pack(&mut self) {
        if let (Some(tracer), Some(pack)) = (&mut self.tracer, &self.options.pack) {
            tracer.use_pack(pack, &self.server.pids());
        }
    }

    /// Why requests are not counted from inside the kernel, if so.
    pub fn why_no_programs(&self) -> Option<&WatchError> {
        self.why_no_programs.as_ref()
    }

    /// The options in force.
    pub fn options(&self) -> &WatchOptions {
        &self.options
    }

    /// Calibrated cost of a request with one read, in the current mode; `None` without programs.
    pub fn request_ns(&self) -> Option<f64> {
        let prices = self.tracer.as_ref()?.prices();
        let phases = prices.window_receive_ns + prices.sends_per_receive.unwrap_or(1.0) * prices.send_ns;
        Some(prices.receive_ns + if self.options.mode == Mode::Exact { phases } else { 0.0 })
    }

    /// Changes the level of detail. Requests in progress at that moment may not be counted.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), WatchError> {
        if let Some(tracer) = &mut self.tracer {
            tracer.set_mode(mode)?;
        }
        self.options.mode = mode;
        self.has_counted |= self.has_programs() && mode.counts_requests();
        Ok(())
    }

    /// The server's processes.
    pub fn pids(&self) -> Vec<u32> {
        self.server.pids()
    }

    /// Sleeps until `deadline_ns` (monotonic) or until `stop` is set, and opens the windows that are due meanwhile.
    pub fn wait_until(&mut self, deadline_ns: u64, stop: &AtomicBool) {
        loop {
            let now_ns = monotonic_ns();
            self.stillness.still_ns(now_ns, &self.counted());
            let next_ns = self.step(now_ns).unwrap_or(u64::MAX).min(deadline_ns);
            if now_ns >= deadline_ns || stop.load(Ordering::Relaxed) {
                return;
            }
            let nap_ns = next_ns.saturating_sub(monotonic_ns()).min(NAP_NS);
            let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: nap_ns as _ };
            let _ = rustix::thread::nanosleep(&nap);
        }
    }

    fn step(&mut self, now_ns: u64) -> Option<u64> {
        self.tracer.as_mut().and_then(|tracer| tracer.step(now_ns))
    }

    /// Counts of the port's connections; all zero without programs.
    pub(super) fn counted(&self) -> PortCounts {
        self.tracer.as_ref().map_or_else(PortCounts::default, Tracer::counted)
    }

    fn has_programs(&self) -> bool {
        self.why_no_programs.is_none()
    }

    /// Current connections by state, only from transitions: reads memory without a system call. Indices as in
    /// [`crate::sock_diag::STATES`].
    pub fn states(&mut self) -> ByState {
        let counted = self.counted();
        self.states.read(monotonic_ns(), &counted)
    }

    /// Scans now, and corrects the states by the result.
    pub fn reconcile(&mut self) {
        if let Some(Ok(wheel)) = self.tracer.as_mut().map(|tracer| tracer.programs.wheel()) {
            self.states.wheel = wheel;
        }
        let (before, began_ns) = (self.counted(), monotonic_ns());
        match self.server.scan() {
            Ok(sockets) => {
                let (ended_ns, after) = (monotonic_ns(), self.counted());
                let scan = Scan { began_ns, ended_ns, before: &before, after: &after, sockets: &sockets };
                let clients = self.states.reconcile(&scan);
                if let Some(tracer) = &mut self.tracer {
                    let updated = tracer.programs.update_waiting_clients(&clients);
                    self.scan_error = updated.err().map(|error| error.to_string());
                }
            }
            Err(error) => self.scan_error = Some(error.to_string()),
        }
        self.last_scan_ns = began_ns;
        self.overflows_at_scan = self.overflows;
    }

    /// Whether a scan is worth its cost: if connections do not change and it would improve the model, and at the
    /// interval.
    fn is_scan_due(&mut self, now_ns: u64) -> bool {
        let saved_ns = now_ns.saturating_sub(self.scan_credit_at_ns) / SCAN_SHARE;
        self.scan_credit_ns = (self.scan_credit_ns + saved_ns as i64).min(MOST_SCAN_CREDIT_NS);
        self.scan_credit_at_ns += saved_ns * SCAN_SHARE;
        let moved = self.counted();
        let is_still = self.stillness.still_ns(now_ns, &moved) >= STILL_NS;
        let is_late = now_ns.saturating_sub(self.last_scan_ns) >= RECONCILE.as_nanos() as u64;
        self.scan_credit_ns > 0 && (is_late || (is_still && self.states.is_unsettled(&moved)))
    }

    /// Records overflows of TIME_WAIT, after which sockets vanish at once; only a scan shows that for this port.
    fn note_full_time_wait(&mut self, overflows: u64) {
        self.overflows = overflows;
        self.states.without_place = overflows.saturating_sub(self.overflows_at_scan);
        if overflows > self.overflows_at_scan && self.scan_credit_ns > 0 {
            self.reconcile_on_credit();
        }
    }

    fn reconcile_on_credit(&mut self) {
        let cpu_before_ns = cpu_clock::of_this_thread();
        self.reconcile();
        self.scan_credit_ns -= (cpu_clock::of_this_thread() - cpu_before_ns) as i64;
    }

    /// Reads all data.
    pub fn read(&mut self) -> Reading {
        let before_ns = monotonic_ns();
        if !self.has_programs() || self.is_scan_due(before_ns) {
            self.reconcile_on_credit();
        }
        // The counts and their clock are from one moment; the server's processes are read right after.
        let now_ns = monotonic_ns();
        let mut reading =
            Reading { at_ns: now_ns, unix_ms: unix_ms(), elapsed_ns: now_ns - self.started_ns, ..Reading::default() };
        let counted = self.counted();
        reading.losses = if self.has_counted { totals::counted(&counted, true) } else { Counts::default() };
        let mut charged = self.tracer.as_mut().map(|tracer| tracer.read(&mut reading)).unwrap_or_default();
        charged.work = charged.work.filter(|_| self.why_no_ids.is_none());
        for (process, work) in charged.work.iter().flatten().filter(|(_, work)| work.threads > 0) {
            self.server.adopt(*process, work.charged_ns.max(0) as u64);
        }
        let server = self.read_server();
        self.note_full_time_wait(server.time_wait_overflows.unwrap_or(0));
        reading.connections = self.connections(now_ns, &counted, &server);
        reading.cpu = cpu(&server);
        self.read_cost(&mut reading, &charged);
        let work = charged.work.as_ref();
        reading.processes = by_process::rows(work, &server.processes, reading.group_ns().unwrap_or(0), &reading.all());
        reading.cost.own_cpu_ns =
            cpu_clock::of_process(std::process::id()).unwrap_or(0).saturating_sub(self.own_cpu_at_start_ns);
        reading.limits = self.options.limits.then(|| self.limits(charged.work.as_ref(), &server));
        self.slow.read(now_ns, &self.options, &self.server.members());
        reading.system = self.slow.system.clone();
        reading.io = self.slow.io;
        reading.control_group = self.slow.control_group.clone();
        reading.account = self.account(reading.group_ns().unwrap_or(0));
        self.last = reading.clone();
        reading
    }

    /// The account of the threads since the last reading, as long as its budget lasted. Opens the next window.
    fn account(&mut self, group_ns: u64) -> Option<Account> {
        let accountant = self.accountant.as_mut()?.as_mut().ok()?;
        let processes = self.server.processes();
        let since_ns = group_ns.saturating_sub(self.last.group_ns().unwrap_or(group_ns));
        let budget_ns = (ACCOUNT_OF_OVERHEAD * self.options.overhead_ratio * since_ns as f64) as u64;
        let kept = accountant.next(&processes, self.server.table(), budget_ns.max(LEAST_ACCOUNT_NS));
        kept.unwrap_or_else(|refusal| {
            self.accountant = Some(Err(refusal.into()));
            None
        })
    }

    fn read_server(&mut self) -> ServerReading {
        let ended_ns = match &mut self.tracer {
            Some(tracer) if self.why_no_ids.is_none() => tracer.programs.follow(&self.server.processes()).ok(),
            _ => None,
        };
        self.server.read(ended_ns)
    }

    fn limits(
        &mut self,
        work: Option<&BTreeMap<Process, by_process::ProcessWork>>,
        server: &ServerReading,
    ) -> LimitTotals {
        let living = |process: &Process| server.processes.iter().any(|living| living.process == *process);
        let readers = |work: &BTreeMap<Process, by_process::ProcessWork>| {
            let of_living = work.iter().filter(|(process, _)| living(process));
            of_living.map(|(_, work)| work.threads).sum::<u64>().min(server.size.threads)
        };
        LimitTotals { reading_threads: work.map(readers), ..self.server.limits() }
    }

    fn read_cost(&mut self, reading: &mut Reading, charged: &ChargedTime) {
        let Some(tracer) = &mut self.tracer else { return };
        let receives: u64 = reading.classes.iter().map(|class| class.receives).sum();
        let group_ns = reading.group_ns().unwrap_or(0);
        reading.cost.added = Some(tracer.cost(receives, (group_ns > 0).then_some(group_ns)));
        tracer.keep_budget(group_ns, receives, self.options.overhead_ratio);
        // With gaps, the charges cover only the time in which requests were counted.
        if let (Some(cpu), Some(connects), None) = (&mut reading.cpu, &reading.connections.connects, reading.counted_ns)
        {
            let (ChargedTime { requests_ns, between_ns, .. }, connect_ns) = (charged, connects.connect_cpu_ns);
            let elsewhere_ns = cpu.group_ns as i64 - requests_ns - connect_ns - between_ns;
            cpu.charged =
                Some(ChargedCpu { requests_ns: *requests_ns, connect_ns, between_ns: *between_ns, elsewhere_ns });
        }
    }

    fn connections(&mut self, now_ns: u64, counted: &PortCounts, server: &ServerReading) -> ConnectionTotals {
        let states = self.states.read(now_ns, counted);
        ConnectionTotals {
            states: STATES
                .iter()
                .copied()
                .zip(states)
                .filter(|(name, count)| *count > 0 && *name != "unknown")
                .map(|(name, count)| (name.into(), count))
                .collect(),
            reconciliation: self.has_programs().then_some(self.states.reconciliation),
            counted: if self.has_programs() { totals::counted(counted, false) } else { Counts::default() },
            connects: self.has_counted.then(|| totals::connects(counted)),
            syn_backlog: self.states.half_open,
            ..server.connections.clone()
        }
    }

    /// Reasons to doubt the last reading, each with its remedy.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut not_watched = |severity, what: Option<String>, remedy: &str| {
            doubts.extend(what.map(|what| Doubt::new(DoubtKind::NotWatched, severity, what, remedy)));
        };
        not_watched(
            Severity::Warning,
            self.why_no_programs.as_ref().map(|error| format!("requests are not counted: {error}")),
            "see straingauge doctor",
        );
        not_watched(
            Severity::Warning,
            self.server.failure.as_ref().map(|why| format!("the server's processes are not watched: {why}")),
            "start the server, or run as root",
        );
        not_watched(
            Severity::Note,
            (self.why_no_ids.as_ref().filter(|_| self.has_counted))
                .map(|why| format!("requests by process and threads that read requests are not measured: {why}")),
            "all other figures are complete",
        );
        not_watched(
            Severity::Warning,
            (self.accountant.as_ref().and_then(|accountant| accountant.as_ref().err()))
                .map(|error| format!("the threads' time is not accounted for: {error}")),
            "see straingauge doctor",
        );
        not_watched(
            Severity::Note,
            self.scan_error.as_ref().map(|why| format!("connections could not be scanned: {why}")),
            "see straingauge doctor",
        );
        let added = self.last.cost.added.as_ref().filter(|_| self.options.mode == Mode::Budgeted);
        let over = added.filter(|added| added.added_ratio.is_some_and(|ratio| ratio > self.options.overhead_ratio));
        not_watched(
            Severity::Note,
            over.map(|added| {
                format!(
                    "watching cost {} of the server's CPU time, more than the limit: {} of that were events of other \
                     programs",
                    percent(added.added_ratio.unwrap_or(0.0)),
                    percent(added.away_ns / added.added_ns.max(1.0))
                )
            }),
            "watch for longer, because the limit applies to the mean, or use --detail zero on a server with little \
             work",
        );
        if let Some(tracer) = &self.tracer {
            not_watched(
                Severity::Note,
                tracer.counting_note(),
                "use --detail counts to count every request at any cost, or raise --overhead",
            );
            not_watched(
                Severity::Note,
                tracer.windows_note(),
                "raise --overhead, or use --detail counts if phases do not matter",
            );
            not_watched(
                Severity::Warning,
                tracer.pack_note().map(|why| format!("phases are not timed by functions of the server: {why}")),
                "phases by reads and sends need no symbols; docs/watching.md says how a pack is made",
            );
            let lost = self.last.count(Counter::DisplacedOpen).unwrap_or(0);
            if lost > 0 {
                let slots = tracer.programs.requests.len();
                doubts.push(DoubtKind::LostEvents.warning(
                    format!("{lost} requests were lost: the table has room for {slots} connections"),
                    "give --table-size COUNT, or start the watch after the connections: its table has room for four \
                     times as many",
                ));
            }
        }
        let displaced = self.last.count(Counter::DisplacedThreads).unwrap_or(0);
        if displaced > 0 {
            doubts.push(DoubtKind::LostEvents.warning(
                format!(
                    "a thread's place was taken by another {displaced} times: requests used more CPU time than is \
                    charged to them"
                ),
                "take the CPU time of the whole server, or watch a server with fewer threads",
            ));
        }
        if self.overflows > 0 {
            doubts.push(DoubtKind::SourcesDisagree.note(
                format!(
                    "{} connections of the namespace had no place in TIME_WAIT: its number comes from scans",
                    self.overflows
                ),
                "raise net.ipv4.tcp_max_tw_buckets",
            ));
        }
        let unread = self.last.count(Counter::UnreadBytes).unwrap_or(0);
        if unread > self.last.all().bytes_in {
            doubts.push(DoubtKind::NotSplit.warning(
                format!(
                    "not all requests are seen: the server forwards data of clients without reading it (splice; \
                         {unread} bytes)"
                ),
                "take requests from the server's log, or watch the server behind it",
            ));
        }
        let (group_ns, charged) = (self.last.group_ns().unwrap_or(0), self.last.charged().unwrap_or_default());
        let missing = -charged.elsewhere_ns as f64 / group_ns.max(1) as f64;
        if group_ns > 100_000_000 && missing > 0.01 {
            doubts.push(DoubtKind::SourcesDisagree.warning(
                format!("CPU time charged to requests exceeds the scheduler's account by {}", percent(missing)),
                "part of the server runs outside the watched process group: name the process that owns its port",
            ));
        }
        let multipath = self.last.count(Counter::Multipath).unwrap_or(0);
        let hooks = self.tracer.as_ref().map(|tracer| tracer.programs.hooks);
        if multipath > 0 && hooks.is_some_and(|hooks| hooks.receive != ReceiveHook::Length) {
            doubts.push(DoubtKind::NotWatched.warning(
                format!(
                    "requests by MPTCP are not seen on this kernel: {multipath} paths of its connections were accepted"
                ),
                "use Linux 6.3 or later, or let the server listen by TCP (Go: GODEBUG=multipathtcp=0)",
            ));
        }
        doubts.extend(self.last.traffic.iter().flat_map(super::traffic::doubts));
        doubts
    }
}

/// `None` if the server's processes are unknown.
fn cpu(server: &ServerReading) -> Option<CpuTotals> {
    let counters = &server.counters;
    let ticks = counters.user_ticks + counters.system_ticks;
    let page_bytes = rustix::param::page_size() as u64;
    // The CPU use of a server stays known after its end.
    (server.size.processes > 0 || counters.cpu_ns > 0).then_some(CpuTotals {
        group_ns: counters.cpu_ns,
        user_ratio: (ticks >= 10).then(|| counters.user_ticks as f64 / ticks as f64),
        charged: None,
        switches: counters.switches,
        accounted_ns: Some(counters.accounted_ns),
        major_faults: counters.major_faults,
        processes: server.size.processes,
        threads: server.size.threads,
        resident_bytes: server.size.resident_pages * page_bytes,
    })
}
