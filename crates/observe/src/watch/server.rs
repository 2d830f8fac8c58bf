//! The unprivileged part of a watch: the server's processes, its listeners, scans of its sockets.

use crate::error::ObserveError;
use crate::facts;
use crate::group::{Group, GroupCounters, GroupSize, ProcessCpu, ServerGroup};
use crate::limits::LimitReader;
use crate::listening::roots_on_port;
use crate::network::{NetworkReader, NetworkReading};
use crate::port_sockets::PortReader;
use crate::processes::{Process, ProcessOrigin, ProcessTable};
use crate::sock_diag::{PortSockets, Scope, TcpSocket};
use record::names;
use record::watch::{ConnectionTotals, LimitTotals};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// How the server's processes are found.
#[derive(Debug, Clone)]
pub enum Roots {
    /// By a process or a port ([`Group`]).
    Of(Group),
    /// By a control group, with its current processes.
    ControlGroup(PathBuf, Vec<u32>),
}

#[derive(Debug)]
pub struct ServerReader {
    port: u16,
    netns_pid: Option<u32>,
    follows_port: bool,
    is_control_group: bool,
    group: ServerGroup,
    table: ProcessTable,
    sockets: PortReader,
    network: NetworkReader,
    network_at_start: NetworkReading,
    inodes: HashSet<u64>,
    drops: Drops,
    limits: LimitReader,
    /// Why the processes cannot be read.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct ServerReading {
    /// CPU time and other counters since the watch began.
    pub counters: GroupCounters,
    pub size: GroupSize,
    pub processes: Vec<ProcessCpu>,
    /// The accept queue, and drops since the watch began.
    pub connections: ConnectionTotals,
    pub time_wait_overflows: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Drops {
    is_begun: bool,
    counted: HashMap<u64, u32>,
    /// Drops at all listeners of the namespace, and those that the last call found at none of the port's listeners.
    of_all: u64,
    elsewhere: u64,
    sum: u64,
}

impl Drops {
    /// Adds the listeners' drops since the last call. The first call only sets the baseline.
    ///
    /// A listener also counts segments that it only deferred: with TCP_DEFER_ACCEPT, the last acknowledgement of
    /// every handshake. The namespace's count (`of_all`, read later) has only real drops, including those of other
    /// ports.
    pub fn add(&mut self, listeners: &[TcpSocket], of_all: Option<u64>) -> u64 {
        let now: HashMap<u64, u32> = listeners.iter().map(|listener| (listener.inode, listener.drops)).collect();
        let mut grown = 0;
        for (inode, drops) in &now {
            let before = match self.counted.get(inode) {
                Some(before) => *before,
                None if self.is_begun => 0,
                None => *drops,
            };
            grown += u64::from(drops.wrapping_sub(before));
        }
        if let Some(of_all) = of_all {
            let before = if self.is_begun { self.of_all } else { of_all };
            // The namespace's count may include drops that the listeners had not counted at the last call.
            let most = of_all.saturating_sub(before) + std::mem::take(&mut self.elsewhere);
            grown = grown.min(most);
            self.elsewhere = (most - grown).min(of_all.saturating_sub(before));
            self.of_all = of_all;
        }
        self.sum += grown;
        self.counted = now;
        self.is_begun = true;
        self.sum
    }
}

impl ServerReader {
    /// Opens everything; a port without a listener is not an error.
    pub fn open(port: u16, group: Roots, netns_pid: Option<u32>) -> Result<Self, ObserveError> {
        let sockets = PortReader::open(netns_pid, port)?;
        let mut side = ServerReader {
            port,
            netns_pid,
            follows_port: !matches!(group, Roots::Of(Group::Tree(_)) | Roots::ControlGroup(..)),
            is_control_group: matches!(group, Roots::ControlGroup(..)),
            group: ServerGroup::default(),
            table: ProcessTable::default(),
            sockets,
            network: NetworkReader::open(netns_pid),
            network_at_start: NetworkReading::default(),
            inodes: HashSet::new(),
            drops: Drops::default(),
            limits: LimitReader::open(),
            failure: None,
        };
        side.network_at_start = side.network.read();
        let (roots, cgroup) = match group {
            Roots::ControlGroup(folder, pids) => (pids, Some(folder)),
            Roots::Of(group) => {
                let roots = if let Group::Tree(pid) = group { vec![pid] } else { side.find_roots() };
                let cgroup = roots.first().and_then(|root| facts::own_cgroup_folder(*root));
                (roots, cgroup)
            }
        };
        side.group = ServerGroup::new(roots, cgroup);
        side.read_group(None);
        Ok(side)
    }

    fn read_group(&mut self, ended_ns: Option<u64>) {
        self.table.scan();
        self.group.admit(&self.table);
        self.group.read();
        ended_ns.into_iter().for_each(|sum_ns| self.group.add_ended(sum_ns));
    }

    fn find_roots(&mut self) -> Vec<u32> {
        let (roots, failure) = roots_on_port(self.port, self.netns_pid);
        self.failure = failure;
        roots
    }

    /// Starts counting now: events during calibration and attachment do not count.
    pub fn restart(&mut self, ended_ns: Option<u64>) {
        self.read_group(ended_ns);
        self.group.restart();
        self.group.begin_window();
        self.network_at_start = self.network.read();
    }

    /// Reads processes, listeners and counters, and follows the port to a restarted server. `ended_ns`: see
    /// [`ServerGroup::add_ended`].
    pub fn read(&mut self, ended_ns: Option<u64>) -> ServerReading {
        let listeners = self.sockets.read(self.port, Scope::Listeners);
        let network = self.network.read();
        let grown = |counter| network.grown(&self.network_at_start, counter);
        let mut reading =
            ServerReading { time_wait_overflows: grown(names::TIME_WAIT_OVERFLOWS), ..ServerReading::default() };
        let connections = &mut reading.connections;
        connections.listen_overflows = grown(names::TCP_LISTEN_OVERFLOWS);
        connections.listen_drops = grown(names::TCP_LISTEN_DROPS);
        connections.port_drops = self.drops.is_begun.then_some(self.drops.sum);
        if let Ok(sockets) = listeners {
            if self.sockets.knows_drops() {
                let of_all = network.counts.get(names::TCP_LISTEN_DROPS).copied();
                connections.port_drops = Some(self.drops.add(&sockets.listeners, of_all));
            }
            let inodes: HashSet<u64> = sockets.listeners.iter().map(|listener| listener.inode).collect();
            // A service manager may start a server for a socket that exists already.
            let is_without_server = !inodes.is_empty() && self.group.pids().is_empty();
            if self.follows_port && (inodes != self.inodes || is_without_server) {
                self.inodes = inodes;
                let roots = self.find_roots();
                self.group.add_roots(roots);
            }
            if let Some(listener) = fullest(&sockets.listeners) {
                connections.accept_queue = Some(listener.queue.into());
                // 0 means unknown.
                connections.accept_queue_limit = Some(listener.queue_limit.into()).filter(|limit| *limit > 0);
            }
        }
        self.read_group(ended_ns);
        reading.counters = self.group.counters();
        reading.size = self.group.size();
        reading.processes = self.group.by_process();
        reading
    }

    /// Limits of the server; call it after [`ServerReader::read`].
    pub fn limits(&mut self) -> LimitTotals {
        self.limits.read(&mut self.group)
    }

    pub fn scan(&mut self) -> std::io::Result<PortSockets> {
        self.sockets.read(self.port, Scope::AllStates)
    }

    pub fn pids(&self) -> Vec<u32> {
        self.group.pids()
    }

    pub fn table(&self) -> &ProcessTable {
        &self.table
    }

    pub fn processes(&self) -> Vec<Process> {
        self.group.processes()
    }

    /// Adds a process that reads the port's connections. Ignored if a control group is watched, which then defines
    /// the server.
    pub fn adopt(&mut self, process: Process, used_ns: u64) {
        if !self.is_control_group {
            self.group.adopt(process, used_ns);
        }
    }

    pub fn members(&self) -> Vec<(u32, &ProcessOrigin)> {
        self.pids().into_iter().filter_map(|pid| Some((pid, self.table.get(pid)?))).collect()
    }
}

/// The listener that will drop connections first: each has a queue with its own limit.
pub fn fullest(listeners: &[TcpSocket]) -> Option<&TcpSocket> {
    let is_fuller = |one: &&TcpSocket, other: &&TcpSocket| {
        let part_of = |of: &TcpSocket, limit: &TcpSocket| u64::from(of.queue) * u64::from(limit.queue_limit.max(1));
        part_of(one, other).cmp(&part_of(other, one)).then(other.queue_limit.cmp(&one.queue_limit))
    };
    listeners.iter().max_by(is_fuller)
}
