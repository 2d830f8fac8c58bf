pub mod doubts;
mod neighbours;

use crate::group::{GroupCounters, GroupSize, clock_ticks_per_sec};
use crate::limits::MemoryUse;
use crate::machine::{CpuUse, MachineReading};
use crate::network::{self, NetworkDevice, NetworkReading};
use crate::processes::Process;
use crate::sampler::Samples;
use crate::sock_diag::STATES;
use neighbours::Neighbours;
use record::PlainText;
use record::account::{Account, WaitKind};
use record::doubt::Doubt;
use record::figure::{Figure, Figures, Origin};
use record::names;
use record::watch::{CpuQuota, Descriptors};
use std::collections::{BTreeMap, BTreeSet};

const SHORTER_THAN_A_TICK: &str = "the window was shorter than a tick of the kernel's clock";

/// Readings at one end of a window.
#[derive(Debug, Clone, Default)]
pub struct WindowEdge {
    /// When the group's CPU clocks were read.
    pub at_ns: u64,
    pub group: GroupCounters,
    pub machine: MachineReading,
    pub network: NetworkReading,
    pub clocks: BTreeMap<Process, u64>,
    /// The load generator's CPU clock; `None` if it is not on this machine.
    pub client_cpu_ns: Option<u64>,
    pub watcher_cpu_ns: u64,
    /// CPU time of taking this edge's readings.
    pub edge_cpu_ns: u64,
    pub quota: Option<CpuQuota>,
    pub memory: MemoryUse,
    /// When the CPU clocks of the command of `find --beside` were read.
    pub beside_at_ns: u64,
    pub beside_cpu_ns: u64,
}

/// The processes of the command of `find --beside`, at the end of a window.
#[derive(Debug, Clone)]
pub struct BesideProcesses {
    pub(crate) pids: Vec<u32>,
    /// Bytes; `None` if it cannot be read.
    pub(crate) memory: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingReasons {
    /// Why the group has no processes.
    pub group: Option<String>,
    /// Why the sockets of the port cannot be read.
    pub sockets: Option<String>,
    /// Whether threads were left out because there are too many.
    pub is_cut: bool,
}

/// The readings between [`window_begins`](crate::Observer::window_begins) and
/// [`window_ends`](crate::Observer::window_ends).
#[derive(Debug, Clone)]
pub struct ObservedWindow {
    pub begin: WindowEdge,
    pub end: WindowEdge,
    /// Counters at the end of the previous window, or at the start.
    pub network_before: NetworkReading,
    pub samples: Samples,
    pub busiest_thread_ns: Option<u64>,
    pub busiest_process_ns: u64,
    pub size: GroupSize,
    /// Pages of the members without a file or shared memory behind them.
    pub anonymous_pages: u64,
    pub account: Result<Account, String>,
    pub members: Vec<u32>,
    /// Established connections of the group to other servers, if they could be read.
    pub outgoing: Option<u64>,
    pub backends: BTreeSet<u32>,
    /// Open descriptors and limit of the member that is closest to its limit.
    pub descriptors_used: Option<Descriptors>,
    pub server_cpus: Vec<usize>,
    pub client_pid: u32,
    pub has_group: bool,
    pub beside: Option<BesideProcesses>,
    pub missing: MissingReasons,
    /// Parent and program of the processes alive at the end.
    pub commands: BTreeMap<u32, (u32, PlainText)>,
}

/// The result for the run: figures by name ([`record::names`]), connection states, doubts.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// `server.*`, `machine.*`, `tcp.*`, `net.*`, `observer.*`.
    pub figures: Figures,
    /// Mean number of sockets of the port in each TCP state.
    pub connection_states: BTreeMap<String, Figure>,
    /// The account of the server's threads, if they were traced.
    pub account: Option<Account>,
    /// Reasons to doubt the figures.
    pub doubts: Vec<Doubt>,
}

#[derive(Clone, Copy)]
struct Completed {
    count: u64,
    /// Number in the length of this window, at the client's rate.
    in_window: f64,
}

impl ObservedWindow {
    /// Length of the window by the clock that was read with the group's CPU time, nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.end.at_ns.saturating_sub(self.begin.at_ns)
    }

    /// Begin and end of the window by that clock.
    pub fn edges_ns(&self) -> [u64; 2] {
        [self.begin.at_ns, self.end.at_ns]
    }

    /// CPU time of the group in the window, nanoseconds: the sum of its processes' clocks, or its control group's
    /// account if that is larger (processes without a waiting parent that ended between two readings).
    pub fn server_cpu_ns(&self) -> u64 {
        let by_clocks = self.by_clocks_ns();
        match self.by_cgroup_ns() {
            Some(by_cgroup) if by_cgroup > by_clocks + doubts::tolerance_ns(by_clocks) => by_cgroup,
            _ => by_clocks,
        }
    }

    pub(crate) fn by_clocks_ns(&self) -> u64 {
        self.end.group.cpu_ns - self.begin.group.cpu_ns
    }

    pub(crate) fn by_cgroup_ns(&self) -> Option<u64> {
        Some(self.end.group.cgroup_us?.checked_sub(self.begin.group.cgroup_us?)? * 1000)
    }

    /// CPU time that watching used in the window, nanoseconds: of the thread, and of the readings at both ends.
    pub(crate) fn observer_cpu_ns(&self) -> u64 {
        self.end.watcher_cpu_ns.saturating_sub(self.begin.watcher_cpu_ns)
            + self.end.edge_cpu_ns
            + self.begin.edge_cpu_ns
    }

    /// CPUs that a process used, given its clock at the end.
    pub(crate) fn cpus_of(&self, process: &Process, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.begin.clocks.get(process).copied().unwrap_or(0)) as f64 / self.elapsed_ns() as f64
    }

    pub(crate) fn backend_cpus(&self) -> f64 {
        let of_backends = self.end.clocks.iter().filter(|(process, _)| self.backends.contains(&process.pid));
        of_backends.map(|(process, now_ns)| self.cpus_of(process, *now_ns)).sum()
    }

    pub(crate) fn beside_cpus(&self) -> f64 {
        let elapsed_ns = self.end.beside_at_ns.saturating_sub(self.begin.beside_at_ns);
        let used_ns = self.end.beside_cpu_ns.saturating_sub(self.begin.beside_cpu_ns);
        if elapsed_ns == 0 { 0.0 } else { used_ns as f64 / elapsed_ns as f64 }
    }

    pub(crate) fn machine_use(&self) -> CpuUse {
        CpuUse::between(&self.begin.machine, &self.end.machine, |_| true)
    }

    pub(crate) fn server_cpus_use(&self) -> CpuUse {
        let is_servers = |cpu| self.server_cpus.is_empty() || self.server_cpus.contains(&cpu);
        CpuUse::between(&self.begin.machine, &self.end.machine, is_servers)
    }

    pub(crate) fn why_no_group(&self) -> Option<String> {
        if !self.members.is_empty() || self.by_clocks_ns() > 0 {
            return None;
        }
        let why = self.missing.group.clone();
        Some(why.unwrap_or_else(|| "no process of the server was alive at the end of the window".into()))
    }

    /// Whether the kernel keeps the scheduler's accounts of threads; otherwise they are all zero.
    pub(crate) fn has_accounts(&self) -> bool {
        self.busiest_thread_ns.is_some() && (self.end.group.switches > 0 || self.by_clocks_ns() < 50_000_000)
    }

    /// Whether the accounts are those of all threads. Too many threads raise a doubt.
    fn sees_all_threads(&self) -> bool {
        let accounted_ns = self.end.group.accounted_ns - self.begin.group.accounted_ns;
        self.missing.is_cut || record::watch::sees_all_threads(self.by_clocks_ns(), accounted_ns)
    }

    /// The figures of the window; costs are divided by the requests completed in it.
    pub fn observation(&self, completed_requests: u64) -> Observation {
        self.observation_of(completed_requests, self.elapsed_ns())
    }

    /// The figures for requests that a client completed in its own window of this length. Costs are quotients of
    /// rates, because the readings at the ends take time and the windows differ slightly.
    pub fn observation_of(&self, completed_requests: u64, client_ns: u64) -> Observation {
        let mut figures = Figures::default();
        let share = if client_ns == 0 { 1.0 } else { self.elapsed_ns() as f64 / client_ns as f64 };
        let requests = Completed { count: completed_requests, in_window: completed_requests as f64 * share };
        self.server_figures(&mut figures, requests);
        self.machine_figures(&mut figures, requests);
        self.softirq_figures(&mut figures);
        self.network_figures(&mut figures);
        self.observer_figures(&mut figures);
        self.beside_figures(&mut figures);
        if !self.backends.is_empty() {
            figures.measured(names::BACKEND_CPUS, self.backend_cpus(), 2, Origin::Timed);
        }
        let mut doubts = doubts::window_doubts(self);
        doubts.extend(doubts::other_window(self, share));
        let account = self.account.as_ref().ok().cloned();
        Observation { figures, connection_states: self.connection_states(), account, doubts }
    }

    fn beside_figures(&self, figures: &mut Figures) {
        let Some(BesideProcesses { pids, memory }) = &self.beside else { return };
        let n = pids.len() as u64;
        figures.measured(names::BESIDE_CPUS, self.beside_cpus(), 2, Origin::Timed);
        let memory = memory.map(|bytes| bytes as f64);
        let unreadable = "/proc/PID/smaps_rollup may be read by root or the process's own user only";
        figures.found(names::BESIDE_MEMORY, memory, (n, Origin::Counted), unreadable);
        figures.measured(names::BESIDE_PROCESSES, n as f64, 1, Origin::Counted);
    }

    fn server_figures(&self, figures: &mut Figures, Completed { count: requests, in_window }: Completed) {
        let why = self.why_no_group();
        let (accounts, of_all_threads) = (self.has_accounts(), self.sees_all_threads());
        let why_not = why.as_deref().unwrap_or(if accounts {
            "threads lived shorter than the time between readings"
        } else {
            "this kernel keeps no accounts of threads (schedstat)"
        });
        let mut set = |name: &str, value: Option<f64>, n: u64, origin: Origin| {
            figures.found(name, value.filter(|_| why.is_none()), (n, origin), why_not);
        };
        let per_request = |value: f64| Some(value / in_window);
        let (elapsed_ns, readings) = (self.elapsed_ns() as f64, 2 + self.samples.group_readings);
        let (begin, end) = (&self.begin.group, &self.end.group);

        let cpu_ns = self.server_cpu_ns() as f64;
        set(names::SERVER_CPU, per_request(cpu_ns / 1e3), requests, Origin::Timed);
        let (user, system) = (end.user_ticks - begin.user_ticks, end.system_ticks - begin.system_ticks);
        // With 0 of 0 ticks, the group used less than a tick, and Figure turns the NaN into "not measured".
        let user_share = user as f64 / (user + system) as f64;
        // The split depends on the ticks, however many requests there were.
        for (name, share) in [(names::SERVER_CPU_USER, user_share), (names::SERVER_CPU_SYSTEM, 1.0 - user_share)] {
            set(name, per_request(cpu_ns * share / 1e3), user + system, Origin::Sampled);
        }
        set(names::SERVER_CPUS_USED, Some(cpu_ns / elapsed_ns), readings, Origin::Timed);
        let busiest = self.busiest_thread_ns.filter(|_| accounts).map(|ns| ns as f64 / elapsed_ns);
        set(names::SERVER_BUSIEST_THREAD, busiest, readings, Origin::Timed);
        set(names::SERVER_BUSIEST_PROCESS, Some(self.busiest_process_ns as f64 / elapsed_ns), readings, Origin::Timed);
        let of_threads = |value: f64| per_request(value).filter(|_| accounts && of_all_threads);
        let waited_us = (end.wait_ns - begin.wait_ns) as f64 / 1e3;
        set(names::SERVER_RUN_QUEUE, of_threads(waited_us), requests, Origin::Timed);
        let switches = (end.switches - begin.switches) as f64;
        set(names::SERVER_SWITCHES, of_threads(switches), requests, Origin::Counted);
        for (name, faults) in [
            (names::SERVER_MINOR_FAULTS, end.minor_faults - begin.minor_faults),
            (names::SERVER_MAJOR_FAULTS, end.major_faults - begin.major_faults),
        ] {
            set(name, Some(faults as f64 * 1e9 / elapsed_ns), faults, Origin::Counted);
        }
        let bytes = |pages: u64| Some(pages as f64 * rustix::param::page_size() as f64);
        set(names::SERVER_MEMORY, bytes(self.size.resident_pages), self.size.processes, Origin::Counted);
        set(names::SERVER_ANONYMOUS_MEMORY, bytes(self.anonymous_pages), self.size.processes, Origin::Counted);
        set(names::SERVER_PROCESSES, Some(self.size.processes as f64), 1, Origin::Counted);
        set(names::SERVER_THREADS, Some(self.size.threads as f64), 1, Origin::Counted);
        self.wait_figures(figures, why.as_deref());
    }

    fn wait_figures(&self, figures: &mut Figures, why: Option<&str>) {
        let waits = &self.samples.waits;
        let mut set = |name: &str, value: Option<f64>, n: u64, origin: Origin, why_not: &str| {
            figures.found(name, value.filter(|_| why.is_none()), (n, origin), why.unwrap_or(why_not));
        };
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let (seen, selects) = (waits.select_or_poll + waits.scalable, waits.select_or_poll);
        let none = waits.why_none();
        set(names::SERVER_SELECT_WAITS, share(selects, seen), seen, Origin::Sampled, &none);
        let largest = (waits.largest_set > 0).then_some(waits.largest_set as f64);
        set(names::SERVER_SELECT_SET, largest, selects, Origin::Sampled, &none);
        let blocked = [
            (names::SERVER_LOCK_WAITS, &[WaitKind::Lock][..]),
            (names::SERVER_FILE_WAITS, &[WaitKind::File, WaitKind::Pipe]),
            (names::SERVER_EVENT_WAITS, &[WaitKind::Events, WaitKind::Work]),
        ];
        for (name, kinds) in blocked {
            match &self.account {
                Ok(account) => {
                    let (share, times) = account.blocked(kinds);
                    set(name, share, times, Origin::Timed, "no thread of the server lived in the window");
                }
                Err(unseen) => set(name, None, 0, Origin::Timed, unseen),
            }
        }
        let unreadable = "/proc/PID/fd may be read by root or the server's own user only";
        let used = self.descriptors_used.as_ref().map_or(0, |used| used.open);
        let share = self.descriptors_used.as_ref().map(|used| used.open as f64 / used.limit as f64);
        set(names::SERVER_DESCRIPTORS, share, used, Origin::Counted, unreadable);
        let outgoing = self.outgoing.map(|count| count as f64);
        set(names::SERVER_OUTGOING, outgoing, 1, Origin::Counted, unreadable);
    }

    /// Sets the figures about receive processing: the server's CPU with the most softirq time, and the least busy
    /// one.
    fn softirq_figures(&self, figures: &mut Figures) {
        let is_servers = |cpu: &usize| self.server_cpus.is_empty() || self.server_cpus.contains(cpu);
        let cpus: Vec<CpuUse> = (self.end.machine.stat.cpus.iter().map(|(cpu, _)| *cpu))
            .filter(is_servers)
            .map(|which| CpuUse::between(&self.begin.machine, &self.end.machine, |cpu| cpu == which))
            .filter(|cpu_use| cpu_use.cpus == 1)
            .collect();
        let most = cpus.iter().max_by_key(|cpu_use| cpu_use.times.softirq);
        let all: u64 = cpus.iter().map(|cpu_use| cpu_use.times.softirq).sum();
        let idlest = cpus.iter().filter_map(CpuUse::busy_cpus).min_by(f64::total_cmp);
        let mut set = |name: &str, value: Option<f64>, n: u64, origin: Origin| {
            figures.found(name, value, (n, origin), SHORTER_THAN_A_TICK);
        };
        let ticks = most.map_or(0, |most| most.times.softirq);
        set(names::SERVER_SOFTIRQ_CPU_BUSY, most.and_then(CpuUse::busy_cpus), 2, Origin::Timed);
        set(names::SERVER_SOFTIRQ_CPU, most.and_then(|most| most.share(ticks)), ticks, Origin::Sampled);
        let concentration = (all > 0).then(|| ticks as f64 / all as f64);
        set(names::SERVER_SOFTIRQ_CONCENTRATION, concentration, all, Origin::Sampled);
        set(names::SERVER_IDLEST_CPU_BUSY, idlest, 2, Origin::Timed);
    }

    fn machine_figures(&self, figures: &mut Figures, requests: Completed) {
        let machine = self.machine_use();
        let total = machine.times.total();
        for (name, ticks) in [
            (names::MACHINE_USER, machine.times.user),
            (names::MACHINE_SYSTEM, machine.times.system),
            (names::MACHINE_IRQ, machine.times.irq),
            (names::MACHINE_SOFTIRQ, machine.times.softirq),
            (names::MACHINE_STEAL, machine.times.steal),
            (names::MACHINE_IOWAIT, machine.times.iowait),
            (names::MACHINE_IDLE, machine.times.idle),
        ] {
            figures.found(name, machine.share(ticks), (total, Origin::Sampled), SHORTER_THAN_A_TICK);
        }
        let elapsed_s = (self.end.machine.at_ns - self.begin.machine.at_ns) as f64 / 1e9;
        let (begin, end) = (&self.begin.machine.stat, &self.end.machine.stat);
        for (name, count) in [
            (names::MACHINE_INTERRUPTS, end.interrupts.saturating_sub(begin.interrupts)),
            (names::MACHINE_SWITCHES, end.context_switches.saturating_sub(begin.context_switches)),
        ] {
            figures.measured(name, count as f64 / elapsed_s, count, Origin::Counted);
        }
        let servers = self.server_cpus_use();
        let softirq_us = servers.times.softirq as f64 * 1e6 / clock_ticks_per_sec() as f64;
        let ticks = servers.times.softirq;
        figures.measured(names::SERVER_SOFTIRQ, softirq_us / requests.in_window, ticks, Origin::Sampled);
        // Softirq that interrupts a thread is charged to that thread, unless the kernel accounts for it separately
        // (CONFIG_IRQ_TIME_ACCOUNTING). In both cases, the CPUs were busy for the group's time and the softirq time
        // outside of it.
        if let Some(busy) = servers.busy_cpus().filter(|_| self.has_group) {
            let room_us = (busy * self.elapsed_ns() as f64 - self.server_cpu_ns() as f64) / 1e3;
            let beside_us = softirq_us.min(room_us.max(0.0));
            figures.measured(names::SERVER_SOFTIRQ_BESIDE, beside_us / requests.in_window, ticks, Origin::Sampled);
        }
        figures.measured(names::SERVER_CPUS, servers.cpus as f64, 1, Origin::Counted);
        self.quota_figures(figures);
        self.memory_figures(figures);
        let busy = servers.busy_cpus().map(|busy| busy / servers.cpus as f64);
        let not_there = "none of the server's CPUs is in /proc/stat";
        figures.found(names::SERVER_CPU_BUSY, busy, (2, Origin::Timed), not_there);
        let others = Neighbours::measure(self);
        let from = (others.as_ref().map_or(0, |others| others.processes as u64), Origin::Timed);
        let cpus = others.as_ref().map(|others| others.cpus);
        figures.found(names::MACHINE_OTHERS, cpus, from, SHORTER_THAN_A_TICK);
        let taken = cpus.zip(servers.busy_cpus()).filter(|_| self.has_group).map(|(others, busy)| {
            let own = self.server_cpu_ns() as f64 / self.elapsed_ns() as f64;
            others.min(busy - own).max(0.0) / servers.cpus as f64
        });
        figures.found(names::SERVER_CPUS_TAKEN, taken, from, "the server's own CPU time was not measured");
    }

    fn quota_figures(&self, figures: &mut Figures) {
        let quota = self.begin.quota.zip(self.end.quota);
        let accounted = quota.and_then(|(begin, end)| end.used_ns?.checked_sub(begin.used_ns?));
        let used_ns = accounted.unwrap_or_else(|| self.server_cpu_ns()) as f64;
        let used =
            quota.map(|(_, end)| used_ns / (end.cpus * self.elapsed_ns() as f64)).filter(|used| used.is_finite());
        let periods = quota.map_or(0, |(begin, end)| end.periods.saturating_sub(begin.periods));
        let stopped = quota.map(|(begin, end)| end.throttled.saturating_sub(begin.throttled).min(periods));
        let stopped = stopped.filter(|_| periods > 0).map(|stopped| stopped as f64 / periods as f64);
        let no_limit = "no control group that can be seen limits its CPU time";
        let why = if quota.is_some() { "it did not run in any period of its limit" } else { no_limit };
        figures.found(names::SERVER_QUOTA, quota.map(|(_, end)| end.cpus), (1, Origin::Counted), no_limit);
        figures.found(names::SERVER_QUOTA_USED, used, (2, Origin::Timed), no_limit);
        figures.found(names::SERVER_THROTTLED, stopped, (periods, Origin::Counted), why);
    }

    fn memory_figures(&self, figures: &mut Figures) {
        let (begin, end, elapsed_ns) = (&self.begin.memory, &self.end.memory, self.elapsed_ns() as f64);
        let stalled = end.stalled_us.zip(begin.stalled_us).map(|(now, then)| now.saturating_sub(then) as f64 * 1e3);
        let stalled = stalled.map(|ns| (ns / elapsed_ns).min(1.0));
        let no_group = "the server has no control group of its own, or the kernel counts no pressure in it";
        figures.found(names::SERVER_MEMORY_STALLED, stalled, (1, Origin::Timed), no_group);
        let no_limit = "no control group that can be seen limits its memory";
        figures.rate(names::SERVER_MEMORY_LIMIT_HITS, end.hits.zip(begin.hits), elapsed_ns / 1e9, no_limit);
        let killed = end.killed.zip(begin.killed).map(|(now, then)| now.saturating_sub(then));
        let n = killed.unwrap_or(0);
        figures.found(names::SERVER_KILLED, killed.map(|killed| killed as f64), (n, Origin::Counted), no_limit);
    }

    fn network_figures(&self, figures: &mut Figures) {
        let elapsed_s = self.elapsed_ns() as f64 / 1e9;
        let (begin, end) = (&self.begin.network, &self.end.network);
        for name in network::rates() {
            let counts = end.counts.get(name).copied().zip(begin.counts.get(name).copied());
            figures.rate(name, counts, elapsed_s, "the kernel does not show this counter in /proc/net");
        }
        for (name, counter) in [
            (names::TCP_LISTEN_OVERFLOWS_BEFORE, names::TCP_LISTEN_OVERFLOWS),
            (names::NET_CONNTRACK_DROPS_BEFORE, names::NET_CONNTRACK_DROPS),
        ] {
            if let Some(count) = begin.grown(&self.network_before, counter) {
                figures.measured(name, count as f64, count, Origin::Counted);
            }
        }
        let entries = end.tracked.unwrap_or(0);
        let used = end.tracked.and(network::conntrack_limit());
        let used = used.map(|most| entries as f64 / most as f64);
        figures.found(names::NET_CONNTRACK_USED, used, (entries, Origin::Counted), "the kernel tracks no connections");
        let links = end.links.len() as u64;
        let no_speed = "no network device here says how fast it is";
        figures.found(names::NET_LINK_USED, self.busiest_link_ratio(), (links, Origin::Counted), no_speed);
        let Samples { queue_readings: readings, queue_limit, queue_max, .. } = self.samples;
        let seen = self.samples.state_readings;
        let sums = [
            (names::SERVER_UNREAD, self.samples.unread_sum),
            (names::SERVER_UNACKNOWLEDGED, self.samples.unacknowledged_sum),
        ];
        for (name, sum) in sums {
            let mean = (seen > 0).then(|| sum as f64 / seen as f64);
            figures.found(name, mean, (seen, Origin::Sampled), &self.why_no_sockets());
        }
        let longest = (readings > 0).then_some(queue_max.into());
        figures.found(names::ACCEPT_QUEUE_MAX, longest, (readings, Origin::Sampled), &self.why_no_sockets());
        let limit = (queue_limit > 0).then_some(queue_limit.into());
        let no_limit = "the kernel reported no limit of the listener's queue";
        figures.found(names::ACCEPT_QUEUE_LIMIT, limit, (readings, Origin::Counted), no_limit);
    }

    /// For each device, the larger of both directions divided by its speed; the maximum over the devices.
    fn busiest_link_ratio(&self) -> Option<f64> {
        let elapsed_s = self.elapsed_ns() as f64 / 1e9;
        let (begin, end) = (&self.begin.network.links, &self.end.network.links);
        let of_link = |link: &NetworkDevice| {
            let before = begin.iter().find(|before| before.name == link.name)?;
            let received = link.received.saturating_sub(before.received);
            let sent = link.sent.saturating_sub(before.sent);
            Some(received.max(sent) as f64 * 8.0 / elapsed_s / link.speed as f64)
        };
        end.iter().filter_map(of_link).filter(|share| share.is_finite()).max_by(f64::total_cmp)
    }

    fn observer_figures(&self, figures: &mut Figures) {
        let cpus = self.observer_cpu_ns() as f64 / self.elapsed_ns() as f64;
        figures.measured(names::OBSERVER_CPUS, cpus, 2 + self.samples.readings, Origin::Timed);
        let each_us = self.samples.cpu_ns as f64 / 1e3 / self.samples.readings as f64;
        figures.measured(names::OBSERVER_READING, each_us, self.samples.readings, Origin::Timed);
    }

    fn connection_states(&self) -> BTreeMap<String, Figure> {
        let readings = self.samples.state_readings;
        let states = STATES.iter().zip(self.samples.state_sums);
        // States without a name in the kernel are shown only if they occur.
        let shown = states.filter(|(name, sum)| **name != "unknown" || *sum > 0);
        shown
            .map(|(name, sum)| {
                let figure = match readings {
                    0 => Figure::not_measured("connections", self.why_no_sockets()),
                    _ => Figure::new(sum as f64 / readings as f64, "connections", readings, Origin::Sampled),
                };
                (name.to_string(), figure)
            })
            .collect()
    }

    pub(crate) fn why_no_sockets(&self) -> String {
        self.missing
            .sockets
            .clone()
            .or_else(|| self.samples.socket_error.clone())
            .unwrap_or_else(|| "the window was too short for a reading".into())
    }
}
