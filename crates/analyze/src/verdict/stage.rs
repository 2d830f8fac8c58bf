//! Reads the full stage from the account: requests queue at one place as load rises, and the stage after it has no
//! idle time left. The cause is whatever fills that stage's time; waits elsewhere are consequences.

use super::Certainty;
use super::command::{quoted, server_pid};
use super::evidence::{Evidence, typical};
use super::judge::{Finding, finding};
use crate::account::{AccountLevel, BackendLevel, GroupLevel, PlaceKind, ProcessLevel, WaitLevel};
use crate::zones::{load_words, percent};
use record::account::{ENDED, WaitKind};
use record::units::{count, format_nanos, format_si, grouped};
use record::{Sweep, names};

/// Least share of the requests added by load with which a queue is the one before the limit.
const QUEUE_GROWTH: f64 = 0.4;
/// Least number of requests added between the two loads.
const LEAST_ADDED: f64 = 1.0;
/// Least share of a stage's time that makes one kind of wait the content of the stage.
const MOST_OF_IT: f64 = 0.4;
/// Least growth of the number of threads that wait for a full lock.
const LEAST_GROWN: f64 = 0.5;
/// Threads that wait at one place for work, as it seems, beyond those at the low load, over the requests added.
const SEMAPHORE_GROWTH: f64 = 0.6;
/// Requests under way over the threads of a pool that is full, at least.
const LEAST_PER_THREAD: f64 = 1.05;
/// CPUs that the server's threads run on over those that it may use, from which on these are its limit; interrupts take
/// the rest.
const MOSTLY_RUNNING: f64 = 0.8;
/// Least number of waits for a full lock per request: a parked thread waits now and then, too.
const LEAST_WAITS_PER_REQUEST: f64 = 0.01;
/// Least growth of the time of a call with which the other server is the full one.
const CALL_GROWTH: f64 = 2.0;
/// Least time of the slowest process for a request over that of the median one.
const SLOWER: f64 = 2.0;
/// Largest busy share of the median process when the busiest of several like processes is full.
const OTHERS_BUSY: f64 = 0.7;

/// The limit of the server.
pub(super) struct Limit {
    rule: &'static str,
    finding: Finding,
}

/// A stage and its used share.
struct Reading<'a> {
    low: &'a AccountLevel,
    high: &'a AccountLevel,
    all: &'a [AccountLevel],
    sweep: Sweep,
    full: f64,
    pid: String,
}

/// Whether the account is kept at the loads that matter.
pub(super) fn is_kept(evidence: &Evidence<'_>) -> bool {
    evidence.strained().iter().any(|point| point.account.is_some())
}

/// The limit by the account of the loads under strain; `None` if the server's CPUs or the client are the limit,
/// without a limit, or if the account does not show it.
pub(super) fn limit(evidence: &Evidence<'_>) -> Option<Limit> {
    let sweep = evidence.sweep()?;
    let from = evidence.strained_from()?;
    let all = evidence.accounts();
    let strained = || all.iter().rev().filter(|level| level.load >= from);
    let high = strained().find(|level| level.requests.is_some()).or(strained().next())?;
    if runs_on_all_cpus(evidence, high) {
        return None;
    }
    let before = all.iter().rev().find(|level| level.load < from && level.requests.is_some());
    let low = before.or(all.iter().find(|level| level.requests.is_some())).or(all.first())?;
    let reading = Reading {
        low,
        high,
        all,
        sweep: sweep.sweep,
        full: evidence.criteria().saturation_ratio,
        pid: server_pid(evidence.run).to_string(),
    };
    let (found, is_clear) = match reading.queue() {
        // Without an answered request under strain only the threads show the place.
        None if high.requests.is_none() => (reading.full_threads(), false),
        None => return None,
        Some((kind, share)) => {
            let found = match kind {
                PlaceKind::Lock => reading.lock(),
                PlaceKind::File | PlaceKind::Pipe => reading.file(),
                PlaceKind::Backend => reading.backend(),
                PlaceKind::Queue | PlaceKind::Unread | PlaceKind::Rest | PlaceKind::Sleep | PlaceKind::Ready => {
                    reading.behind_queue()
                }
                _ => None,
            };
            let is_idle = evidence.is_saturated(&evidence.strained()) == Some(false);
            let found = found.or_else(|| reading.lock_of(WaitKind::Work).filter(|_| is_idle));
            (found, share >= QUEUE_GROWTH)
        }
    };
    let mut found = found?;
    if !is_clear {
        found.finding.certainty = Certainty::Possibility;
    }
    Some(found)
}

/// Whether the server's own threads fill its CPUs: then these are the limit, and threads wait for each other because
/// none of them gets a CPU.
fn runs_on_all_cpus(evidence: &Evidence<'_>, level: &AccountLevel) -> bool {
    let points = evidence.strained();
    let running: f64 = level.groups.iter().map(|group| group.running).sum();
    let cpus = typical(&points, names::SERVER_CPUS).unwrap_or(f64::INFINITY);
    evidence.are_cpus_full(&points) == Some(true) && running >= MOSTLY_RUNNING * cpus
}

/// The finding of a rule, if it is the limit.
pub(super) fn found(evidence: &Evidence<'_>, rule: &str) -> Option<Finding> {
    evidence.limit().filter(|limit| limit.rule == rule).map(|limit| limit.finding.clone())
}

/// Requests wait inside the server while its threads have idle time, and nothing that they wait for was seen.
pub(super) fn own_limit(evidence: &Evidence<'_>) -> Option<Finding> {
    const LEAST_WAITING: f64 = 0.5;
    const MOST_AT_BACKENDS: f64 = 0.5;
    // Other work delays requests as well.
    if evidence.unquiet().is_some() {
        return None;
    }
    let from = evidence.strained_from()?;
    let high = evidence.accounts().iter().rfind(|level| level.load >= from && level.requests.is_some())?;
    let requests = high.requests.as_ref()?;
    let is_inside = |kind| {
        matches!(kind, PlaceKind::Unread | PlaceKind::Queue | PlaceKind::Rest | PlaceKind::Sleep | PlaceKind::Lock)
    };
    let inside: f64 = requests.places.iter().filter(|place| is_inside(place.kind)).map(|place| place.requests).sum();
    let at_backends: f64 = high.backends.iter().map(|backend| backend.busy).sum();
    if inside < LEAST_WAITING * requests.in_flight || at_backends >= MOST_AT_BACKENDS || evidence.limit().is_some() {
        return None;
    }
    let at_a_time = super::waits::at_a_time(evidence)?;
    let because = format!(
        "It works on {}, while {:.1} were inside it at {} and no CPU, thread, lock, file or other server was full.",
        at_a_time.words(),
        inside.min(requests.in_flight),
        load_words(high.load, evidence.sweep()?.sweep),
    );
    let remedy = format!(
        "To try: look in its configuration and code for what lets so many go on (a semaphore, a channel, a pool of \
         connections, a limit of the rate), or for one thing that each request needs for {}; throughput grows with a \
         higher limit if that is it.",
        at_a_time.each()
    );
    let mut found = finding(because, remedy, &[])?;
    found.certainty = Certainty::Possibility;
    Some(found)
}

/// CPUs of the machine that the server may not use.
pub(super) fn affinity(evidence: &Evidence<'_>) -> Option<Finding> {
    const IDLE_CPUS: f64 = 0.25;
    const MOST_USED: f64 = 0.85;
    let record = &evidence.run.record;
    let machine = record.machine.cpus as f64;
    let given = record.scenario.server().map_or(&[][..], |server| &server.cpus);
    // The CPUs that the server was not given are the client's.
    let (had, list) = match given {
        [] => (machine, format!("0-{}", machine - 1.0)),
        given => (given.len() as f64, record::machine::cpu_list(given)),
    };
    let points = evidence.strained();
    let allowed = record.server_facts.get("allowed_cpus").map(|list| record::machine::cpus_of_list(list));
    let kept = allowed.map(|cpus| cpus.iter().filter(|cpu| given.contains(cpu)).count() as f64);
    let (cpus, is_full) = match kept.filter(|kept| *kept > 0.0 && !given.is_empty()) {
        // CPUs that were given are measured together.
        Some(kept) => (kept, typical(&points, names::SERVER_CPUS_USED)? >= MOST_USED * kept),
        None => (typical(&points, names::SERVER_CPUS)?, evidence.are_cpus_full(&points) == Some(true)),
    };
    let idle = typical(&points, names::MACHINE_IDLE)? * machine - (machine - had);
    if cpus >= had || idle < IDLE_CPUS || !is_full {
        return None;
    }
    let command = format!("taskset -apc {list} {}", server_pid(evidence.run));
    finding(
        format!(
            "The server may run on {} of {} CPUs{} only, and fills {}, while {idle:.2} CPUs are idle.",
            grouped(cpus),
            grouped(had),
            if given.is_empty() { " of the machine" } else { " that it was given" },
            if cpus == 1.0 { "it" } else { "them" }
        ),
        format!(
            "To try: `{command}` gives it all; its configuration (`worker_cpu_affinity`, `cpuset.cpus`, \
             `CPUAffinity=`, `--cpuset-cpus`) makes that last."
        ),
        std::slice::from_ref(&command),
    )
}

/// An event loop sometimes works for long between two waits; requests that arrive meanwhile wait for all of it.
pub(super) fn blocked_loop(evidence: &Evidence<'_>) -> Option<Finding> {
    const LEAST_MS: f64 = 10.0;
    const TIMES: f64 = 20.0;
    const LOADS: usize = 2;
    // Threads of Node's engine compile and collect garbage; one of them waits for timers.
    const OF_A_HELPER: f64 = 0.1;
    let waits_for_events = |group: &&GroupLevel| {
        let events = group.waits.iter().filter(|wait| wait.kind == WaitKind::Events);
        events.map(|wait| wait.times_per_sec).sum::<f64>() > 0.0
    };
    // Other threads of the program that wait for events, and work, serve requests that arrive meanwhile.
    let program = |group: &GroupLevel| group.name.split([':', '(']).next().map(|name| name.trim_end().to_string());
    let has_others = |group: &GroupLevel| {
        let all = || evidence.accounts().iter().flat_map(|level| &level.groups);
        let is_other = |other: &&GroupLevel| other.name != group.name && program(other) == program(group);
        let own: f64 = all().filter(|one| one.name == group.name).map(|one| one.running).sum();
        let others: f64 = all().filter(waits_for_events).filter(is_other).map(|one| one.running).sum();
        others > OF_A_HELPER * own
    };
    let is_alone =
        |group: &&GroupLevel| group.threads < 1.5 * group.processes.len().max(1) as f64 && !has_others(group);
    let longest = |level: &AccountLevel| {
        let loops = level.groups.iter().filter(waits_for_events).filter(is_alone);
        let group = loops.into_iter().find(|group| group.longest_work_ms >= LEAST_MS)?;
        Some((group.name.clone(), group.work_ms, group.longest_work_ms))
    };
    // With few connections the thread waits after each request; a full loop always works without a pause.
    let lowest: Vec<_> = evidence.accounts().iter().take(LOADS).map(longest).collect::<Option<_>>()?;
    let (name, mean_ms, first_ms) = lowest.first()?;
    if lowest.len() < LOADS || *first_ms < TIMES * mean_ms {
        return None;
    }
    let (least, most) = crate::statistics::range(&lowest.iter().map(|(.., longest)| *longest).collect::<Vec<_>>())?;
    let port =
        evidence.run.record.scenario.load().and_then(|load| load.addresses.first()).map(|address| address.port());
    let command = format!("straingauge profile :{}", port.map_or("PORT".into(), |port| port.to_string()));
    finding(
        format!(
            "One thread of {name} serves all connections, and at the lowest loads it worked for {} to {} without a \
             pause at least once, where it usually works for {}: every request that came meanwhile waited for that.",
            format_nanos(least * 1e6),
            format_nanos(most * 1e6),
            format_nanos(mean_ms * 1e6),
        ),
        format!(
            "To try: move that work to a thread or process of its own, or divide it into pieces; `{command}` under \
             load names its functions."
        ),
        std::slice::from_ref(&command),
    )
}

impl Reading<'_> {
    /// The kind of place that took up most of the requests added by load, and its part of them.
    fn queue(&self) -> Option<(PlaceKind, f64)> {
        let (low, high) = (self.low.requests.as_ref()?, self.high.requests.as_ref()?);
        let added = high.in_flight - low.in_flight;
        if added < LEAST_ADDED {
            return None;
        }
        let sum = |level: &crate::account::RequestLevel, kind: PlaceKind| -> f64 {
            level.places.iter().filter(|place| place.kind == kind).map(|place| place.requests).sum()
        };
        let grown = |kind: PlaceKind| (kind, (sum(high, kind) - sum(low, kind)) / added);
        PlaceKind::ALL.into_iter().map(grown).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The first load from which on a condition holds, in words.
    fn since(&self, holds: impl Fn(&AccountLevel) -> bool) -> String {
        let from = self.all.iter().rev().take_while(|level| holds(level)).last();
        load_words(from.map_or(self.high.load, |level| level.load), self.sweep)
    }

    /// The wait of a kind with the most threads.
    fn wait(&self, kinds: &[WaitKind]) -> Option<(&GroupLevel, &WaitLevel)> {
        let waits = self.high.groups.iter().flat_map(|group| group.waits.iter().map(move |wait| (group, wait)));
        let of_kind = waits.filter(|(_, wait)| kinds.contains(&wait.kind));
        of_kind.max_by(|a, b| a.1.threads.total_cmp(&b.1.threads))
    }

    /// Number of threads in the same kind of wait at another load.
    fn threads_at(level: &AccountLevel, kinds: &[WaitKind], place: &str) -> f64 {
        let waits = level.groups.iter().flat_map(|group| &group.waits);
        let threads = waits.filter(|wait| kinds.contains(&wait.kind) && wait.place == place).map(|wait| wait.threads);
        // A sum of no numbers is -0.0.
        threads.fold(0.0, |sum, threads| sum + threads)
    }

    fn lock(&self) -> Option<Limit> {
        self.lock_of(WaitKind::Lock)
    }

    /// Threads that wait for work get more of it as load rises: where more of them wait at one place, for about as many
    /// more requests, they wait for each other there.
    fn lock_of(&self, kind: WaitKind) -> Option<Limit> {
        // A thread that is handed work by a futex without a known function waits equally long at every load.
        let before = |place: &str| Self::threads_at(self.low, &[kind], place);
        let waits = self.high.groups.iter().flat_map(|group| group.waits.iter().map(move |wait| (group, wait)));
        let locks = waits.filter(|(_, wait)| wait.kind == kind);
        let grown = |wait: &WaitLevel| wait.threads - before(&wait.place);
        let (group, wait) = locks.max_by(|a, b| grown(a.1).total_cmp(&grown(b.1)))?;
        let rate = self.high.requests.as_ref().map_or(0.0, |requests| requests.in_flight / requests.response_us * 1e6);
        let in_flight = |level: &AccountLevel| level.requests.as_ref().map_or(0.0, |requests| requests.in_flight);
        let added = in_flight(self.high) - in_flight(self.low);
        let least_grown = if kind == WaitKind::Lock { LEAST_GROWN } else { LEAST_GROWN.max(SEMAPHORE_GROWTH * added) };
        if grown(wait) < least_grown || wait.times_per_sec < LEAST_WAITS_PER_REQUEST * rate {
            return None;
        }
        let before = before(&wait.place);
        let since = self.since(|level| Self::threads_at(level, &[kind], &wait.place) >= 1.0);
        let which = named(&wait.place, &wait.function);
        let others = self.others(group, wait);
        let because = format!(
            "A lock is full from {since} on: at {} {:.1} of the {:.0} threads of {} waited for it at any time \
             ({which}; {} waits/s, the longest {}), {before:.1} at {}.{others}",
            load_words(self.high.load, self.sweep),
            wait.threads,
            group.threads,
            group.name,
            format_si(wait.times_per_sec),
            format_nanos(wait.longest_ms * 1e6),
            load_words(self.low.load, self.sweep),
        );
        let remedy = "To try: hold it for less (no sleep, file or call to another server inside it), or divide it; the \
                      page has the stacks of those that waited and of those that released it.";
        limit_of("lock", because, remedy.into(), &[])
    }

    /// States of the threads that did not wait: the holder is among them.
    fn others(&self, group: &GroupLevel, wait: &WaitLevel) -> String {
        let rest = group.waits.iter().filter(|one| one.place != wait.place && !one.kind.is_idle());
        let held = rest.max_by(|a, b| a.threads.total_cmp(&b.threads)).filter(|one| one.threads >= 0.3);
        let word = |one: &WaitLevel| format!("{:.1} were in {}", one.threads, one.place);
        match (held, group.running) {
            (Some(held), running) if held.threads > running => format!(" Meanwhile {}: look there first.", word(held)),
            (_, running) => format!(" Meanwhile {running:.1} ran."),
        }
    }

    fn file(&self) -> Option<Limit> {
        let kinds = [WaitKind::File, WaitKind::Pipe];
        let (group, wait) = self.wait(&kinds)?;
        self.file_of(group, wait)
    }

    fn file_of(&self, group: &GroupLevel, wait: &WaitLevel) -> Option<Limit> {
        let before = Self::threads_at(self.low, &[wait.kind], &wait.place);
        let what = if wait.kind == WaitKind::Pipe { "the reader of a pipe" } else { "a file" };
        let call = wait.place.split(' ').next().unwrap_or("");
        let advice = match call {
            _ if wait.kind == WaitKind::Pipe => "a reader that keeps up, or write it buffered",
            call if call.contains("sync") => "one sync for several requests, or a faster device",
            call if call.contains("read") => {
                "more memory for the cache of files, a faster device, or more threads that read"
            }
            _ => "write it buffered (nginx `access_log FILE combined buffer=64k flush=1s`), or to another device",
        };
        let path = wait.place.split_once(' ').map_or("", |(_, path)| path);
        let commands = if path.starts_with('/') { vec![format!("findmnt -T {}", quoted(path))] } else { Vec::new() };
        let device =
            commands.first().map_or(String::new(), |command| format!("; `{command}` says on which device it lies"));
        let because = format!(
            "The server waits for {what}: at {} {:.2} of {} were blocked in {} at any time ({} waits/s, {} each, the \
             longest {}), {before:.2} at {}; {:.2} ran.",
            load_words(self.high.load, self.sweep),
            wait.threads,
            threads_words(group),
            wait.place,
            format_si(wait.times_per_sec),
            format_nanos(wait.each_ns()),
            format_nanos(wait.longest_ms * 1e6),
            load_words(self.low.load, self.sweep),
            group.running,
        );
        limit_of("slow-file", because, format!("To try: {advice}{device}."), &commands)
    }

    /// The other server with the most calls under way, and the same at the lowest load.
    fn busiest_backend(&self) -> Option<(&BackendLevel, Option<&BackendLevel>)> {
        let high = self.high.backends.first()?;
        let first = self.all.iter().find(|level| level.requests.is_some())?;
        Some((high, first.backends.iter().find(|one| one.address == high.address)))
    }

    fn backend(&self) -> Option<Limit> {
        let (high, low) = self.busiest_backend()?;
        let at = load_words(self.high.load, self.sweep);
        let before =
            low.map_or(String::new(), |low| format!(", {} at the lowest load", format_nanos(low.call_us * 1e3)));
        let facts = format!(
            "at {at} {:.1} of {} to {} had a call under way at any time; a call took {}{before}, {} calls/s",
            high.busy,
            count(high.connections.round() as usize, "connection"),
            high.address,
            format_nanos(high.call_us * 1e3),
            format_si(high.calls_per_sec)
        );
        let (because, advice) = if is_slower(high, low) {
            (
                format!("The backend {} is full: {facts}. Its answers take longer the more it is asked.", high.address),
                "then more of it, or fewer and cheaper requests to it",
            )
        } else {
            (
                format!("The server waits for its backend {}: {facts}.", high.address),
                "then a quicker answer, fewer requests to it, or an answer that is kept",
            )
        };
        let kind = high.address.split_once(':').map_or("", |(kind, _)| kind);
        let (command, alone) = match kind {
            "unix" => ("ss -xlp".into(), "shows how many connections wait for it (Recv-Q)"),
            "udp" => ("ss -uanp".into(), "shows who answers there, and its queue (Recv-Q)"),
            _ => (format!("straingauge find http://{}/", high.address), "measures it alone"),
        };
        let advice = if kind == "udp" && high.address.ends_with(":53") {
            "it is a name server: look names up once, or keep the answers (nscd, systemd-resolved, dnsmasq)"
        } else {
            advice
        };
        limit_of("backend", because, format!("To try: `{command}` {alone}; {advice}."), std::slice::from_ref(&command))
    }

    /// All connections to another server are in use while requests queue in this one.
    fn exhausted(&self) -> Option<Limit> {
        let (high, low) = self.busiest_backend()?;
        let in_flight = self.high.requests.as_ref()?.in_flight;
        let is_used = |one: &BackendLevel, in_flight: f64| {
            one.busy >= OTHERS_BUSY * one.connections && one.connections < OTHERS_BUSY * in_flight
        };
        if !is_used(high, in_flight) {
            return None;
        }
        // Datagrams need no pool of connections; threads wait for each answer.
        if is_slower(high, low) || high.address.starts_with("udp:") {
            return self.backend();
        }
        let since = self.since(|level| {
            let in_flight = level.requests.as_ref().map_or(0.0, |requests| requests.in_flight);
            level.backends.iter().any(|one| one.address == high.address && is_used(one, in_flight))
        });
        let before =
            low.map_or(String::new(), |low| format!(" ({} at the lowest load)", format_nanos(low.call_us * 1e3)));
        let because = format!(
            "The pool of connections to {} is exhausted from {since} on: at {} {:.1} of its {:.0} connections had a \
             call under way at any time, while {:.1} requests were under way. The backend itself answers in \
             {}{before}.",
            high.address,
            load_words(self.high.load, self.sweep),
            high.busy,
            high.connections,
            in_flight,
            format_nanos(high.call_us * 1e3),
        );
        let remedy = format!(
            "To try: more than {:.0} connections in the pool, or fewer calls a request; the backend is not the limit \
             yet.",
            high.connections
        );
        limit_of("backend-pool", because, remedy, &[])
    }

    /// The stage that takes requests from the queue.
    fn behind_queue(&self) -> Option<Limit> {
        self.exhausted().or_else(|| self.unequal()).or_else(|| self.full_threads())
    }

    /// One of several like processes is slower than the others, or full while they are not.
    fn unequal(&self) -> Option<Limit> {
        let groups = || self.high.groups.iter().filter(|group| group.processes.len() > 1);
        groups().find_map(|group| self.slow_one(group)).or_else(|| groups().find_map(|group| self.full_one(group)))
    }

    /// A process takes several times as long for a request as the median one, and has little idle time.
    fn slow_one(&self, group: &GroupLevel) -> Option<Limit> {
        let at_work = group.processes.iter().filter(|one| one.us_per_request().is_some());
        let mut by_time: Vec<(f64, &ProcessLevel)> =
            at_work.map(|one| (one.us_per_request().unwrap_or(0.0), one)).collect();
        by_time.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (slowest_us, slowest) = *by_time.first()?;
        let others: Vec<f64> = by_time.iter().skip(1).map(|(us, _)| *us).collect();
        let typical_us = crate::statistics::median(&others)?;
        if slowest_us < SLOWER * typical_us || slowest.busy_ratio < OTHERS_BUSY {
            return None;
        }
        let because = format!(
            "One process is slower than the others: at {} process {} of {} took {} of its threads' time for a request \
             ({}/s), the other {} {} (median). Connections that stay with it wait for it.",
            load_words(self.high.load, self.sweep),
            slowest.pid,
            group.name,
            format_nanos(slowest_us * 1e3),
            format_si(slowest.requests_per_sec.unwrap_or(0.0)),
            others.len(),
            format_nanos(typical_us * 1e3),
        );
        self.compare_processes(because, &[slowest.pid])
    }

    fn full_one(&self, group: &GroupLevel) -> Option<Limit> {
        let mut busy: Vec<(u32, f64)> = group.processes.iter().map(|one| (one.pid, one.busy_ratio)).collect();
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        let full: Vec<u32> = busy.iter().take_while(|(_, busy)| *busy >= self.full).map(|(pid, _)| *pid).collect();
        let rest: Vec<f64> = busy.iter().skip(full.len()).map(|(_, busy)| *busy).collect();
        let (least, most) = crate::statistics::range(&rest)?;
        // A process that only starts the others and waits for them does not count.
        let others = rest.iter().filter(|busy| **busy > 0.01).count();
        if full.is_empty() || others == 0 || busy.get(busy.len() / 2).is_none_or(|(_, busy)| *busy > OTHERS_BUSY) {
            return None;
        }
        let range = match (percent(least), percent(most)) {
            (least, most) if least == most => least,
            (least, most) => format!("{least} to {most}"),
        };
        let pids: Vec<String> = full.iter().take(4).map(u32::to_string).collect();
        let because = format!(
            "The work is divided unequally: at {} process {} of {} was busy all the time, the other {} {range} of it. \
             Requests queue at the full one while the others have room.",
            load_words(self.high.load, self.sweep),
            pids.join(", "),
            group.name,
            rest.len(),
        );
        self.compare_processes(because, &full)
    }

    fn compare_processes(&self, because: String, pids: &[u32]) -> Option<Limit> {
        let pids: Vec<String> = pids.iter().take(4).map(u32::to_string).collect();
        let command = format!("ps -o pid,psr,pcpu,args -p {}", pids.join(","));
        let remedy = format!(
            "To try: compare its work and its CPU with the others' (`{command}`); connections that stay with one \
             process (SO_REUSEPORT, accept in turn) are not moved when it is slow: let all accept from one queue, or \
             close connections after some requests."
        );
        limit_of("unequal-workers", because, remedy, &[command])
    }

    /// Threads without idle time.
    fn full_threads(&self) -> Option<Limit> {
        let is_full = |group: &&GroupLevel| group.threads >= 0.5 && group.busy_ratio() >= self.full;
        // Threads that sleep and never wait for work, at any load, work by a timer and serve no request.
        let serves = |group: &&GroupLevel| {
            let same = self.all.iter().flat_map(|level| &level.groups).filter(|one| one.name == group.name);
            let awake = group.waits.iter().filter(|wait| wait.kind != WaitKind::Sleep);
            awake.map(|wait| wait.threads).sum::<f64>() >= 0.1 * group.threads
                || same.flat_map(|one| &one.waits).any(|wait| wait.kind.is_idle())
        };
        let group = self.high.groups.iter().filter(is_full).find(serves)?;
        let (work, ready) = (group.threads - group.idle, group.ready());
        let waits = || group.waits.iter().filter(|wait| !wait.kind.is_idle());
        let most = waits().max_by(|a, b| a.threads.total_cmp(&b.threads));
        let most_threads = most.map_or(0.0, |wait| wait.threads);
        if group.running >= MOST_OF_IT * work || group.running >= most_threads.max(ready) {
            return None;
        }
        if ready > most_threads {
            return (group.ready_others >= MOST_OF_IT * work).then(|| self.neighbour(group, work)).flatten();
        }
        // A sleep is the weakest evidence, and may belong to another process than the one at work.
        let named = waits().filter(|wait| wait.kind != WaitKind::Sleep && wait.threads >= OTHERS_BUSY * most_threads);
        let most = named.max_by(|a, b| a.threads.total_cmp(&b.threads)).or(most)?;
        match most.kind {
            WaitKind::File | WaitKind::Pipe => return self.file_of(group, most),
            // The rule `paging` reads these.
            WaitKind::Memory => return None,
            WaitKind::Backend => {
                return self.exhausted().or_else(|| self.backend());
            }
            WaitKind::Lock => return self.lock(),
            _ => {}
        }
        self.pool(group, most, work)
    }

    /// Threads were runnable while other work had the CPU.
    fn neighbour(&self, group: &GroupLevel, work: f64) -> Option<Limit> {
        let because = format!(
            "Other work has the server's CPUs: at {} {} had no idle time: {} of it ready to run while something else \
             had the CPU, {} running.",
            load_words(self.high.load, self.sweep),
            threads_words(group),
            percent(group.ready_others / work),
            percent(group.running / work),
        );
        let command = format!("cat /proc/{}/cgroup", self.pid);
        let remedy = format!(
            "To try: stop that work (the doubts name the busiest), CPUs of its own for the server, or more weight for \
             its control group (`{command}` names it; `cpu.weight`, `CPUWeight=` of systemd)."
        );
        limit_of("neighbour", because, remedy, &[command])
    }

    fn pool(&self, group: &GroupLevel, most: &WaitLevel, work: f64) -> Option<Limit> {
        let in_flight = self.high.requests.as_ref()?.in_flight;
        // Where each request has a thread, more threads are no remedy.
        if in_flight < LEAST_PER_THREAD * group.threads {
            return None;
        }
        let since = self.since(|level| {
            let same = level.groups.iter().find(|one| one.name == group.name);
            same.is_some_and(|same| same.busy_ratio() >= self.full)
        });
        let because = format!(
            "The server has a fixed pool, which is full from {since} on: {} had no idle time at {}, while {:.1} \
             requests were under way. Of that time {} was in {}{}, {} ready without a CPU, {} running.",
            threads_words(group),
            load_words(self.high.load, self.sweep),
            in_flight,
            percent(most.threads / work),
            most.place,
            if most.function.is_empty() { String::new() } else { format!(" ({})", most.function) },
            percent(group.ready() / work),
            percent(group.running / work),
        );
        let command = format!("grep -H . /proc/{}/task/*/comm", self.pid);
        let remedy = format!(
            "To try: more workers (threads, processes) in its configuration, or shorter waits in {}; the page has the \
             stacks. `{command}` names its threads.",
            most.place
        );
        limit_of("worker-pool", because, remedy, &[command])
    }
}

/// Whether a call takes much longer than at the lowest load.
fn is_slower(high: &BackendLevel, low: Option<&BackendLevel>) -> bool {
    low.is_some_and(|low| low.call_us > 0.0 && high.call_us >= CALL_GROWTH * low.call_us)
}

fn limit_of(rule: &'static str, because: String, remedy: String, commands: &[String]) -> Option<Limit> {
    Some(Limit { rule, finding: finding(because, remedy, commands)? })
}

/// `1 thread of nginx`, `8 threads of java: worker`.
fn threads_words(group: &GroupLevel) -> String {
    let count = group.threads.round().max(1.0);
    format!("{} thread{} of {}", grouped(count), if count == 1.0 { "" } else { "s" }, group.name)
}

/// A lock by the function that uses it, or by its address.
fn named(place: &str, function: &str) -> String {
    if function.is_empty() { place.into() } else { format!("{place}, in {function}") }
}

/// Every stage of the server, how full it was at the highest load under strain, and why it is not the limit.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Checked {
    /// Name of the stage: a CPU, a pool of threads, a queue, a limit.
    pub stage: String,
    /// Used share of the stage's capacity (1 = full).
    pub used_ratio: f64,
    /// Whether the stage is full: at the criterion of saturation or above.
    pub is_full: bool,
}

/// The stages that were checked.
pub(super) fn checked(evidence: &Evidence<'_>) -> Vec<Checked> {
    let points = evidence.strained();
    let full = evidence.criteria().saturation_ratio;
    let mut all = Vec::new();
    let mut add = |stage: String, used: Option<f64>| {
        let used = used.filter(|used| used.is_finite());
        all.extend(used.map(|used_ratio| Checked { stage, used_ratio, is_full: used_ratio >= full }));
    };
    let figure = |name: &str| typical(&points, name);
    add("the server's CPUs".into(), figure(names::SERVER_CPU_BUSY));
    add("its busiest thread".into(), figure(names::SERVER_BUSIEST_THREAD));
    add("its limit of CPU time".into(), figure(names::SERVER_QUOTA_USED));
    add("its descriptors".into(), figure(names::SERVER_DESCRIPTORS));
    let queue = figure(names::ACCEPT_QUEUE_MAX).zip(figure(names::ACCEPT_QUEUE_LIMIT));
    add("its accept queue".into(), queue.map(|(longest, limit)| longest / limit));
    add("the network link".into(), figure(names::NET_LINK_USED));
    add("the client's CPUs".into(), figure(names::CLIENT_UTILISATION));
    let level = evidence.accounts().last();
    let is_stage = |group: &&GroupLevel| group.threads - group.idle >= 0.01 && !group.name.starts_with(ENDED);
    for group in level.iter().flat_map(|level| &level.groups).filter(is_stage) {
        add(threads_words(group), Some(group.busy_ratio()));
    }
    for backend in level.iter().flat_map(|level| &level.backends) {
        let count = grouped(backend.connections.round());
        add(format!("{count} connections to {}", backend.address), Some(backend.busy / backend.connections));
    }
    all
}
