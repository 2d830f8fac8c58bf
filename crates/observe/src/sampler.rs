//! The watcher's thread: within windows, it reads connection states, accept queues and the group at an interval,
//! which it extends if the readings cost too much.

use crate::cpu_clock;
use crate::goroutines::GoProgram;
use crate::group::ServerGroup;
use crate::java::JavaMachine;
use crate::listening::{holders_of, servers_of};
use crate::parked::{ParkedCounts, ParkedReader};
use crate::port_sockets::PortReader;
use crate::processes::ProcessTable;
use crate::sock_diag::{STATES, Scope};
use crate::wait_call::WaitCalls;
use record::lock;
use rustix::thread::CpuSet;
use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// After a reading that took `t` of CPU time, at least this many `t` pass on average before the next of its kind:
/// 0.25 % of a CPU per kind.
const REST_AFTER_READING: u32 = 400;

/// A Java machine stops for some milliseconds to answer, so it is asked only while a load warms up, at these intervals.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(50);
/// ... or after this many times as long as the answer took.
const REST_AFTER_ANSWER: u32 = 10;

/// Goroutines are read at least once in each window if that takes less.
const CHEAP: Duration = Duration::from_millis(2);

/// Threads and unread bytes are sampled this many times as often as the rest, because the accuracy of their shares
/// depends on the number of samples.
const SAMPLES_PER_READING: u32 = 10;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Sockets by state, summed over the readings.
    pub state_sums: [u64; STATES.len()],
    pub state_readings: u64,
    /// Connections with bytes that the server had not read, summed over these readings.
    pub unread_sum: u64,
    pub unacknowledged_sum: u64,
    pub queue_max: u32,
    /// Limit of the accept queue; 0 if unknown.
    pub queue_limit: u32,
    /// Number of readings of accept queues.
    pub queue_readings: u64,
    /// Calls in which the server's threads were sampled since the last window ended.
    pub waits: WaitCalls,
    pub parked: ParkedCounts,
    pub group_readings: u64,
    pub readings: u64,
    pub cpu_ns: u64,
    /// The latest reason why sockets could not be read.
    pub socket_error: Option<String>,
}

#[derive(Debug, Default)]
struct SamplerState {
    samples: Samples,
    /// Whether a load runs whose window has not yet begun.
    warms_up: bool,
    /// What waited in Java machines then.
    asked: ParkedCounts,
    /// When the window began, until it has a reading of the states.
    window_began: Option<Instant>,
    is_stopping: bool,
    thread_id: Option<u32>,
}

#[derive(Debug)]
pub struct SamplerShare {
    group: Mutex<ServerGroup>,
    control: Mutex<SamplerState>,
    wake: Condvar,
}

impl SamplerShare {
    pub fn new(group: ServerGroup) -> Arc<Self> {
        Arc::new(SamplerShare { group: Mutex::new(group), control: Mutex::default(), wake: Condvar::new() })
    }

    /// The group. A panic of another thread does not invalidate its counters.
    pub fn group(&self) -> MutexGuard<'_, ServerGroup> {
        lock(&self.group)
    }

    fn control(&self) -> MutexGuard<'_, SamplerState> {
        lock(&self.control)
    }

    /// A load begins, the window comes later: until then, Java machines may be asked what waits in them.
    pub fn load_begins(&self) {
        let mut control = self.control();
        (control.warms_up, control.asked) = (true, ParkedCounts::default());
    }

    /// Starts over, and requests an early reading.
    pub fn begin_window(&self) {
        let mut control = self.control();
        // Between windows a server may sleep where a saturated one never does; those samples belong to the next
        // window.
        let waits = std::mem::take(&mut control.samples.waits);
        let parked = std::mem::take(&mut control.asked);
        control.samples = Samples { waits, parked, ..Samples::default() };
        control.warms_up = false;
        control.window_began = Some(Instant::now());
        self.wake.notify_all();
    }

    pub fn end_window(&self) -> Samples {
        let mut control = self.control();
        let samples = control.samples.clone();
        control.samples.waits = WaitCalls::default();
        samples
    }

    /// Ends the thread after its current reading.
    pub fn stop(&self) {
        self.control().is_stopping = true;
        self.wake.notify_all();
    }

    /// CPU time of the thread so far, nanoseconds.
    pub fn thread_cpu_ns(&self) -> u64 {
        self.control().thread_id.and_then(|tid| cpu_clock::of_own_thread(tid).ok()).unwrap_or(0)
    }
}

struct ReadingTimer {
    interval: Duration,
    /// CPU time of the last reading.
    cost: Duration,
    due: Instant,
    phase: f64,
}

impl ReadingTimer {
    fn new(interval: Duration) -> Self {
        ReadingTimer { interval, cost: Duration::ZERO, due: Instant::now(), phase: 0.0 }
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    fn take(&mut self, shared: &SamplerShare, work: impl FnOnce()) {
        let before_ns = cpu_clock::of_this_thread();
        work();
        let cpu_ns = cpu_clock::of_this_thread() - before_ns;
        self.rest_after(cpu_ns);
        let mut control = shared.control();
        control.samples.readings += 1;
        control.samples.cpu_ns += cpu_ns;
    }

    fn rest_after(&mut self, cpu_ns: u64) {
        self.cost = Duration::from_nanos(cpu_ns);
        let rest = self.cost.saturating_mul(REST_AFTER_READING).max(self.interval);
        // Multiples of the golden ratio are spread evenly over any number of intervals.
        self.phase = (self.phase + 0.618_034).fract();
        self.due = Instant::now() + rest.mul_f64(0.5 + self.phase);
    }
}

pub struct StateSampler {
    /// Reader of the port's sockets; `None` if they cannot be read.
    pub reader: Option<PortReader>,
    pub port: u16,
    /// Mean time between two cheap readings of a kind; threads are sampled ten times as often.
    pub interval: Duration,
    /// CPUs that the thread avoids if it can.
    pub avoid_cpus: Vec<usize>,
    /// Whether the group is the process that listens on the port, even after a restart.
    pub follows_port: bool,
}

impl StateSampler {
    /// The thread: runs until [`SamplerShare::stop`].
    pub fn run(mut self, shared: &SamplerShare) {
        shared.control().thread_id = Some(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        keep_away_from(&self.avoid_cpus);
        let mut table = ProcessTable::default();
        let mut known_listeners = HashSet::new();
        let [mut queues, mut group] = [(); 2].map(|()| ReadingTimer::new(self.interval));
        let [mut states, mut waits, mut parked] =
            [(); 3].map(|()| ReadingTimer::new(self.interval / SAMPLES_PER_READING));
        let (mut programs, mut machines) =
            (ParkedReader::<GoProgram>::default(), ParkedReader::<JavaMachine>::default());
        let mut asked = Instant::now();
        loop {
            let next = [&states, &queues, &group, &waits, &parked].map(|pace| pace.due).into_iter().min();
            let next = next.map_or(asked, |next| next.min(asked));
            let Some(is_first_of_window) = self.wait(shared, next) else { return };
            if states.is_due() || is_first_of_window {
                states.take(shared, || self.read_states(shared, &mut known_listeners, Scope::AllStates));
                queues.rest_after(0);
            } else if queues.is_due() {
                queues.take(shared, || self.read_states(shared, &mut known_listeners, Scope::Listeners));
            }
            if group.is_due() {
                group.take(shared, || {
                    // A service manager may start a server for a socket that exists already.
                    if self.follows_port && shared.group().pids().is_empty() {
                        follow(shared, &known_listeners);
                    }
                    let in_cgroup = shared.group().cgroup_processes();
                    match in_cgroup {
                        // The control group lists its processes, so no others are examined.
                        Some(pids) => table.set_pids(&pids),
                        None => table.scan(),
                    }
                    let mut members = shared.group();
                    members.admit(&table);
                    members.read();
                });
                shared.control().samples.group_readings += 1;
            }
            if waits.is_due() {
                let threads = shared.group().threads();
                let mut seen = WaitCalls::default();
                waits.take(shared, || seen.read(&threads));
                shared.control().samples.waits.add(seen);
            }
            if parked.is_due() || (is_first_of_window && parked.cost <= CHEAP) {
                let processes = shared.group().processes();
                // Once in each program, the search for its variables takes longer than a window.
                let learns = cpu_clock::of_this_thread();
                let is_found = programs.learn(&processes);
                let learned_ns = cpu_clock::of_this_thread() - learns;
                let mut seen = ParkedCounts::default();
                parked.take(shared, || seen = programs.read());
                if !is_found {
                    parked.rest_after(parked.cost.as_nanos() as u64 + learned_ns);
                }
                shared.control().samples.parked.add(seen);
            }
            if Instant::now() >= asked {
                let began = Instant::now();
                if shared.control().warms_up {
                    machines.learn(&shared.group().processes());
                    let seen = machines.read();
                    shared.control().asked = seen;
                }
                asked = Instant::now() + BETWEEN_QUESTIONS.max(REST_AFTER_ANSWER * began.elapsed());
            }
        }
    }

    /// Sleeps until `next`. `None` = stop; `Some(true)` = a window began half an interval ago and has no reading yet.
    fn wait(&self, shared: &SamplerShare, next: Instant) -> Option<bool> {
        let mut control = shared.control();
        loop {
            if control.is_stopping {
                return None;
            }
            let now = Instant::now();
            let first = control.window_began.map(|began| began + self.interval / 2);
            if first.is_some_and(|first| now >= first) {
                control.window_began = None;
                return Some(true);
            }
            if now >= next {
                return Some(false);
            }
            let deadline = first.map_or(next, |first| first.min(next));
            control = shared
                .wake
                .wait_timeout(control, deadline - now)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(control, _)| control);
        }
    }

    fn read_states(&mut self, shared: &SamplerShare, known: &mut HashSet<u64>, scope: Scope) {
        let Some(reader) = &mut self.reader else { return };
        let sockets = match reader.read(self.port, scope) {
            Ok(sockets) => sockets,
            Err(error) => {
                shared.control().samples.socket_error = Some(error.to_string());
                return;
            }
        };
        {
            let mut control = shared.control();
            let samples = &mut control.samples;
            if scope == Scope::AllStates || matches!(reader, PortReader::Text(_)) {
                samples.state_readings += 1;
                samples.unread_sum += sockets.unread;
                samples.unacknowledged_sum += sockets.unacknowledged;
                for (sum, count) in samples.state_sums.iter_mut().zip(sockets.by_state) {
                    *sum += count;
                }
            }
            samples.queue_readings += 1;
            for listener in &sockets.listeners {
                if listener.queue > samples.queue_max || samples.queue_limit == 0 {
                    samples.queue_limit = listener.queue_limit;
                }
                samples.queue_max = samples.queue_max.max(listener.queue);
            }
        }
        if self.follows_port {
            let inodes: HashSet<u64> = sockets.listeners.iter().map(|listener| listener.inode).collect();
            if inodes != *known {
                follow(shared, &inodes);
                *known = inodes;
            }
        }
    }
}

/// Handles changed listening sockets: if no member has them, the process that has them joins the group (a server that
/// became a daemon elsewhere, or was restarted).
fn follow(shared: &SamplerShare, inodes: &HashSet<u64>) {
    let members = shared.group().pids();
    if inodes.is_empty() || !holders_of(inodes, &members).is_empty() {
        return;
    }
    shared.group().add_roots(servers_of(inodes));
}

pub(crate) fn keep_away_from(cpus: &[usize]) {
    if cpus.is_empty() {
        return;
    }
    let Ok(mut allowed) = rustix::thread::sched_getaffinity(None) else { return };
    for cpu in cpus.iter().copied().filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        allowed.unset(cpu);
    }
    if allowed.count() > 0 {
        let _ = rustix::thread::sched_setaffinity(None, &allowed);
    }
}
