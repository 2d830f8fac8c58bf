//! The server's processes as one group, with counters that only grow.
//!
//! # CPU time of ended processes
//!
//! A process's CPU clock covers all its threads, ended ones included. When a process ends and its parent waits for it,
//! the kernel adds its whole CPU time to the parent's `cutime`/`cstime`. So the sum of *own clock and waited-for
//! children* over living processes does not change when one ends. Its growth is the group's CPU time, including
//! children that started and ended between two readings. CPU time of an ended child that the group has already counted
//! is kept as *owed* by its parent, so that the parent's growing `cutime` does not count it twice. Time after a child's
//! last reading is lost only if no process waits for the child (its parent ignores SIGCHLD, or ended first).

use crate::cpu_clock;
use crate::kept_file::KeptFile;
use crate::proc_text::{
    ProcessStat, ThreadAccount, parse_anonymous_pages, parse_cgroup_usage_us, parse_process_stat,
    parse_proportional_memory, parse_thread_account,
};
use crate::processes::{Process, ProcessTable, in_control_group, living_thread, read_stat};
use record::PlainText;
use record::watch::BusyThread;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

const MAX_KEPT_FILES: usize = 512;
/// A larger group is read only in part, and the figures report that.
const MAX_THREADS: usize = 100_000;

/// The processes of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A process and its descendants, and its session or control group if these contain only the server.
    Tree(u32),
    /// The process that listens on a port, and its descendants.
    ListeningOn(u16),
    /// The server is on another machine.
    None,
}

/// The server to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTarget {
    /// The server's port.
    pub port: u16,
    /// The processes of the server.
    pub group: Group,
    /// Sockets and network counters are read in this process's network namespace; `None` = that of the thread that
    /// starts the observer.
    pub netns_pid: Option<u32>,
    /// CPUs that the server may use; empty = all.
    pub server_cpus: Vec<usize>,
    /// The load generator's process, whose CPU time is not "other work"; 0 = it is not on this machine.
    pub client_pid: u32,
}

/// Resources used by the group since it was first observed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupCounters {
    /// CPU time by the scheduler, nanoseconds.
    pub cpu_ns: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// Time that threads waited for a CPU, nanoseconds.
    pub wait_ns: u64,
    /// Context switches (switched in).
    pub switches: u64,
    /// CPU time of the threads to which `wait_ns` and `switches` refer.
    pub accounted_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// CPU time that the control group accounts, microseconds; `None` without a separate one.
    pub cgroup_us: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupSize {
    pub processes: u64,
    pub threads: u64,
    /// Sum of resident pages; each process counts shared pages.
    pub resident_pages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCpu {
    pub process: Process,
    /// CPU time since the process was first observed, nanoseconds: its part of [`GroupCounters::cpu_ns`].
    pub cpu_ns: u64,
    /// Name of its program; untrusted text.
    pub name: PlainText,
}

#[derive(Debug)]
struct Thread {
    file: Option<KeptFile>,
    last: ThreadAccount,
    at_window_start_ns: u64,
}

impl Thread {
    fn in_window_ns(&self) -> u64 {
        self.last.run_ns.saturating_sub(self.at_window_start_ns)
    }
}

/// A thread with its process.
#[derive(Debug, Clone, Copy)]
pub struct ThreadId {
    pub pid: u32,
    pub tid: u32,
}

#[derive(Debug)]
pub struct Member {
    stat_file: Option<KeptFile>,
    parent: u32,
    last: ProcessStat,
    cpu_ns: u64,
    counted_ns: u64,
    at_window_start_ns: u64,
    threads: HashMap<u32, Thread>,
}

impl Member {
    /// A member of which only the numbers in `last` are known.
    pub fn new(parent: u32, last: ProcessStat) -> Self {
        Member {
            stat_file: None,
            parent,
            last,
            cpu_ns: 0,
            counted_ns: 0,
            at_window_start_ns: 0,
            threads: HashMap::new(),
        }
    }

    fn process(&self, pid: u32) -> Process {
        Process { pid, start_ticks: self.last.start_ticks }
    }

    fn in_window_ns(&self) -> u64 {
        self.counted_ns.saturating_sub(self.at_window_start_ns)
    }
}

/// CPU time of ended members, summed by kernel programs ([`ServerGroup::add_ended`]).
#[derive(Debug, Default)]
struct EndedMembers {
    is_summed: bool,
    /// CPU time of ended members by their clocks at the last reading.
    seen_ns: u64,
    /// Maximum excess of the kernel's sum over `seen_ns`. The kernel adds a process shortly after its end.
    unseen_ns: u64,
}

#[derive(Debug, Default)]
pub struct ServerGroup {
    pub members: BTreeMap<u32, Member>,
    counters: GroupCounters,
    /// CPU time of ended children that was already counted and will appear again in the children time of this parent.
    owed_ns: HashMap<u32, u64>,
    owed_faults: HashMap<u32, u64>,
    ended: EndedMembers,
    /// Processes to be admitted, with the CPU time that they have used for the server.
    adopted: HashMap<Process, u64>,
    roots: HashSet<Process>,
    sessions: HashSet<Process>,
    cgroup: Option<PathBuf>,
    cgroup_cpu: Option<KeptFile>,
    busiest_ended_ns: u64,
    busiest_process_ended_ns: u64,
    kept_files: usize,
    buffer: Vec<u8>,
    ticks_per_sec: u64,
    has_accounts: bool,
    is_cut: bool,
    watched_since_ticks: Option<u64>,
}

impl ServerGroup {
    /// A group that grows from `roots` and, if given, a control group.
    pub fn new(roots: impl IntoIterator<Item = u32>, cgroup: Option<PathBuf>) -> Self {
        let cgroup_cpu = cgroup.as_ref().and_then(|path| KeptFile::open(path.join("cpu.stat")).ok());
        let mut group = ServerGroup {
            cgroup,
            cgroup_cpu,
            ticks_per_sec: clock_ticks_per_sec(),
            has_accounts: true,
            ..ServerGroup::default()
        };
        group.add_roots(roots);
        group
    }

    /// Adds processes whose descendants belong to the group.
    pub fn add_roots(&mut self, roots: impl IntoIterator<Item = u32>) {
        for pid in roots {
            let Some(stat) = read_stat(pid) else { continue };
            let root = Process { pid, start_ticks: stat.start_ticks };
            // A session led by the root belongs to the server; another one belongs to a shell.
            if stat.session == pid {
                self.sessions.insert(root);
            }
            self.roots.insert(root);
        }
    }

    /// Adds a process that was observed to work for the server. `used_ns`: CPU time that it has used for the server.
    pub fn adopt(&mut self, process: Process, used_ns: u64) {
        if self.members.get(&process.pid).is_none_or(|member| member.process(process.pid) != process) {
            self.adopted.insert(process, used_ns);
        }
    }

    /// Sets the kernel's sum of the CPU time of ended members since their start. It is exact even if no process waits
    /// for them, and includes members never observed. From the first call on, children times of parents no longer
    /// count.
    pub fn add_ended(&mut self, sum_ns: u64) {
        self.ended.is_summed = true;
        let grown_ns = sum_ns.saturating_sub(self.ended.seen_ns).saturating_sub(self.ended.unseen_ns);
        self.ended.unseen_ns += grown_ns;
        self.counters.cpu_ns += grown_ns;
    }

    pub fn pids(&self) -> Vec<u32> {
        self.members.keys().copied().collect()
    }

    pub fn processes(&self) -> Vec<Process> {
        self.members.iter().map(|(pid, member)| member.process(*pid)).collect()
    }

    pub fn threads(&self) -> Vec<ThreadId> {
        let threads = |(pid, member): (&u32, &Member)| -> Vec<ThreadId> {
            member.threads.keys().map(|tid| ThreadId { pid: *pid, tid: *tid }).collect()
        };
        self.members.iter().flat_map(threads).collect()
    }

    /// Adds processes that appeared since the last call. All CPU time counts for processes that started after the
    /// first call, and only future time for older ones.
    pub fn admit(&mut self, table: &ProcessTable) {
        // Start times are rounded down to a tick, so a process that started in the tick of the first call counts as
        // older.
        let watched_since_ticks = *self.watched_since_ticks.get_or_insert_with(|| ticks_since_boot() + 1);
        let in_cgroup: HashSet<u32> = self.cgroup_processes().unwrap_or_default().into_iter().collect();
        let sessions = self.living_sessions(table);
        self.adopted.retain(|process, _| table.has(*process));
        loop {
            let is_member = |process: &Process| {
                self.members.get(&process.pid).is_some_and(|member| member.process(process.pid) == *process)
            };
            let is_named = |process: &Process| self.roots.contains(process) || self.adopted.contains_key(process);
            let newcomers: Vec<u32> = table
                .iter()
                .filter(|(pid, origin)| {
                    !self.members.contains_key(pid)
                        && (is_named(&Process { pid: *pid, start_ticks: origin.start_ticks })
                            || table.parent(origin).is_some_and(|parent| is_member(&parent))
                            || sessions.contains(&origin.session)
                            || in_cgroup.contains(pid))
                })
                .map(|(pid, _)| pid)
                .collect();
            if newcomers.is_empty() {
                return;
            }
            let before = self.members.len();
            for pid in newcomers {
                self.admit_one(pid, table, watched_since_ticks);
            }
            // All of them have ended meanwhile.
            if self.members.len() == before {
                return;
            }
        }
    }

    /// A session without processes is over, as is one whose id another process got.
    fn living_sessions(&mut self, table: &ProcessTable) -> HashSet<u32> {
        let used: HashSet<u32> = table.iter().map(|(_, origin)| origin.session).collect();
        let is_anothers = |leader: &Process| table.get(leader.pid).is_some() && !table.has(*leader);
        self.sessions.retain(|leader| used.contains(&leader.pid) && !is_anothers(leader));
        self.sessions.iter().map(|leader| leader.pid).collect()
    }

    fn admit_one(&mut self, pid: u32, table: &ProcessTable, watched_since_ticks: u64) {
        let Ok(file) = KeptFile::open(format!("/proc/{pid}/stat")) else { return };
        let Some(stat) = file.read(&mut self.buffer).ok().and_then(parse_process_stat) else { return };
        if !table.has(Process { pid, start_ticks: stat.start_ticks }) {
            return;
        }
        let Ok(cpu_ns) = cpu_clock::of_process(pid) else { return };
        let keeps = self.kept_files < MAX_KEPT_FILES;
        self.kept_files += usize::from(keeps);
        let is_born_under_watch = stat.start_ticks >= watched_since_ticks;
        if is_born_under_watch {
            self.counters.cpu_ns += cpu_ns;
            self.counters.user_ticks += stat.user_ticks;
            self.counters.system_ticks += stat.system_ticks;
            self.counters.minor_faults += stat.minor_faults;
            self.counters.major_faults += stat.major_faults;
            self.count_children(pid, &ProcessStat::default(), &stat);
        }
        let parent = table.get(pid).map_or(stat.parent, |origin| origin.parent);
        let mut member = Member {
            stat_file: keeps.then_some(file),
            cpu_ns,
            counted_ns: if is_born_under_watch { cpu_ns } else { 0 },
            ..Member::new(parent, stat)
        };
        self.read_threads(pid, &mut member, is_born_under_watch);
        if let Some(used_ns) = self.adopted.remove(&member.process(pid)).filter(|_| !is_born_under_watch) {
            member.counted_ns = used_ns;
            self.counters.cpu_ns += used_ns;
        }
        self.members.insert(pid, member);
    }

    /// The processes in the group's control group and its descendants; `None` without a separate one.
    pub fn cgroup_processes(&self) -> Option<Vec<u32>> {
        in_control_group(self.cgroup.as_ref()?).ok()
    }

    /// Reads every member: first the numbers that may include ended children, then all CPU clocks at nearly the same
    /// time, then the threads. Returns the middle of the interval in which the clocks were read; the CPU time is
    /// valid for that moment.
    pub fn read(&mut self) -> u64 {
        let mut pids = self.pids();
        let mut ended = HashSet::new();
        let mut children = Vec::new();
        for &pid in &pids {
            let Some(member) = self.members.get_mut(&pid) else { continue };
            let read = match &member.stat_file {
                Some(file) => file.read(&mut self.buffer).ok().and_then(parse_process_stat),
                None => read_stat(pid).filter(|stat| stat.start_ticks == member.last.start_ticks),
            };
            let Some(stat) = read else {
                ended.insert(pid);
                continue;
            };
            self.counters.user_ticks += stat.user_ticks.saturating_sub(member.last.user_ticks);
            self.counters.system_ticks += stat.system_ticks.saturating_sub(member.last.system_ticks);
            self.counters.minor_faults += stat.minor_faults.saturating_sub(member.last.minor_faults);
            self.counters.major_faults += stat.major_faults.saturating_sub(member.last.major_faults);
            let earlier = std::mem::replace(&mut member.last, stat.clone());
            children.push((pid, earlier, stat));
        }
        // The id of an ended process may have been reused.
        pids.retain(|pid| !ended.contains(pid));
        let began_ns = record::time::monotonic_ns();
        for &pid in &pids {
            let Some(member) = self.members.get_mut(&pid) else { continue };
            match cpu_clock::of_process(pid) {
                Ok(cpu_ns) => {
                    let grown_ns = cpu_ns.saturating_sub(member.cpu_ns);
                    self.counters.cpu_ns += grown_ns;
                    member.counted_ns += grown_ns;
                    member.cpu_ns = cpu_ns;
                }
                Err(_) => drop(ended.insert(pid)),
            }
        }
        if let Some(file) = &self.cgroup_cpu {
            self.counters.cgroup_us = file.read(&mut self.buffer).ok().and_then(parse_cgroup_usage_us);
        }
        let ended_ns = record::time::monotonic_ns();
        // Ended ones come first, because the children times just read may contain their owed CPU time.
        for pid in ended {
            self.bury(pid);
        }
        for (pid, earlier, now) in children {
            self.count_children(pid, &earlier, &now);
        }
        for pid in pids {
            if let Some(mut member) = self.members.remove(&pid) {
                self.read_threads(pid, &mut member, true);
                self.members.insert(pid, member);
            }
        }
        began_ns + (ended_ns - began_ns) / 2
    }

    /// Starts counting now: earlier CPU time does not belong to the group.
    pub fn restart(&mut self) {
        self.read();
        self.counters = GroupCounters { cgroup_us: self.counters.cgroup_us, ..GroupCounters::default() };
        self.members.values_mut().for_each(|member| member.counted_ns = 0);
    }

    /// Leaves out the part counted while the children lived.
    pub fn count_children(&mut self, parent: u32, earlier: &ProcessStat, now: &ProcessStat) {
        let user = now.children_user_ticks.saturating_sub(earlier.children_user_ticks);
        let system = now.children_system_ticks.saturating_sub(earlier.children_system_ticks);
        let faults = now.children_major_faults.saturating_sub(earlier.children_major_faults);
        self.counters.major_faults += beyond_owed(&mut self.owed_faults, parent, faults);
        let grown_ns = (user + system) * 1_000_000_000 / self.ticks_per_sec;
        if grown_ns == 0 {
            return;
        }
        let new_ns = beyond_owed(&mut self.owed_ns, parent, grown_ns);
        if !self.ended.is_summed {
            self.counters.cpu_ns += new_ns;
        }
        // Only the split of the total is known, so new time is divided in the same ratio.
        let share = new_ns as f64 / grown_ns as f64;
        self.counters.user_ticks += (user as f64 * share).round() as u64;
        self.counters.system_ticks += (system as f64 * share).round() as u64;
    }

    pub fn bury(&mut self, pid: u32) {
        let Some(member) = self.members.remove(&pid) else { return };
        self.ended.seen_ns += member.cpu_ns;
        self.kept_files -= usize::from(member.stat_file.is_some());
        self.busiest_process_ended_ns = self.busiest_process_ended_ns.max(member.in_window_ns());
        member.threads.values().for_each(|thread| self.bury_thread(thread));
        let children_ticks = member.last.children_user_ticks + member.last.children_system_ticks;
        let counted_ns = member.cpu_ns + children_ticks * 1_000_000_000 / self.ticks_per_sec;
        let counted_faults = member.last.major_faults + member.last.children_major_faults;
        for (owed, counted) in [(&mut self.owed_ns, counted_ns), (&mut self.owed_faults, counted_faults)] {
            owed.remove(&pid);
            if self.members.contains_key(&member.parent) {
                *owed.entry(member.parent).or_default() += counted;
            }
        }
    }

    fn bury_thread(&mut self, thread: &Thread) {
        self.kept_files -= usize::from(thread.file.is_some());
        self.busiest_ended_ns = self.busiest_ended_ns.max(thread.in_window_ns());
    }

    /// `counts_newcomers`: new threads are counted from their start.
    fn read_threads(&mut self, pid: u32, member: &mut Member, counts_newcomers: bool) {
        if !self.has_accounts {
            return;
        }
        let mut ended = Vec::new();
        for (&tid, thread) in &mut member.threads {
            let read = match &thread.file {
                Some(file) => file.read(&mut self.buffer).ok().and_then(parse_thread_account),
                None => read_account(pid, tid),
            };
            match read {
                Some(account) => {
                    add_account(&mut self.counters, &thread.last, &account);
                    thread.last = account;
                }
                None => ended.push(tid),
            }
        }
        let has_new = member.last.threads != member.threads.len() as u64 - ended.len() as u64 || !ended.is_empty();
        for tid in ended {
            if let Some(thread) = member.threads.remove(&tid) {
                self.bury_thread(&thread);
            }
        }
        if !has_new {
            return;
        }
        // A single thread has the id of the process.
        let tids = match member.last.threads {
            1 => vec![pid],
            _ => {
                let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
            }
        };
        for tid in tids {
            if member.threads.contains_key(&tid) {
                continue;
            }
            if member.threads.len() >= MAX_THREADS {
                self.is_cut = true;
                return;
            }
            let file = match KeptFile::open(format!("/proc/{pid}/task/{tid}/schedstat")) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.has_accounts = fs::exists("/proc/thread-self/schedstat").unwrap_or(false);
                    continue;
                }
                Err(_) => continue,
            };
            let Some(account) = file.read(&mut self.buffer).ok().and_then(parse_thread_account) else { continue };
            let mut at_window_start_ns = account.run_ns;
            if counts_newcomers {
                add_account(&mut self.counters, &ThreadAccount::default(), &account);
                at_window_start_ns = 0;
            }
            let keeps = self.kept_files < MAX_KEPT_FILES;
            self.kept_files += usize::from(keeps);
            member.threads.insert(tid, Thread { file: keeps.then_some(file), last: account, at_window_start_ns });
        }
    }

    /// Resets the busiest thread and process at the start of a window.
    pub fn begin_window(&mut self) {
        (self.busiest_ended_ns, self.busiest_process_ended_ns) = (0, 0);
        for member in self.members.values_mut() {
            member.at_window_start_ns = member.counted_ns;
            member.threads.values_mut().for_each(|thread| thread.at_window_start_ns = thread.last.run_ns);
        }
    }

    /// CPU time of the busiest process since the window began.
    pub fn busiest_process_ns(&self) -> u64 {
        self.members.values().map(Member::in_window_ns).fold(self.busiest_process_ended_ns, u64::max)
    }

    /// CPU time of the busiest thread since the window began; `None` without the scheduler's accounts.
    pub fn busiest_thread_ns(&self) -> Option<u64> {
        let threads = self.members.values().flat_map(|member| member.threads.values());
        let living = threads.map(Thread::in_window_ns).max();
        self.has_accounts.then(|| living.unwrap_or(0).max(self.busiest_ended_ns))
    }

    /// The living thread with the most CPU time since the window began.
    pub fn busiest_thread(&self) -> Option<BusyThread> {
        let of_member = |(pid, member): (&u32, &Member)| {
            let busiest = member.threads.iter().max_by_key(|(_, thread)| thread.in_window_ns())?;
            (busiest.1.in_window_ns() > 0).then(|| (busiest.1.in_window_ns(), *pid, *busiest.0))
        };
        let (_, pid, tid) = self.members.iter().filter_map(of_member).max()?;
        let of = self.members.get(&pid)?;
        let is_sibling = |other: &&Member| other.parent == of.parent && other.last.command == of.last.command;
        let siblings = self.members.values().filter(is_sibling).count() as u64;
        Some(BusyThread { pid, tid, name: of.last.command.clone(), siblings })
    }

    pub fn busy_threads(&self) -> Vec<u32> {
        let threads = self.members.values().flat_map(|member| &member.threads);
        threads.filter(|(_, thread)| thread.in_window_ns() > 0).map(|(tid, _)| *tid).collect()
    }

    pub fn counters(&self) -> GroupCounters {
        self.counters
    }

    /// The living processes with their parts of the group's CPU time; the rest belongs to ended processes.
    pub fn by_process(&self) -> Vec<ProcessCpu> {
        let of_member = |(pid, member): (&u32, &Member)| ProcessCpu {
            process: member.process(*pid),
            cpu_ns: member.counted_ns,
            name: member.last.command.clone(),
        };
        self.members.iter().map(of_member).collect()
    }

    /// Whether threads were left out because there are too many.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub fn size(&self) -> GroupSize {
        let mut size = GroupSize::default();
        for (pid, member) in &self.members {
            let ProcessStat { state, threads, mut resident_pages, .. } = member.last;
            if state == 'Z' && threads < 2 {
                continue;
            }
            if state == 'Z' {
                // The memory belongs to the other threads.
                resident_pages = read_stat(living_thread(*pid)).map_or(0, |stat| stat.resident_pages);
            }
            size.processes += 1;
            size.threads += threads;
            size.resident_pages += resident_pages;
        }
        size
    }
}

/// The growth of a parent's time that was not counted while the children lived.
fn beyond_owed(owed: &mut HashMap<u32, u64>, parent: u32, grown: u64) -> u64 {
    let owed = owed.entry(parent).or_default();
    let counted_before = grown.min(*owed);
    *owed -= counted_before;
    grown - counted_before
}

fn add_account(counters: &mut GroupCounters, earlier: &ThreadAccount, now: &ThreadAccount) {
    counters.accounted_ns += now.run_ns.saturating_sub(earlier.run_ns);
    counters.wait_ns += now.wait_ns.saturating_sub(earlier.wait_ns);
    counters.switches += now.switches.saturating_sub(earlier.switches);
}

/// Pages of these processes without a file or shared memory behind them: heaps and stacks. 0 for an ended process.
pub fn anonymous_pages(pids: &[u32]) -> u64 {
    let of_process = |pid: &u32| parse_anonymous_pages(&fs::read(format!("/proc/{}/statm", living_thread(*pid))).ok()?);
    pids.iter().filter_map(of_process).sum()
}

/// Proportional set size of these processes in bytes; `None` if that of a living one cannot be read. 0 for an ended
/// process.
pub fn proportional_memory(pids: &[u32]) -> Option<u64> {
    let of_process = |pid: &u32| match fs::read(format!("/proc/{}/smaps_rollup", living_thread(*pid))) {
        Ok(text) => parse_proportional_memory(&text),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        // The process has ended, or is ending and has freed its memory.
        Err(_) => Some(0),
    };
    pids.iter().map(of_process).sum()
}

fn read_account(pid: u32, tid: u32) -> Option<ThreadAccount> {
    parse_thread_account(&fs::read(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?)
}

pub fn clock_ticks_per_sec() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// The current time, in the unit of a process's start time.
pub fn ticks_since_boot() -> u64 {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ticks = clock_ticks_per_sec();
    boot.tv_sec as u64 * ticks + boot.tv_nsec as u64 * ticks / 1_000_000_000
}
