use crate::account::Accountant;
use crate::backends::Backends;
use crate::bpf::Refusal;
use crate::cpu_clock;
use crate::error::ObserveError;
use crate::facts;
use crate::group::{Group, ServerGroup, WatchTarget, anonymous_pages, proportional_memory};
use crate::limits::{MemoryLimit, allowed_cpus, most_descriptors, narrowest_quota, read_quota};
use crate::listening::roots_on_port;
use crate::machine::MachineReader;
use crate::network::{NetworkReader, NetworkReading};
use crate::outgoing;
use crate::port_sockets::PortReader;
use crate::proc_text::MachineStat;
use crate::processes::{ProcessTable, read_stat};
use crate::profile::names::SymbolNames;
use crate::sampler::{SamplerShare, StateSampler};
use crate::watch::WatchError;
use crate::window::{BesideProcesses, MissingReasons, ObservedWindow, WindowEdge};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// With a shorter interval, the watcher would mostly measure itself.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// Raises the calling thread's priority while it exists, if permitted. With thousands of runnable server processes,
/// readings that belong together would otherwise take longer than the window.
struct FirstInLine {
    before: i32,
}

impl FirstInLine {
    fn begin() -> Self {
        // SAFETY: no memory is passed; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        set_niceness(-20);
        FirstInLine { before }
    }
}

impl Drop for FirstInLine {
    fn drop(&mut self) {
        set_niceness(self.before);
    }
}

fn set_niceness(niceness: i32) {
    // SAFETY: no memory is passed; 0 is the calling thread. Without the permission nothing changes.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
}

/// Watches a server until it is dropped.
#[derive(Debug)]
pub struct Observer {
    target: WatchTarget,
    shared: Arc<SamplerShare>,
    thread: Option<JoinHandle<()>>,
    machine: MachineReader,
    network: NetworkReader,
    table: ProcessTable,
    missing: MissingReasons,
    socket_method: Option<&'static str>,
    opened: Option<WindowEdge>,
    /// Counters at the end of the previous window, or at the start.
    network_before: NetworkReading,
    /// Most frequent remote address of the server's own connections, when there last were any.
    backend: Option<String>,
    backends: Backends,
    quota_folder: Option<PathBuf>,
    memory: MemoryLimit,
    beside: Option<ServerGroup>,
    account: Result<Accountant, String>,
    names: SymbolNames<'static>,
}

impl Observer {
    /// Starts watching. The thread takes a reading every `interval`, or less often if readings are expensive.
    ///
    /// Unreadable counters are not an error: their figures have the reason. A group that does not exist yet (no
    /// process listens) is added when it appears.
    pub fn start(target: WatchTarget, interval: Duration) -> Result<Self, ObserveError> {
        let machine = MachineReader::open()?;
        let mut network = NetworkReader::open(target.netns_pid);
        let mut missing = MissingReasons::default();
        let reader = match PortReader::open(target.netns_pid, target.port) {
            Ok(reader) => Some(reader),
            Err(error) => {
                missing.sockets = Some(error.to_string());
                None
            }
        };
        let (roots, why) = find_roots(&target);
        missing.group = why;
        let cgroup = roots.first().and_then(|root| facts::own_cgroup_folder(*root));
        let shared = SamplerShare::new(ServerGroup::new(roots, cgroup));
        let socket_method = reader.as_ref().map(PortReader::method);
        let sampler = StateSampler {
            reader,
            port: target.port,
            interval: interval.max(SHORTEST_INTERVAL),
            avoid_cpus: target.server_cpus.clone(),
            follows_port: target.group != Group::None,
        };
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("observer".into())
            .spawn(move || sampler.run(&for_thread))
            .map_err(ObserveError::Thread)?;
        let network_before = network.read();
        let mut observer = Observer {
            target,
            shared,
            thread: Some(thread),
            machine,
            network,
            table: ProcessTable::default(),
            missing,
            socket_method,
            opened: None,
            network_before,
            backend: None,
            backends: Backends::default(),
            quota_folder: None,
            memory: MemoryLimit::default(),
            beside: None,
            account: Err("this is not the server's machine".into()),
            names: SymbolNames::new(None),
        };
        if observer.target.group != Group::None {
            observer.account = Accountant::start(observer.target.port).map_err(why_not_kept);
        }
        observer.table.scan();
        observer.shared.group().admit(&observer.table);
        Ok(observer)
    }

    /// Sets the processes that run with the server on purpose, including descendants: their CPU time and memory are
    /// separate figures, not other work. Empty: no such processes.
    pub fn set_beside(&mut self, roots: &[u32]) {
        self.beside = (!roots.is_empty()).then(|| ServerGroup::new(roots.iter().copied(), None));
    }

    /// A load begins, its window comes later. Without this call, nothing is done that would stop the server's program
    /// for a moment.
    pub fn load_begins(&self) {
        self.shared.load_begins();
    }

    /// Begins a window: returns when its first readings are taken. Restarts an open window.
    pub fn window_begins(&mut self) -> Result<(), ObserveError> {
        let _first = FirstInLine::begin();
        let own_before_ns = cpu_clock::of_this_thread();
        self.table.scan();
        let mut edge =
            WindowEdge { clocks: self.table.cpu_clocks(), network: self.network.read(), ..WindowEdge::default() };
        self.shared.begin_window();
        let members;
        {
            let mut group = self.shared.group();
            group.admit(&self.table);
            edge.at_ns = group.read();
            group.begin_window();
            edge.group = group.counters();
            members = group.pids();
        }
        self.quota_folder = narrowest_quota(&members);
        edge.quota = self.quota_folder.as_deref().and_then(read_quota);
        self.memory = MemoryLimit::for_pids(&members);
        edge.memory = self.memory.read();
        edge.machine = self.machine.read()?;
        if let Some(beside) = &mut self.beside {
            beside.admit(&self.table);
            edge.beside_at_ns = beside.read();
            edge.beside_cpu_ns = beside.counters().cpu_ns;
        }
        if let Ok(account) = &mut self.account
            && let Err(refusal) = account.begin(&self.shared.group().processes())
        {
            self.account = Err(why_not_kept(refusal));
        }
        self.read_own_side(&mut edge, own_before_ns);
        self.opened = Some(edge);
        Ok(())
    }

    /// Ends the window and returns its readings. Call it while the load still runs, because states and sizes are
    /// momentary.
    pub fn window_ends(&mut self) -> Result<ObservedWindow, ObserveError> {
        let begin = self.opened.take().ok_or(ObserveError::NoWindow)?;
        let first = FirstInLine::begin();
        let own_before_ns = cpu_clock::of_this_thread();
        // The order matters: the group's clocks, including those of processes that started in the window, determine
        // its length.
        self.table.scan();
        let at_ns = {
            let mut group = self.shared.group();
            group.admit(&self.table);
            group.read()
        };
        let machine = self.machine.read()?;
        let mut end = WindowEdge { at_ns, machine, network: self.network.read(), ..WindowEdge::default() };
        if let Some(beside) = &mut self.beside {
            beside.admit(&self.table);
            end.beside_at_ns = beside.read();
        }
        let (busiest_thread_ns, busiest_process_ns, size, members, busy_threads);
        {
            let group = self.shared.group();
            end.group = group.counters();
            busiest_thread_ns = group.busiest_thread_ns();
            busiest_process_ns = group.busiest_process_ns();
            size = group.size();
            members = group.pids();
            busy_threads = group.busy_threads();
            self.missing.is_cut = group.is_cut();
        }
        let beside = self.beside.as_mut().map(|beside| {
            end.beside_cpu_ns = beside.counters().cpu_ns;
            beside.pids()
        });
        end.clocks = self.table.cpu_clocks();
        drop(first);
        let processes = self.shared.group().processes();
        let mut account = match &mut self.account {
            Ok(account) => account.end(&processes, &self.table).map_err(why_not_kept),
            Err(why) => Err(why.clone()),
        };
        end.quota = self.quota_folder.as_deref().and_then(read_quota);
        end.memory = self.memory.read();
        self.read_own_side(&mut end, own_before_ns);
        if !members.is_empty() {
            self.missing.group = None;
        }
        let mut samples = self.shared.end_window();
        if let Ok(account) = &mut account {
            account.parked_readings = samples.parked.readings;
            account.lost += samples.parked.lost;
            account.parked = std::mem::take(&mut samples.parked).named(&mut self.names);
        }
        let called = account.iter().flat_map(|account| &account.backends).filter(|backend| !backend.is_own);
        let called: Vec<_> = called.filter_map(|backend| backend.address.parse().ok()).collect();
        let outgoing = outgoing::read(&members, self.target.port, &called);
        if let Some(remote) = outgoing.as_ref().and_then(|outgoing| outgoing.most.clone()) {
            self.backend = Some(remote);
        }
        if let Some(outgoing) = &outgoing {
            self.backends.find(&outgoing.backends, &self.table);
        }
        let mut backends = self.backends.processes(&self.table);
        backends.retain(|pid| members.binary_search(pid).is_err() && *pid != self.target.client_pid);
        let server_cpus = self.server_cpus(&busy_threads, &end.machine.stat);
        let network_before = std::mem::replace(&mut self.network_before, end.network.clone());
        Ok(ObservedWindow {
            network_before,
            outgoing: outgoing.map(|outgoing| outgoing.established),
            begin,
            end,
            samples,
            busiest_thread_ns,
            busiest_process_ns,
            size,
            anonymous_pages: anonymous_pages(&members),
            descriptors_used: most_descriptors(&members),
            backends,
            account,
            members,
            server_cpus,
            client_pid: self.target.client_pid,
            has_group: self.target.group != Group::None,
            beside: beside.map(|pids| BesideProcesses { memory: proportional_memory(&pids), pids }),
            missing: self.missing.clone(),
            commands: self.table.iter().map(|(pid, origin)| (pid, (origin.parent, origin.command.clone()))).collect(),
        })
    }

    /// The CPUs that the server was given, or else those that its threads may use; empty = all.
    fn server_cpus(&self, busy_threads: &[u32], machine: &MachineStat) -> Vec<usize> {
        if !self.target.server_cpus.is_empty() || self.target.group == Group::None {
            return self.target.server_cpus.clone();
        }
        let allowed = allowed_cpus(busy_threads).unwrap_or_default();
        if machine.cpus.iter().all(|(cpu, _)| allowed.contains(cpu)) { Vec::new() } else { allowed }
    }

    fn read_own_side(&self, edge: &mut WindowEdge, own_before_ns: u64) {
        edge.client_cpu_ns = cpu_clock::of_process(self.target.client_pid).ok();
        edge.watcher_cpu_ns = self.shared.thread_cpu_ns();
        edge.edge_cpu_ns = cpu_clock::of_this_thread() - own_before_ns;
    }

    /// Facts about the server by name. Texts are untrusted: escape them before printing.
    pub fn server_facts(&self) -> BTreeMap<String, String> {
        let members = self.shared.group().pids();
        let mut facts = facts::read(&self.target, &members, self.socket_method);
        if let Some(backend) = &self.backend {
            facts.insert("backend".into(), backend.clone());
        }
        facts
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The reason and the remedy in one sentence.
fn why_not_kept(refusal: Refusal) -> String {
    WatchError::from(refusal).to_string()
}

fn find_roots(target: &WatchTarget) -> (Vec<u32>, Option<String>) {
    match target.group {
        Group::None => (Vec::new(), Some("the server's processes are not on this machine, or were not named".into())),
        Group::Tree(root) => match read_stat(root) {
            Some(_) => (vec![root], None),
            None => (vec![root], Some(format!("there is no process {root}"))),
        },
        Group::ListeningOn(port) => roots_on_port(port, target.netns_pid),
    }
}
