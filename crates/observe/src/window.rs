//! A window between two edges, and the figures that follow from it.

mod doubts;
mod neighbours;

use crate::group::{GroupCounters, GroupSize, clock_ticks_per_sec};
use crate::machine::{CpuUse, MachineReading};
use crate::network::{Link, NetworkReading};
use crate::sampler::Samples;
use crate::sock_diag::STATES;
use neighbours::Neighbours;
use record::Outside;
use record::doubt::Doubt;
use record::figure::{Figure, Figures, Origin};
use record::names;
use std::collections::BTreeMap;

const SHORTER_THAN_A_TICK: &str = "the window was shorter than a tick of the kernel's clock";

/// Readings at one end of a window.
#[derive(Debug, Clone, Default)]
pub struct Edge {
    /// When the group's CPU clocks were read.
    pub at_ns: u64,
    /// The group's totals.
    pub group: GroupCounters,
    /// The machine's CPUs.
    pub machine: MachineReading,
    /// The namespace's counters.
    pub network: NetworkReading,
    /// Every process's CPU clock.
    pub clocks: BTreeMap<u32, u64>,
    /// The load generator's CPU clock; `None` where it is not on this machine.
    pub client_cpu_ns: Option<u64>,
    /// CPU time of the watcher's thread.
    pub watcher_cpu_ns: u64,
    /// CPU time of taking this edge's readings.
    pub edge_cpu_ns: u64,
}

/// Why whole kinds of figures have no value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingReasons {
    /// Why the group has no processes.
    pub group: Option<String>,
    /// Why the sockets of the port cannot be read.
    pub sockets: Option<String>,
    /// Threads were left out because there are too many.
    pub is_cut: bool,
}

/// What was read between [`window_begins`](crate::Observer::window_begins) and
/// [`window_ends`](crate::Observer::window_ends).
#[derive(Debug, Clone)]
pub struct Window {
    pub(crate) begin: Edge,
    pub(crate) end: Edge,
    /// Counters at the end of the window before, or at the start.
    pub(crate) network_before: NetworkReading,
    pub(crate) samples: Samples,
    pub(crate) busiest_thread_ns: Option<u64>,
    pub(crate) size: GroupSize,
    /// Pages of the members that no file and no shared memory backs.
    pub(crate) anonymous_pages: u64,
    pub(crate) members: Vec<u32>,
    /// Established connections of the group to other servers, where they could be read.
    pub(crate) outgoing: Option<u64>,
    /// Open descriptors and limit of the member that is nearest to it.
    pub(crate) descriptors_used: Option<(u64, u64)>,
    pub(crate) server_cpus: Vec<usize>,
    pub(crate) client_pid: u32,
    pub(crate) has_group: bool,
    pub(crate) missing: MissingReasons,
    /// Parent and program of the processes alive at the end.
    pub(crate) commands: BTreeMap<u32, (u32, Outside)>,
}

/// What is handed to the run: figures by name ([`record::names`]), connection states, doubts.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// `server.*`, `machine.*`, `tcp.*`, `net.*`, `observer.*`.
    pub figures: Figures,
    /// Mean number of sockets of the port in each TCP state.
    pub connection_states: BTreeMap<String, Figure>,
    /// Reasons not to trust the figures.
    pub doubts: Vec<Doubt>,
}

impl Window {
    /// Length of the window by the clock that was read beside the group's CPU time, nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.end.at_ns.saturating_sub(self.begin.at_ns)
    }

    /// CPU time of the group in the window, nanoseconds: its control group's account where that is larger (processes
    /// without a waiting parent that ended between two readings), else the sum of its processes' clocks.
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

    /// CPU time that watching cost in the window, nanoseconds: the thread's, and that of the edges.
    pub(crate) fn observer_cpu_ns(&self) -> u64 {
        self.end.watcher_cpu_ns.saturating_sub(self.begin.watcher_cpu_ns)
            + self.end.edge_cpu_ns
            + self.begin.edge_cpu_ns
    }

    pub(crate) fn machine_use(&self) -> CpuUse {
        CpuUse::between(&self.begin.machine, &self.end.machine, |_| true)
    }

    pub(crate) fn server_cpus_use(&self) -> CpuUse {
        let is_servers = |cpu| self.server_cpus.is_empty() || self.server_cpus.contains(&cpu);
        CpuUse::between(&self.begin.machine, &self.end.machine, is_servers)
    }

    /// Why the group's figures have no value, if they have none.
    pub(crate) fn why_no_group(&self) -> Option<String> {
        if !self.members.is_empty() || self.by_clocks_ns() > 0 {
            return None;
        }
        let why = self.missing.group.clone();
        Some(why.unwrap_or_else(|| "no process of the server was alive at the end of the window".into()))
    }

    /// The scheduler's accounts of threads are all zero on kernels that do not keep them.
    pub(crate) fn has_accounts(&self) -> bool {
        self.busiest_thread_ns.is_some() && (self.end.group.switches > 0 || self.by_clocks_ns() < 50_000_000)
    }

    /// The figures of the window, with the costs divided by the requests that were completed in it.
    pub fn observation(&self, completed_requests: u64) -> Observation {
        let mut figures = Figures::default();
        self.server_figures(&mut figures, completed_requests);
        self.machine_figures(&mut figures, completed_requests);
        self.softirq_figures(&mut figures);
        self.network_figures(&mut figures);
        self.observer_figures(&mut figures);
        Observation { figures, connection_states: self.connection_states(), doubts: doubts::of(self) }
    }

    fn server_figures(&self, figures: &mut Figures, requests: u64) {
        let why = self.why_no_group();
        let mut set = |name: &str, unit: &str, figure: Option<Figure>| {
            let figure = match (&why, figure) {
                (Some(why), _) => Figure::not_measured(unit, why.clone()),
                (None, Some(figure)) => figure,
                (None, None) => Figure::not_measured(unit, "this kernel keeps no accounts of threads (schedstat)"),
            };
            figures.set(name, figure);
        };
        let per_request = |value: f64, unit, origin| Some(Figure::new(value / requests as f64, unit, requests, origin));
        let (elapsed_ns, readings) = (self.elapsed_ns() as f64, 2 + self.samples.group_readings);
        let (begin, end) = (&self.begin.group, &self.end.group);

        let cpu_ns = self.server_cpu_ns() as f64;
        set(names::SERVER_CPU, "us", per_request(cpu_ns / 1e3, "us", Origin::Timed));
        let (user, system) = (end.user_ticks - begin.user_ticks, end.system_ticks - begin.system_ticks);
        // 0 of 0 ticks: the group used less than a tick, and Figure turns the NaN into "not measured".
        let user_share = user as f64 / (user + system) as f64;
        // The division rests on the ticks, however many requests there were.
        let divided =
            |share: f64| Figure::new(cpu_ns * share / 1e3 / requests as f64, "us", user + system, Origin::Sampled);
        set(names::SERVER_CPU_USER, "us", Some(divided(user_share)));
        set(names::SERVER_CPU_SYSTEM, "us", Some(divided(1.0 - user_share)));
        set(names::SERVER_CPUS_USED, "CPUs", Some(Figure::new(cpu_ns / elapsed_ns, "CPUs", readings, Origin::Timed)));
        let accounts = self.has_accounts();
        let busiest = self.busiest_thread_ns.filter(|_| accounts);
        let busiest = busiest.map(|ns| Figure::new(ns as f64 / elapsed_ns, "CPUs", readings, Origin::Timed));
        set(names::SERVER_BUSIEST_THREAD, "CPUs", busiest);
        let waited_us = (end.wait_ns - begin.wait_ns) as f64 / 1e3;
        set(names::SERVER_RUN_QUEUE, "us", per_request(waited_us, "us", Origin::Timed).filter(|_| accounts));
        let switches = (end.switches - begin.switches) as f64;
        set(names::SERVER_SWITCHES, "count", per_request(switches, "count", Origin::Counted).filter(|_| accounts));
        let faults = end.major_faults - begin.major_faults;
        let faults_per_sec = Figure::new(faults as f64 * 1e9 / elapsed_ns, "1/s", faults, Origin::Counted);
        set(names::SERVER_MAJOR_FAULTS, "1/s", Some(faults_per_sec));
        let pages = |count: u64| {
            let bytes = count as f64 * rustix::param::page_size() as f64;
            Some(Figure::new(bytes, "bytes", self.size.processes, Origin::Counted))
        };
        set(names::SERVER_MEMORY, "bytes", pages(self.size.resident_pages));
        set(names::SERVER_ANONYMOUS_MEMORY, "bytes", pages(self.anonymous_pages));
        self.wait_figures(&mut set);
        let counted = |count: u64| Some(Figure::new(count as f64, "count", 1, Origin::Counted));
        set(names::SERVER_PROCESSES, "count", counted(self.size.processes));
        set(names::SERVER_THREADS, "count", counted(self.size.threads));
    }

    /// Where the server was seen waiting.
    fn wait_figures(&self, set: &mut impl FnMut(&str, &str, Option<Figure>)) {
        let waits = &self.samples.waits;
        let seen = waits.select_or_poll + waits.scalable;
        let sampled = |value: f64, unit: &str, n: u64| match n {
            0 => Figure::not_measured(unit, waits.why_none()),
            n => Figure::new(value, unit, n, Origin::Sampled),
        };
        let share = waits.select_or_poll as f64 / seen as f64;
        set(names::SERVER_SELECT_WAITS, "ratio", Some(sampled(share, "ratio", seen)));
        let set_size = sampled(waits.largest_set as f64, "descriptors", waits.select_or_poll);
        set(names::SERVER_SELECT_SET, "descriptors", Some(set_size));
        let stalls = &waits.stalls;
        let counts = [
            (names::SERVER_LOCK_WAITS, stalls.locks),
            (names::SERVER_FILE_WAITS, stalls.files),
            (names::SERVER_EVENT_WAITS, stalls.events),
        ];
        for (name, count) in counts {
            let figure = match (stalls.looks, &waits.error) {
                (0, Some(why)) => Figure::not_measured("ratio", why.clone()),
                (0, None) => Figure::not_measured("ratio", "the window was too short for a look at the threads"),
                (looks, _) => Figure::new(count as f64 / looks as f64, "ratio", looks, Origin::Sampled),
            };
            set(name, "ratio", Some(figure));
        }
        let descriptors = match self.descriptors_used {
            Some((used, limit)) => Figure::new(used as f64 / limit as f64, "ratio", used, Origin::Counted),
            None => Figure::not_measured("ratio", "/proc/PID/fd may be read by root or the server's own user only"),
        };
        set(names::SERVER_DESCRIPTORS, "ratio", Some(descriptors));
        let outgoing = match self.outgoing {
            Some(count) => Figure::new(count as f64, "connections", 1, Origin::Counted),
            None => {
                Figure::not_measured("connections", "/proc/PID/fd may be read by root or the server's own user only")
            }
        };
        set(names::SERVER_OUTGOING, "connections", Some(outgoing));
    }

    /// Where receive processing lands: the CPU of the server's with the most softirq time, and the least busy one.
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
        let mut set = |name: &str, value: Option<f64>, n: u64, origin| match value {
            Some(value) => figures.measured(name, value, n, origin),
            None => figures.not_measured(name, SHORTER_THAN_A_TICK),
        };
        let ticks = most.map_or(0, |most| most.times.softirq);
        set(names::SERVER_SOFTIRQ_CPU_BUSY, most.and_then(CpuUse::busy_cpus), 2, Origin::Timed);
        set(names::SERVER_SOFTIRQ_CPU, most.and_then(|most| most.share(ticks)), ticks, Origin::Sampled);
        let concentration = (all > 0).then(|| ticks as f64 / all as f64);
        set(names::SERVER_SOFTIRQ_CONCENTRATION, concentration, all, Origin::Sampled);
        set(names::SERVER_IDLEST_CPU_BUSY, idlest, 2, Origin::Timed);
    }

    fn machine_figures(&self, figures: &mut Figures, requests: u64) {
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
            match machine.share(ticks) {
                Some(share) => figures.measured(name, share, total, Origin::Sampled),
                None => figures.not_measured(name, SHORTER_THAN_A_TICK),
            }
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
        figures.measured(names::SERVER_SOFTIRQ, softirq_us / requests as f64, ticks, Origin::Sampled);
        // Softirq that interrupts a thread is charged to that thread, unless the kernel accounts for it apart
        // (CONFIG_IRQ_TIME_ACCOUNTING). Either way the CPUs were busy for the group's time and what is beside it.
        if let Some(busy) = servers.busy_cpus().filter(|_| self.has_group) {
            let room_us = (busy * self.elapsed_ns() as f64 - self.server_cpu_ns() as f64) / 1e3;
            let beside_us = softirq_us.min(room_us.max(0.0));
            figures.measured(names::SERVER_SOFTIRQ_BESIDE, beside_us / requests as f64, ticks, Origin::Sampled);
        }
        match servers.busy_cpus() {
            Some(busy) => figures.measured(names::SERVER_CPU_BUSY, busy / servers.cpus as f64, 2, Origin::Timed),
            None => figures.not_measured(names::SERVER_CPU_BUSY, "none of the server's CPUs is in /proc/stat"),
        }
        let others = Neighbours::of(self);
        match &others {
            Some(others) => {
                figures.measured(names::MACHINE_OTHERS, others.cpus, others.processes as u64, Origin::Timed);
            }
            None => figures.not_measured(names::MACHINE_OTHERS, SHORTER_THAN_A_TICK),
        }
        match others.zip(servers.busy_cpus()).filter(|_| self.has_group) {
            Some((others, busy)) => {
                let own = self.server_cpu_ns() as f64 / self.elapsed_ns() as f64;
                let taken = others.cpus.min(busy - own).max(0.0) / servers.cpus as f64;
                figures.measured(names::SERVER_CPUS_TAKEN, taken, others.processes as u64, Origin::Timed);
            }
            None => figures.not_measured(names::SERVER_CPUS_TAKEN, "the server's own CPU time was not measured"),
        }
    }

    fn network_figures(&self, figures: &mut Figures) {
        let elapsed_s = self.elapsed_ns() as f64 / 1e9;
        let mut set =
            |name: &str, of: fn(&NetworkReading) -> Option<u64>| match (of(&self.begin.network), of(&self.end.network))
            {
                (Some(begin), Some(end)) => {
                    let count = end.saturating_sub(begin);
                    figures.measured(name, count as f64 / elapsed_s, count, Origin::Counted);
                }
                _ => figures.not_measured(name, "the kernel does not show this counter in /proc/net"),
            };
        set(names::TCP_IN, |net| net.segments_in);
        set(names::TCP_OUT, |net| net.segments_out);
        set(names::TCP_RETRANSMITS, |net| net.retransmits);
        set(names::TCP_RESETS_OUT, |net| net.resets_out);
        set(names::TCP_LISTEN_OVERFLOWS, |net| net.listen_overflows);
        set(names::TCP_LISTEN_DROPS, |net| net.listen_drops);
        set(names::NET_PACKETS_IN, |net| net.packets.map(|packets| packets.received));
        set(names::NET_PACKETS_OUT, |net| net.packets.map(|packets| packets.sent));
        set(names::NET_BACKLOG_DROPS, |net| net.backlog_drops);
        set(names::TIME_WAIT_OVERFLOWS, |net| net.time_wait_overflows);
        if let (Some(before), Some(begin)) = (self.network_before.listen_overflows, self.begin.network.listen_overflows)
        {
            let count = begin.saturating_sub(before);
            figures.measured(names::TCP_LISTEN_OVERFLOWS_BEFORE, count as f64, count, Origin::Counted);
        }
        let links = self.end.network.links.len() as u64;
        match self.busiest_link_ratio() {
            Some(share) => figures.measured(names::NET_LINK_USED, share, links, Origin::Counted),
            None => figures.not_measured(names::NET_LINK_USED, "no network device here says how fast it is"),
        }
        let (queue_max, readings) = (f64::from(self.samples.queue_max), self.samples.queue_readings);
        match readings {
            0 => figures.not_measured(names::ACCEPT_QUEUE_MAX, &self.why_no_sockets()),
            _ => figures.measured(names::ACCEPT_QUEUE_MAX, queue_max, readings, Origin::Sampled),
        }
        match self.samples.queue_limit {
            0 => {
                figures.not_measured(names::ACCEPT_QUEUE_LIMIT, "the kernel reported no limit of the listener's queue")
            }
            limit => figures.measured(names::ACCEPT_QUEUE_LIMIT, limit.into(), readings, Origin::Counted),
        }
    }

    /// The larger of both directions of each device over its speed; the largest of them.
    fn busiest_link_ratio(&self) -> Option<f64> {
        let elapsed_s = self.elapsed_ns() as f64 / 1e9;
        let (begin, end) = (&self.begin.network.links, &self.end.network.links);
        let of_link = |link: &Link| {
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
        // What the kernel does not name is shown only if it occurs.
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
