//! The places of the requests and the states of the server's threads at each load, from the accounts of its points.
//!
//! Threads: each nanosecond of each thread belongs to exactly one row, so the rows add up to the number of threads.
//!
//! Requests, by Little's law: the mean number of requests in a place is the time that a request spends there times
//! the throughput. Places are counted or timed as a whole; the rest of the response time is in the client and in the
//! server's own queues.

use crate::parked::{self, ParkedLevel};
use crate::point::points_at;
use crate::zones::{SweepFindings, counted_at, reduced};
use record::account::{Account, ThreadGroup, Wait, WaitKind};
use record::text::plain;
use record::units::{count, format_nanos, format_si};
use record::{Pace, Point, RunDir, names};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A thread that sleeps in fewer than this share of the requests serves none of them.
const LEAST_SLEEPS: f64 = 0.02;
/// Least CPU time of a request, microseconds: a read and a write.
const LEAST_REQUEST_US: f64 = 5.0;
/// Least number of sleeps per request with which threads that mostly sleep count as sleeping in requests.
const LEAST_SLEEPS_AT_WORK: f64 = 0.05;
/// Waits with a smaller mean number of threads are combined by kind.
const LEAST_THREADS: f64 = 0.01;

/// The account of the threads and requests at one load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AccountLevel {
    /// Connections (closed loop), or offered requests per second (open loop).
    pub load: f64,
    /// Points at this load that count and have an account.
    pub points: u64,
    /// Length of the accounts' windows, seconds.
    pub seconds: f64,
    /// Mean number of threads.
    pub threads: f64,
    /// Threads by program and name; the most time at work first.
    pub groups: Vec<GroupLevel>,
    /// Places of the requests; absent if the client's side is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestLevel>,
    /// Connections to other servers, by address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendLevel>,
    /// Connections between processes of the server, by address. Their calls are counted at the places of the process
    /// that answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_backends: Vec<BackendLevel>,
    /// Goroutines of a Go server, or threads of a Java server, that wait inside it, by place; the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<ParkedLevel>,
    /// Difference between the rows and the threads' lifetimes, as a share of the lifetimes: 0 = the rows add up
    /// exactly.
    pub open_ratio: f64,
    /// CPUs that the account itself used.
    pub cost_cpus: f64,
}

/// Threads of one name: mean numbers of threads in each state.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GroupLevel {
    /// Program, with the threads' name if it differs.
    pub name: String,
    /// Mean number of threads.
    pub threads: f64,
    /// Mean number of threads on a CPU.
    pub running: f64,
    /// Mean CPU time of a thread between two waits, milliseconds.
    pub work_ms: f64,
    /// Longest CPU time of a thread between two waits, milliseconds.
    pub longest_work_ms: f64,
    /// Mean number of runnable threads while another thread of the server had their CPU.
    pub ready_own: f64,
    /// Mean number of runnable threads while other work had their CPU.
    pub ready_others: f64,
    /// Mean number of runnable threads while their CPU was idle: stopped by a CPU time limit, or about to run.
    pub ready_stopped: f64,
    /// Mean number of runnable threads that then ran on another CPU than before.
    pub ready_moved: f64,
    /// Mean number of threads blocked without work.
    pub idle: f64,
    /// Blocked threads by place, with work and without; the most first.
    pub waits: Vec<WaitLevel>,
    /// Processes of the group, the busiest first.
    pub processes: Vec<ProcessLevel>,
}

/// One process of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ProcessLevel {
    /// Id of the process.
    pub pid: u32,
    /// Share of the threads' time in which they were not blocked without work; the largest of the load's points.
    pub busy_ratio: f64,
    /// Mean number of the process's threads that were not blocked without work.
    pub busy: f64,
    /// Requests that the process finished per second; absent if requests were not counted by process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_sec: Option<f64>,
}

impl ProcessLevel {
    /// Time of the process's threads per request, microseconds: on a CPU, ready, and blocked with work.
    pub fn us_per_request(&self) -> Option<f64> {
        self.requests_per_sec.filter(|rate| *rate > 0.0).map(|rate| self.busy / rate * 1e6)
    }
}

/// Blocked threads at one place.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct WaitLevel {
    /// Purpose of the wait: a lock, a file, another server, new work.
    pub kind: WaitKind,
    /// System call and its object: a file, another server, a lock.
    pub place: String,
    /// Function of the program that waits, or that ended the waits; empty if no sampled stack has one.
    pub function: String,
    /// Sampled stack with the most time, innermost function first, followed by "woken by" and the functions that
    /// ended the wait; empty if none was sampled.
    pub stack: String,
    /// Mean number of threads blocked there.
    pub threads: f64,
    /// Waits per second.
    pub times_per_sec: f64,
    /// Longest wait, milliseconds.
    pub longest_ms: f64,
}

/// Places of the requests at one load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RequestLevel {
    /// Mean number of requests in flight at the client.
    pub in_flight: f64,
    /// Mean response time, microseconds: the sum of the places' times.
    pub response_us: f64,
    /// The places, from the client inwards.
    pub places: Vec<RequestPlace>,
}

/// Requests at one place.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RequestPlace {
    /// Kind of the place.
    pub kind: PlaceKind,
    /// Name of the place: the kind's word, with the file, lock or server.
    pub name: String,
    /// Mean number of requests at the place.
    pub requests: f64,
    /// Time of a request at the place, microseconds.
    pub us: f64,
}

record::worded! {
    /// Kinds of places.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PlaceKind {
        /// On the path and in the client.
        Client = "client and path",
        /// In the server's socket: the answer, written and not yet acknowledged.
        Written = "written, not yet at the client",
        /// In the server's socket: arrived and not yet read.
        Unread = "arrived, not yet read",
        /// At a thread that runs on a CPU.
        Running = "running",
        /// At a thread that is runnable without a CPU.
        Ready = "ready, without a CPU",
        /// At a thread that is blocked by a lock.
        Lock = "waiting for a lock",
        /// At a thread that is blocked by a file.
        File = "in a file",
        /// At a thread that is blocked by a full pipe.
        Pipe = "in a full pipe",
        /// At a thread that sleeps until a time.
        Sleep = "asleep",
        /// At a thread that is blocked by a full send buffer.
        Send = "sending",
        /// At a thread that is blocked for memory.
        Memory = "for memory",
        /// At a thread in another system call.
        Other = "in another system call",
        /// At another server.
        Backend = "at",
        /// At a goroutine or a thread of Java that waits, or at a goroutine that could run and has no thread.
        Parked = "in the program",
        /// In the program, but at no thread.
        Queue = "in the server's queues",
        /// In the client, the path and the server's queues, if the server's requests were not timed.
        Rest = "client, path and queues",
    }
}

/// Connections to another server.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BackendLevel {
    /// Address of the other server.
    pub address: String,
    /// Connections that the server used.
    pub connections: f64,
    /// Mean number of connections with a call in progress.
    pub busy: f64,
    /// Calls per second.
    pub calls_per_sec: f64,
    /// Mean time of a call, microseconds.
    pub call_us: f64,
}

/// Least number of calls per request: a connection on which the server waits for news (a watch, a queue) is busy too.
const LEAST_CALLS_PER_REQUEST: f64 = 0.01;

/// The accounts of a sweep, by ascending load; loads without one are left out.
pub fn levels(run: &RunDir, sweep: &SweepFindings) -> Vec<AccountLevel> {
    let points_of = |load: f64| points_at(&run.points, sweep.sweep, load).collect::<Vec<_>>();
    let mut levels: Vec<AccountLevel> =
        sweep.levels.iter().filter_map(|at| level(at.load, &points_of(at.load))).collect();
    let background = Background { sleeps: steady_sleeps(&levels), parked: parked::background(&levels) };
    if !background.sleeps.is_empty() || levels.iter().any(|level| !level.parked.is_empty()) {
        for level in &mut levels {
            level.requests = requests(&counted_at(&points_of(level.load)), level, Some(&background));
        }
    }
    levels
}

/// What waits in the server without a request.
struct Background {
    /// Sleeps, by group and place.
    sleeps: BTreeSet<(String, String)>,
    /// Goroutines and threads of Java, by place.
    parked: BTreeMap<String, parked::Background>,
}

/// The sleeps, by group and place, that are as frequent and of as many threads at the highest throughput as at a much
/// lower one: no request waits for them.
fn steady_sleeps(levels: &[AccountLevel]) -> BTreeSet<(String, String)> {
    /// The throughputs differ by at least this factor.
    const LEAST_RATIO: f64 = 2.0;
    /// The frequencies differ by less than this factor.
    const MOST_RATIO: f64 = 1.25;
    let by_rate = |a: &&AccountLevel, b: &&AccountLevel| a.per_sec().total_cmp(&b.per_sec());
    let known = || levels.iter().filter(|level| level.per_sec() > 0.0);
    let (Some(slow), Some(fast)) = (known().min_by(by_rate), known().max_by(by_rate)) else { return BTreeSet::new() };
    if fast.per_sec() < LEAST_RATIO * slow.per_sec() {
        return BTreeSet::new();
    }
    let sleeps = |level: &AccountLevel| -> BTreeMap<(String, String), [f64; 2]> {
        let sleeps = level.waits().filter(|(_, wait)| wait.kind == WaitKind::Sleep);
        let use_of = |wait: &WaitLevel| [wait.times_per_sec, wait.threads];
        sleeps.map(|(group, wait)| ((group.name.clone(), wait.place.clone()), use_of(wait))).collect()
    };
    let before = sleeps(slow);
    let is_steady = |(place, now): &(&(String, String), &[f64; 2])| {
        before.get(*place).is_some_and(|earlier| now.iter().zip(earlier).all(|(now, then)| *now < MOST_RATIO * then))
    };
    sleeps(fast).iter().filter(is_steady).map(|(place, _)| place.clone()).collect()
}

/// The account of one load's points.
pub fn level(load: f64, points: &[&Point]) -> Option<AccountLevel> {
    let counted = counted_at(points);
    let accounts: Vec<&Account> = counted.iter().filter_map(|point| point.account.as_ref()).collect();
    let mut level = of_accounts(load, &accounts, &request_rates(&counted))?;
    level.requests = requests(&counted, &level, None);
    Some(level)
}

/// The account of one window, without the client's figures.
pub fn of_one(account: &Account) -> Option<AccountLevel> {
    of_accounts(0.0, &[account], &BTreeMap::new())
}

/// Merges accounts; `rates` are the requests per second of each process.
fn of_accounts(load: f64, accounts: &[&Account], rates: &BTreeMap<u32, f64>) -> Option<AccountLevel> {
    let window_ns: u64 = accounts.iter().map(|account| account.window_ns).sum();
    if window_ns == 0 {
        return None;
    }
    let mean = |ns: u64| ns as f64 / window_ns as f64;
    let mut merged: BTreeMap<(String, bool), Vec<&ThreadGroup>> = BTreeMap::new();
    for group in accounts.iter().flat_map(|account| &account.groups) {
        merged.entry((group_name(group), group.is_first)).or_default().push(group);
    }
    let is_alone = |name: &str| merged.keys().filter(|(of, _)| of == name).count() == 1;
    let mut groups: Vec<GroupLevel> = merged
        .iter()
        .map(|((name, is_first), of)| {
            let name = if *is_first && !is_alone(name) { format!("{name} (first thread)") } else { name.clone() };
            group_level(name, of, window_ns, rates)
        })
        .collect();
    groups.sort_by(|a, b| (b.threads - b.idle).total_cmp(&(a.threads - a.idle)));
    let lives: u64 = accounts.iter().map(|account| account.threads_ns).sum();
    let rows: u64 = accounts.iter().map(|account| account.sum(ThreadGroup::total_ns)).sum();
    Some(AccountLevel {
        load,
        points: accounts.len() as u64,
        seconds: window_ns as f64 / 1e9,
        threads: mean(lives),
        requests: None,
        groups,
        backends: backends(accounts, window_ns, false),
        own_backends: backends(accounts, window_ns, true),
        parked: parked::merged(accounts),
        open_ratio: rows as f64 / lives.max(1) as f64 - 1.0,
        cost_cpus: mean(accounts.iter().map(|account| account.cost_ns).sum()),
    })
}

/// Requests per second of each process: the mean over the points that counted them.
fn request_rates(points: &[&Point]) -> BTreeMap<u32, f64> {
    let watched: Vec<_> = points.iter().filter_map(|point| point.watched.as_ref()).collect();
    let counted = watched.iter().filter(|watched| !watched.processes.is_empty()).count();
    let mut rates = BTreeMap::new();
    for process in watched.iter().flat_map(|watched| &watched.processes) {
        *rates.entry(process.pid).or_default() += process.per_sec / counted as f64;
    }
    rates
}

fn group_name(group: &ThreadGroup) -> String {
    let (program, name) = (plain(&group.program, 40), plain(&group.name, 20));
    if program.starts_with(&name) || name.is_empty() { program } else { format!("{program}: {name}") }
}

fn group_level(name: String, of: &[&ThreadGroup], window_ns: u64, rates: &BTreeMap<u32, f64>) -> GroupLevel {
    let sum = |ns: fn(&ThreadGroup) -> u64| of.iter().map(|group| ns(group)).sum::<u64>() as f64 / window_ns as f64;
    let mut waits: BTreeMap<(WaitKind, String), Vec<&Wait>> = BTreeMap::new();
    for wait in of.iter().flat_map(|group| &group.waits) {
        waits.entry((wait.kind, place_words(wait))).or_default().push(wait);
    }
    let mut waits: Vec<WaitLevel> = waits
        .into_iter()
        .map(|((kind, place), waits)| WaitLevel {
            kind,
            place,
            function: function(&waits),
            stack: stack(&waits),
            threads: waits.iter().map(|wait| wait.ns).sum::<u64>() as f64 / window_ns as f64,
            times_per_sec: waits.iter().map(|wait| wait.times).sum::<u64>() as f64 * 1e9 / window_ns as f64,
            longest_ms: waits.iter().map(|wait| wait.longest_ns).max().unwrap_or(0) as f64 / 1e6,
        })
        .collect();
    waits.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    let mut processes: BTreeMap<u32, ProcessLevel> = BTreeMap::new();
    for process in of.iter().flat_map(|group| &group.processes) {
        let none = ProcessLevel { pid: process.pid, busy_ratio: 0.0, busy: 0.0, requests_per_sec: None };
        let level = processes.entry(process.pid).or_insert(none);
        let busy_ns = process.ns.saturating_sub(process.idle_ns);
        level.busy_ratio = level.busy_ratio.max(busy_ns as f64 / process.ns.max(1) as f64);
        level.busy += busy_ns as f64 / window_ns as f64;
        level.requests_per_sec = rates.get(&process.pid).copied();
    }
    let mut processes: Vec<ProcessLevel> = processes.into_values().collect();
    processes.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    GroupLevel {
        name,
        threads: sum(ThreadGroup::total_ns),
        running: sum(|group| group.running_ns),
        work_ms: of.iter().map(|group| group.running_ns).sum::<u64>() as f64
            / of.iter().map(|group| group.works).sum::<u64>().max(1) as f64
            / 1e6,
        longest_work_ms: of.iter().map(|group| group.longest_work_ns).max().unwrap_or(0) as f64 / 1e6,
        ready_own: sum(|group| group.ready_own_ns),
        ready_others: sum(|group| group.ready_others_ns),
        ready_stopped: sum(|group| group.ready_stopped_ns),
        ready_moved: sum(|group| group.ready_moved_ns),
        idle: sum(|group| group.blocked_ns(WaitKind::is_idle)),
        waits,
        processes,
    }
}

/// The call and its object: `fdatasync of /var/log/x`, `recvfrom from 127.0.0.1:5432`.
fn place_words(wait: &Wait) -> String {
    let (call, object) = (plain(&wait.call, 40), plain(&wait.object, 120));
    match (call.is_empty(), object.is_empty()) {
        (_, true) => call,
        (true, false) => object,
        (false, false) => format!("{call} {object}"),
    }
}

/// The program's function with the most time on the sampled stacks, of the waiting thread or of the one that ended
/// the wait.
fn function(waits: &[&Wait]) -> String {
    let mut stacks: Vec<_> = waits.iter().flat_map(|wait| &wait.stacks).collect();
    stacks.sort_by_key(|stack| std::cmp::Reverse(stack.ns));
    let own = |frames: &[record::profile::Frame]| {
        let is_own = |frame: &&record::profile::Frame| {
            let module = frame.module.as_deref().unwrap_or("");
            !frame.is_kernel
                && !frame.function.starts_with('[')
                && !module.starts_with("libc")
                && !module.starts_with("ld-")
        };
        frames.iter().find(is_own).map(|frame| plain(&frame.function, 60))
    };
    let of_stack = |stack: &&record::account::WaitStack| own(&stack.frames).or_else(|| own(&stack.woken_by));
    stacks.iter().find_map(of_stack).unwrap_or_default()
}

fn stack(waits: &[&Wait]) -> String {
    const FRAMES: usize = 12;
    let most = waits.iter().flat_map(|wait| &wait.stacks).max_by_key(|stack| stack.ns);
    let words = |frames: &[record::profile::Frame]| {
        let names: Vec<String> = frames.iter().take(FRAMES).map(|frame| plain(&frame.function, 60)).collect();
        names.join(" < ")
    };
    most.map_or(String::new(), |stack| {
        let woken_by = words(&stack.woken_by);
        let end = if woken_by.is_empty() { String::new() } else { format!("; woken by {woken_by}") };
        words(&stack.frames) + &end
    })
}

fn backends(accounts: &[&Account], window_ns: u64, are_own: bool) -> Vec<BackendLevel> {
    let mut all: BTreeMap<&str, Vec<&record::account::BackendUse>> = BTreeMap::new();
    for backend in accounts.iter().flat_map(|account| &account.backends).filter(|backend| backend.is_own == are_own) {
        all.entry(&backend.address).or_default().push(backend);
    }
    let mut levels: Vec<BackendLevel> = all
        .into_iter()
        .map(|(address, of)| {
            let busy_ns: u64 = of.iter().map(|one| one.busy_ns).sum();
            let calls: u64 = of.iter().map(|one| one.calls).sum();
            BackendLevel {
                address: plain(address, 120),
                connections: of.iter().map(|one| one.connections).sum::<u64>() as f64 / of.len() as f64,
                busy: busy_ns as f64 / window_ns as f64,
                calls_per_sec: calls as f64 * 1e9 / window_ns as f64,
                call_us: busy_ns as f64 / 1e3 / calls.max(1) as f64,
            }
        })
        .collect();
    levels.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    levels
}

/// Ratio of connections to requests in flight (Little's law) above which some connections of the closed loop got no
/// response.
const MOST_ANSWERED: f64 = 1.5;
/// Ratio of requests in flight (Little's law) to connections above which the mean time includes requests from before
/// the window.
const MOST_BEYOND: f64 = 1.2;
/// Response time, as a share of the time in which the watch counts, above which many requests end outside it, so that
/// the mean time of those that end inside is too short.
const LONG_RESPONSE: f64 = 0.1;

/// `background` is known only if there are other loads.
fn requests(points: &[&Point], level: &AccountLevel, background: Option<&Background>) -> Option<RequestLevel> {
    let (groups, backends) = (&level.groups, &level.backends);
    let figure = |name: &'static str| Some(reduced(points, |point| point.value(name))?.median);
    let (per_sec, response_us) = (figure(names::THROUGHPUT)?, figure(names::RESPONSE_MEAN)?);
    let (mut response_us, mut in_flight) = (response_us, per_sec * response_us / 1e6);
    if in_flight <= 0.0 {
        return None;
    }
    // The mean covers answered requests, including some that began long before the window. In a closed loop, each
    // connection has a request in flight.
    let is_closed = points.iter().all(|point| matches!(point.pace, Pace::Closed));
    let connections = points.iter().map(|point| point.connections).min().filter(|_| is_closed).unwrap_or(0) as f64;
    if connections > 0.0 && !(connections / MOST_ANSWERED..=connections * MOST_BEYOND).contains(&in_flight) {
        (in_flight, response_us) = (connections, connections / per_sec * 1e6);
    }
    let mut places: Vec<(PlaceKind, String, f64)> = Vec::new();
    let unread = figure(names::SERVER_UNREAD).unwrap_or(0.0);
    let sum = |of: fn(&GroupLevel) -> f64| groups.iter().map(of).sum::<f64>();
    places.push((PlaceKind::Running, String::new(), sum(|group| group.running)));
    places.push((PlaceKind::Ready, String::new(), sum(GroupLevel::ready)));
    let mut blocked: BTreeMap<(PlaceKind, String), f64> = BTreeMap::new();
    let has_calls =
        points.iter().filter_map(|point| point.account.as_ref()).any(|account| !account.backends.is_empty());
    for (group, wait) in level.waits() {
        let is_background = wait.kind == WaitKind::Sleep
            && (wait.times_per_sec < LEAST_SLEEPS * per_sec
                || background.is_some_and(|one| one.sleeps.contains(&(group.name.clone(), wait.place.clone()))));
        let Some(kind) = place_kind(wait.kind).filter(|_| !is_background) else { continue };
        // Calls are timed by connection, not by the thread that waits.
        if kind == PlaceKind::Backend && has_calls {
            continue;
        }
        let name = if wait.threads >= LEAST_THREADS { wait.place.clone() } else { String::new() };
        *blocked.entry((kind, name)).or_default() += wait.threads;
    }
    places.extend(blocked.into_iter().map(|((kind, name), threads)| (kind, name, threads)));
    places.extend(asked(backends, per_sec).map(|backend| (PlaceKind::Backend, backend.address.clone(), backend.busy)));
    let at_work: f64 = places.iter().map(|(_, _, requests)| requests).sum();
    let counted_us = |point: &Point| Some(point.duration_ns as f64 / 1e3 * point.value(names::WATCH_COUNTED)?);
    let is_long = reduced(points, counted_us).is_some_and(|counted| response_us > LONG_RESPONSE * counted.median);
    let sampled = figure(names::WATCH_IN_FLIGHT).filter(|_| is_long).unwrap_or(0.0).min(in_flight - unread);
    let inside = figure(names::WATCH_ELAPSED).map(|us| (us * per_sec / 1e6).max(sampled));
    // A thread may sleep without a request, and a request that is being read has unread bytes.
    let mut too_many = unread + inside.unwrap_or(0.0).max(at_work) - in_flight;
    let mut without_request = (at_work - inside.unwrap_or(0.0)).clamp(0.0, too_many.max(0.0));
    for (_, _, asleep) in places.iter_mut().filter(|(kind, ..)| *kind == PlaceKind::Sleep) {
        let less = without_request.min(*asleep);
        (*asleep, without_request, too_many) = (*asleep - less, without_request - less, too_many - less);
    }
    let at_work: f64 = places.iter().map(|(_, _, requests)| requests).sum();
    let unread = (unread - too_many.max(0.0)).max(0.0);
    let outside = (in_flight - unread - inside.unwrap_or(0.0).max(at_work)).max(0.0);
    places.push((PlaceKind::Unread, String::new(), unread));
    let (mut queue, mut queued) = (PlaceKind::Rest, outside);
    if let Some(inside) = inside {
        let all = (inside - at_work).max(0.0);
        let written = held_back(figure, per_sec, all);
        places.push((PlaceKind::Client, String::new(), outside));
        places.push((PlaceKind::Written, String::new(), written));
        (queue, queued) = (PlaceKind::Queue, all - written);
    }
    let parked =
        background.map(|background| parked::places(level, &background.parked, (in_flight, queued))).unwrap_or_default();
    queued -= parked.iter().map(|(.., requests)| requests).sum::<f64>();
    places.push((queue, String::new(), queued.max(0.0)));
    places.extend(parked);
    places.sort_by_key(|(kind, ..)| *kind);
    let place = |(kind, name, requests): (PlaceKind, String, f64)| RequestPlace {
        kind,
        name: match (kind, name.is_empty()) {
            (_, true) => kind.word().to_string(),
            (PlaceKind::Backend, false) => format!("{} {name}", kind.word()),
            (_, false) => format!("{}: {name}", kind.word()),
        },
        requests,
        us: requests / per_sec * 1e6,
    };
    Some(RequestLevel { in_flight, response_us, places: places.into_iter().map(place).collect() })
}

/// Time after which Linux acknowledges at the latest, seconds.
const LATEST_ACK_S: f64 = 0.04;

/// Of the requests inside the server but at none of its threads, those whose answer was written and waits in the
/// kernel: connections with unacknowledged data, less those that only wait for the acknowledgement.
fn held_back(figure: impl Fn(&'static str) -> Option<f64>, per_sec: f64, queued: f64) -> f64 {
    let acknowledged_s = figure(names::CONNECT_P50).unwrap_or(0.0) / 1e6 + LATEST_ACK_S;
    let held = figure(names::SERVER_UNACKNOWLEDGED).unwrap_or(0.0) - per_sec * acknowledged_s;
    held.clamp(0.0, queued)
}

/// The other servers whose answers requests need.
fn asked(backends: &[BackendLevel], requests_per_sec: f64) -> impl Iterator<Item = &BackendLevel> {
    backends.iter().filter(move |backend| backend.calls_per_sec >= LEAST_CALLS_PER_REQUEST * requests_per_sec)
}

fn place_kind(kind: WaitKind) -> Option<PlaceKind> {
    match kind {
        WaitKind::Lock => Some(PlaceKind::Lock),
        WaitKind::File => Some(PlaceKind::File),
        WaitKind::Pipe => Some(PlaceKind::Pipe),
        WaitKind::Sleep => Some(PlaceKind::Sleep),
        WaitKind::Send => Some(PlaceKind::Send),
        WaitKind::Memory => Some(PlaceKind::Memory),
        WaitKind::Backend => Some(PlaceKind::Backend),
        WaitKind::Other => Some(PlaceKind::Other),
        _ => None,
    }
}

impl AccountLevel {
    /// Mean number of requests in progress; 0 if the client's side is not known.
    pub fn in_flight(&self) -> f64 {
        self.requests.as_ref().map_or(0.0, |requests| requests.in_flight)
    }

    /// Requests answered per second; 0 if the client's side is not known.
    pub fn per_sec(&self) -> f64 {
        self.requests.as_ref().map_or(0.0, |requests| requests.in_flight / requests.response_us * 1e6)
    }

    /// The other servers whose answers requests need; the busiest first.
    pub fn asked(&self) -> impl Iterator<Item = &BackendLevel> {
        asked(&self.backends, self.per_sec())
    }

    /// As [`AccountLevel::asked`], for the server's own processes.
    pub fn asked_of_own(&self) -> impl Iterator<Item = &BackendLevel> {
        asked(&self.own_backends, self.per_sec())
    }

    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&GroupLevel> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The wait with the most threads among those of a sort.
    pub fn most_waiting(&self, is_wanted: impl Fn(&WaitLevel) -> bool) -> Option<(&GroupLevel, &WaitLevel)> {
        let waits = self.waits().filter(|(_, wait)| is_wanted(wait));
        waits.max_by(|a, b| a.1.threads.total_cmp(&b.1.threads))
    }

    /// The backend with this address.
    pub fn backend(&self, address: &str) -> Option<&BackendLevel> {
        self.backends.iter().find(|backend| backend.address == address)
    }

    /// All waits, with the threads that wait.
    pub fn waits(&self) -> impl Iterator<Item = (&GroupLevel, &WaitLevel)> {
        self.groups.iter().flat_map(|group| group.waits.iter().map(move |wait| (group, wait)))
    }

    /// Mean number of threads in waits of these kinds at a place.
    pub fn blocked_at(&self, kinds: &[WaitKind], place: &str) -> f64 {
        let threads = self.waits().filter(|(_, wait)| kinds.contains(&wait.kind) && wait.place == place);
        // A sum of no numbers is -0.0.
        threads.fold(0.0, |sum, (_, wait)| sum + wait.threads)
    }
}

/// Whether threads serve requests. Threads work by a timer if they sleep and never wait for work at any load, or if
/// they sleep much less often than requests come and do little of the server's work.
pub fn serves(all: &[AccountLevel], at: &AccountLevel, group: &GroupLevel) -> bool {
    let same = all.iter().flat_map(|level| &level.groups).filter(|one| one.name == group.name);
    let awake = group.waits.iter().filter(|wait| wait.kind != WaitKind::Sleep);
    let sleeps = group.waits.iter().filter(|wait| wait.kind == WaitKind::Sleep);
    let is_often = sleeps.map(|wait| wait.times_per_sec).sum::<f64>() >= LEAST_SLEEPS_AT_WORK * at.per_sec();
    let running: f64 = at.groups.iter().map(|group| group.running).sum();
    let does_most = group.running > 0.5 * running && group.running * 1e6 >= LEAST_REQUEST_US * at.per_sec();
    awake.map(|wait| wait.threads).sum::<f64>() >= 0.1 * group.threads
        || (is_often || does_most || !group.is_asleep())
            && same.flat_map(|one| &one.waits).any(|wait| wait.kind.is_idle())
}

/// The threads of a group that are handed work, without those of the same name that hand it out (Java's acceptors and
/// pollers, the first of several processes): the threads that listen at the lowest load, too.
pub fn workers(all: &[AccountLevel], group: &GroupLevel) -> GroupLevel {
    const LEAST_WORKERS: f64 = 2.0;
    let listens = |wait: &WaitLevel| matches!(wait.kind, WaitKind::Events | WaitKind::Requests);
    let listeners =
        |group: &GroupLevel| -> f64 { group.waits.iter().filter(|wait| listens(wait)).map(|wait| wait.threads).sum() };
    let lowest = all.iter().find(|level| level.requests.is_some());
    let mut workers = group.clone();
    if let Some(low) = lowest.and_then(|low| low.group(&group.name))
        && low.blocked(WaitKind::Work) + low.blocked(WaitKind::Input) >= LEAST_WORKERS
    {
        let listeners = listeners(low).min(listeners(group));
        workers.waits.retain(|wait| !listens(wait));
        (workers.threads, workers.idle) = (group.threads - listeners, group.idle - listeners);
    }
    workers
}

impl GroupLevel {
    /// `1 thread of nginx`, `8 threads of java: worker`.
    pub fn label(&self) -> String {
        format!("{} of {}", count(self.threads.round().max(1.0) as usize, "thread"), self.name)
    }

    /// Mean number of threads in waits of a kind.
    pub fn blocked(&self, kind: WaitKind) -> f64 {
        self.waits.iter().filter(|wait| wait.kind == kind).map(|wait| wait.threads).sum()
    }

    /// Whether the threads are asleep for most of the time.
    pub fn is_asleep(&self) -> bool {
        self.blocked(WaitKind::Sleep) >= 0.5 * self.threads
    }

    /// Mean number of threads that were runnable without a CPU.
    pub fn ready(&self) -> f64 {
        self.ready_own + self.ready_others + self.ready_stopped + self.ready_moved
    }

    /// Share of the threads' time in which they were not blocked without work.
    pub fn busy_ratio(&self) -> f64 {
        1.0 - self.idle / self.threads.max(1e-9)
    }
}

impl WaitLevel {
    /// Mean time of a wait, nanoseconds.
    pub fn each_ns(&self) -> f64 {
        self.threads / self.times_per_sec.max(1e-9) * 1e9
    }

    /// `20.0 waits/s, 5.00 ms each, the longest 9.00 ms`.
    pub fn rate_and_length(&self) -> String {
        format!(
            "{} waits/s, {} each, the longest {}",
            format_si(self.times_per_sec),
            format_nanos(self.each_ns()),
            format_nanos(self.longest_ms * 1e6)
        )
    }
}

impl RequestLevel {
    /// Difference between the places' sum and the requests in flight, as a share of the latter.
    pub fn open_ratio(&self) -> f64 {
        self.places.iter().map(|place| place.requests).sum::<f64>() / self.in_flight - 1.0
    }
}
