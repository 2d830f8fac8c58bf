//! Finds the full stage from the account: as load rises, requests queue at one place, and the stage after it has no
//! idle time left. The cause is what fills that stage's time; waits elsewhere are consequences.

use super::NEARLY_FULL;
use super::command::server_pid;
use super::evidence::{Evidence, typical};
use super::rules::{
    Finding, backend, backend_pool, finding, lock, neighbour, slow_file, slow_readers, unequal_workers, worker_pool,
};
use analyze::account::{AccountLevel, GroupLevel, PlaceKind, RequestLevel, WaitLevel, serves, workers};
use analyze::zones::load_words;
use record::account::WaitKind;
use record::{SlowPlace, Sweep, names};

/// Least share of the requests added by load that wait at one place, for it to be the queue before the limit.
const QUEUE_GROWTH: f64 = 0.4;
/// Least number of requests added between the two loads.
const LEAST_ADDED: f64 = 1.0;
/// Least share of a stage's time in one kind of wait, for that wait to be the cause.
const MOST_OF_IT: f64 = 0.4;
/// Least share of the time of threads that mostly run, without filling a CPU, for a wait to be named.
const MIXED: f64 = 0.1;
/// Share of the server's CPUs in use by its threads from which the CPUs are the limit. Interrupts take the rest.
const MOSTLY_RUNNING: f64 = 0.8;
/// Busy share from which on a process, or the connections to another server, have little idle time.
pub const LITTLE_IDLE: f64 = 0.7;

/// The limit of the server.
pub struct FoundLimit {
    pub rule: &'static str,
    pub finding: Finding,
}

impl FoundLimit {
    pub fn new(rule: &'static str, because: String, remedy: String, commands: &[String]) -> Option<FoundLimit> {
        Some(FoundLimit { rule, finding: finding(because, remedy, commands)? })
    }

    /// As [`Finding::dearer`].
    pub fn dearer(self, place: SlowPlace, at_once: f64) -> Option<FoundLimit> {
        Some(FoundLimit { finding: self.finding.dearer(place, at_once)?, ..self })
    }

    /// As [`Finding::proven_if`].
    fn proven_if(self, is_proven: bool) -> Option<FoundLimit> {
        Some(FoundLimit { finding: self.finding.proven_if(is_proven)?, ..self })
    }
}

/// The accounts between which the limit is searched.
pub struct AccountRange<'a> {
    /// The last load before the strain.
    pub low: &'a AccountLevel,
    /// The highest load under strain.
    pub high: &'a AccountLevel,
    pub all: &'a [AccountLevel],
    sweep: Sweep,
    /// Busy share from which on a stage is full.
    pub full: f64,
    pub pid: String,
}

/// Whether the account is kept at the loads that matter.
pub fn is_kept(evidence: &Evidence<'_>) -> bool {
    evidence.strained().iter().any(|point| point.account.is_some())
}

/// The limit that the account shows under strain. `None` if there is none, or if the server's CPUs or the client are
/// the limit.
pub fn limit(evidence: &Evidence<'_>) -> Option<FoundLimit> {
    let from = evidence.strained_from()?;
    let all = evidence.accounts();
    let strained = || all.iter().rev().filter(|level| level.load >= from);
    let before = all.iter().rev().find(|level| level.load < from && level.requests.is_some());
    let low = before.or(all.iter().find(|level| level.requests.is_some())).or(all.first())?;
    // At higher loads, requests may wait on the path, because connections are dropped.
    let is_at_server = |level: &&AccountLevel| queue(low, level).is_some_and(|(kind, _)| kind != PlaceKind::Client);
    let known = || strained().filter(|level| level.requests.is_some());
    let at_server = || known().filter(is_at_server);
    let highest = at_server().next().or(known().next()).or(strained().next())?;
    if runs_on_all_cpus(evidence, highest) {
        return None;
    }
    let reading = range(evidence, low, highest)?;
    let nearly = AccountRange { full: NEARLY_FULL, ..range(evidence, low, highest)? };
    limit_at(&reading)
        .or_else(|| at_server().skip(1).find_map(|high| hidden_at(evidence, low, high, highest)))
        .or_else(|| idle_at(evidence, &reading))
        .or_else(|| limit_at(&nearly)?.proven_if(false))
}

/// The limit that threads show at a lower load, if they are full at the highest one, too, but mostly without a CPU:
/// where very many threads compete for the CPUs, it is hidden.
fn hidden_at(
    evidence: &Evidence<'_>,
    low: &AccountLevel,
    high: &AccountLevel,
    highest: &AccountLevel,
) -> Option<FoundLimit> {
    let (_, share) = queue(low, high)?;
    let reading = range(evidence, low, high)?;
    let found = reading.full_threads_of(|group| {
        let same = highest.group(&group.name);
        same.is_some_and(|same| same.busy_ratio() >= reading.full && same.ready() >= MOST_OF_IT * same.threads)
    })?;
    found.proven_if(share >= QUEUE_GROWTH)
}

/// What the idle threads of an idle server wait for.
fn idle_at(evidence: &Evidence<'_>, reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let (_, share) = queue(reading.low, reading.high)?;
    let is_idle = evidence.is_saturated(&evidence.strained()) == Some(false);
    lock::full(reading, WaitKind::Work).filter(|_| is_idle)?.proven_if(share >= QUEUE_GROWTH)
}

fn range<'a>(evidence: &'a Evidence<'_>, low: &'a AccountLevel, high: &'a AccountLevel) -> Option<AccountRange<'a>> {
    Some(AccountRange {
        low,
        high,
        all: evidence.accounts(),
        sweep: evidence.sweep()?.sweep,
        full: evidence.criteria().saturation_ratio,
        pid: server_pid(evidence.run).to_string(),
    })
}

/// The limit that the account of a load under strain shows.
fn limit_at(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let Some((kind, share)) = queue(reading.low, reading.high) else {
        // If no request was answered under strain, only the threads show the place.
        let is_silent = reading.high.requests.is_none();
        return is_silent.then(|| reading.full_threads()).flatten()?.proven_if(false);
    };
    let found = match kind {
        PlaceKind::Lock => lock::full(reading, WaitKind::Lock),
        PlaceKind::File | PlaceKind::Pipe => slow_file::full(reading),
        PlaceKind::Backend => backend::full(reading),
        PlaceKind::Send => slow_readers::full(reading),
        PlaceKind::Queue
        | PlaceKind::Parked
        | PlaceKind::Unread
        | PlaceKind::Rest
        | PlaceKind::Sleep
        | PlaceKind::Ready => reading.behind_queue(),
        _ => None,
    };
    found?.proven_if(share >= QUEUE_GROWTH)
}

/// Whether the server's own threads fill its CPUs. The CPUs are then the limit, and threads wait for each other because
/// none gets a CPU.
fn runs_on_all_cpus(evidence: &Evidence<'_>, level: &AccountLevel) -> bool {
    let points = evidence.strained();
    let running: f64 = level.groups.iter().map(|group| group.running).sum();
    let cpus = typical(&points, names::SERVER_CPUS).unwrap_or(f64::INFINITY);
    evidence.are_cpus_full(&points) == Some(true) && running >= MOSTLY_RUNNING * cpus
}

/// The kind of place where most of the requests added by load wait, and its share of them.
fn queue(low: &AccountLevel, high: &AccountLevel) -> Option<(PlaceKind, f64)> {
    let (low, high) = (low.requests.as_ref()?, high.requests.as_ref()?);
    let added = high.in_flight - low.in_flight;
    if added < LEAST_ADDED {
        return None;
    }
    let sum = |level: &RequestLevel, kind: PlaceKind| -> f64 {
        level.places.iter().filter(|place| place.kind == kind).map(|place| place.requests).sum()
    };
    let grown = |kind: PlaceKind| (kind, (sum(high, kind) - sum(low, kind)) / added);
    PlaceKind::ALL.into_iter().map(grown).max_by(|a, b| a.1.total_cmp(&b.1))
}

impl<'a> AccountRange<'a> {
    /// The highest load under strain, in words.
    pub fn at_high(&self) -> String {
        load_words(self.high.load, self.sweep)
    }

    /// The last load before the strain, in words.
    pub fn at_low(&self) -> String {
        load_words(self.low.load, self.sweep)
    }

    /// The lowest load at which the places of the requests are known.
    pub fn lowest(&self) -> Option<&'a AccountLevel> {
        self.all.iter().find(|level| level.requests.is_some())
    }

    /// The first load from which on the threads have no idle time, in words.
    pub fn full_since(&self, group: &GroupLevel) -> String {
        self.since(|level| level.group(&group.name).is_some_and(|same| same.busy_ratio() >= self.full))
    }

    /// The first load from which on a condition holds, in words.
    pub fn since(&self, holds: impl Fn(&AccountLevel) -> bool) -> String {
        let from = self.all.iter().rev().take_while(|level| holds(level)).last();
        load_words(from.map_or(self.high.load, |level| level.load), self.sweep)
    }

    /// The threads without idle time that make most of the calls in progress.
    pub fn waiting_at_backends(&self, calls: f64) -> Option<&'a GroupLevel> {
        let is_waiting = |group: &&GroupLevel| {
            group.busy_ratio() >= self.full && group.blocked(WaitKind::Backend) >= LITTLE_IDLE * calls
        };
        self.high.groups.iter().find(is_waiting)
    }

    fn behind_queue(&self) -> Option<FoundLimit> {
        let of_threads = || unequal_workers::full(self).or_else(|| self.full_threads());
        backend_pool::full(self).or_else(of_threads).or_else(|| backend_pool::full_to_own(self))
    }

    fn full_threads(&self) -> Option<FoundLimit> {
        self.full_threads_of(|_| true)
    }

    fn full_threads_of(&self, is_wanted: impl Fn(&GroupLevel) -> bool) -> Option<FoundLimit> {
        let is_full = |group: &&GroupLevel| group.threads >= 0.5 && group.busy_ratio() >= self.full && is_wanted(group);
        let serves = |group: &&GroupLevel| serves(self.all, self.high, group);
        // Threads that wait for another process of the server are full only because that process is.
        let waits_for_own = |group: &&GroupLevel| {
            let most = group.waits.iter().max_by(|a, b| a.threads.total_cmp(&b.threads));
            self.high.asked().next().is_none() && most.is_some_and(|wait| wait.kind == WaitKind::Backend)
        };
        let groups: Vec<GroupLevel> = self.high.groups.iter().map(|group| workers(self.all, group)).collect();
        let group = groups.iter().filter(is_full).filter(serves).find(|group| !waits_for_own(group))?;
        let (work, ready) = (group.threads - group.idle, group.ready());
        let waits = || group.waits.iter().filter(|wait| !wait.kind.is_idle());
        let most = waits().max_by(|a, b| a.threads.total_cmp(&b.threads));
        let most_threads = most.map_or(0.0, |wait| wait.threads);
        let is_in_file = most.is_some_and(|most| {
            matches!(most.kind, WaitKind::File | WaitKind::Pipe) && most_threads >= group.running.max(ready)
        });
        if !is_in_file && group.running >= MOST_OF_IT * work || group.running >= most_threads.max(ready) {
            let is_blocking = |wait: &&WaitLevel| {
                use WaitKind::{Backend, File, Pipe, Send, Sleep};
                matches!(wait.kind, File | Pipe | Sleep | Backend | Send)
            };
            let most = most.filter(is_blocking).filter(|most| most.threads >= ready.max(MIXED * work))?;
            let is_cpu_full = group.running >= self.full * group.threads;
            return if is_cpu_full { None } else { worker_pool::full(self, group, most, work) };
        }
        if ready > most_threads {
            return (group.ready_others >= MOST_OF_IT * work).then(|| neighbour::full(self, group, work)).flatten();
        }
        // A sleep is the weakest evidence, and its process may differ from the working one.
        let named = waits().filter(|wait| wait.kind != WaitKind::Sleep && wait.threads >= LITTLE_IDLE * most_threads);
        let most = named.max_by(|a, b| a.threads.total_cmp(&b.threads)).or(most)?;
        match most.kind {
            WaitKind::File | WaitKind::Pipe => slow_file::full_of(self, group, most),
            // The rule `paging` reads these.
            WaitKind::Memory => None,
            WaitKind::Backend => backend_pool::full(self).or_else(|| backend::full(self)),
            WaitKind::Lock => lock::full(self, WaitKind::Lock),
            WaitKind::Send => {
                slow_readers::full_of(self, group, most).or_else(|| worker_pool::full(self, group, most, work))
            }
            _ => worker_pool::full(self, group, most, work),
        }
    }
}
