//! Requests wait inside the server while its threads have idle time, and no resource that they wait for was seen.

use super::super::concurrency::{Concurrency, LEAST_PER_SLOT, at_a_time};
use super::*;
use analyze::account::{RequestLevel, RequestPlace, serves};
use analyze::parked::ParkedLevel;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    id: "own-limit",
    cause: "a limit inside the program caps the number of concurrent requests",
    evidence: "the account: requests inside the server; idle time of its CPUs, threads and other servers; \
               throughput times the time of one request alone",
    threshold: "half of the requests in progress were inside the server at a load under strain; twice as many in \
                progress as it works on at a time by Little's law; no CPU, thread or client 85 % \
                busy or more, no other limit found, a quiet machine or 30 % idle time; a possibility unless as many \
                threads, to 10 %, are blocked at one place at three loads or more, the highest with four times as many \
                requests, or 60 % of those that it has read are goroutines, or threads of Java, at one place; the \
                processes are named if it works on one request in each that is busy, and two are idle",
    refuted_by: "throughput stays the same with a higher limit",
    remedy: "a higher limit: a semaphore, a channel, a pool of connections, a limit on requests or their rate",
    source: "Little's law; Lazowska and others, \"Quantitative System Performance\" (1984), section 5.2",
    is_limit: true,
    is_counted: false,
    hidden_by: &["stopped", "blocked-loop", "cpu-bursts", "slows-with-time"],
    judge,
};

/// Busy share of the server's CPUs, other work included, up to which other work does not delay requests much.
const BUSY_BESIDE_OTHERS: f64 = 0.7;
/// Share of the requests inside that are asleep in one call from which the sleep is named.
const MOSTLY_ASLEEP: f64 = 0.6;
/// Share of the threads of a name that are blocked at one place from which they are named as a part of all.
const MOSTLY_BLOCKED: f64 = 0.75;
/// Greatest difference between the threads blocked at one place at two loads, as a share, if their number is limited.
const AS_CONSTANT: f64 = 0.1;
/// Share of the time of threads without idle time in which they run, from which on they are the limit.
const MOSTLY_RUNS: f64 = 0.5;
/// Ratio of threads or processes to the requests that it works on, at which there are as many.
const AS_MANY: std::ops::RangeInclusive<f64> = 0.85..=1.15;
/// Busy share from which on a process works, alone and relative to the busiest.
const LEAST_BUSY_PROCESS: f64 = 0.01;
const AT_WORK: f64 = 0.1;
/// Least number of requests at a place that is named as the one where those at work are.
const LEAST_AT_WORK: f64 = 0.3;
/// Least number of goroutines or threads of Java that wait at the place that is the limit.
const LEAST_PARKED: f64 = 2.0;
/// One idle process may be the one that started the others.
const LEAST_IDLE_PROCESSES: usize = 2;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    const LEAST_WAITING: f64 = 0.5;
    const FEW_AT_BACKENDS: f64 = 0.5;
    // Other work delays requests, too, unless it leaves idle time.
    let busy = typical(&evidence.strained(), names::SERVER_CPU_BUSY);
    if evidence.unquiet().is_some() && busy.is_none_or(|busy| busy > BUSY_BESIDE_OTHERS) {
        return None;
    }
    let from = evidence.strained_from()?;
    let is_inside = |kind| {
        use PlaceKind::{Lock, Parked, Queue, Rest, Sleep, Unread};
        matches!(kind, Unread | Queue | Parked | Rest | Sleep | Lock)
    };
    let inside = |level: &AccountLevel| -> f64 {
        let places = level.requests.iter().flat_map(|requests| &requests.places);
        places.filter(|place| is_inside(place.kind)).map(|place| place.requests).sum()
    };
    // If a request takes longer than the watch's window, part of its time inside is not seen.
    let mostly_inside = |level: &&AccountLevel| {
        let requests = level.requests.as_ref().filter(|_| level.load >= from);
        requests.is_some_and(|requests| inside(level) >= LEAST_WAITING * requests.in_flight)
    };
    // Not every window sees what waits inside the program.
    let all = || evidence.accounts().iter().rev().filter(mostly_inside);
    let high = all().find(|level| parked(level, inside(level)).is_some()).or_else(|| all().next())?;
    let (requests, inside) = (high.requests.as_ref()?, inside(high));
    let parked = parked(high, inside);
    let asleep = most(requests, PlaceKind::Sleep).filter(|place| place.requests >= MOSTLY_ASLEEP * inside);
    let calls: f64 = high.asked().map(|backend| backend.busy).sum();
    let lowest = evidence.accounts().iter().find(|level| level.requests.is_some())?;
    let is_slower = |high: &BackendLevel| backend::is_slower(high, lowest.backend(&high.address));
    // If most requests wait at a backend, or if it is slower, it is the cause.
    let at_backends = calls >= FEW_AT_BACKENDS && (2.0 * calls > inside || high.asked().any(is_slower));
    let limits = |rule: &Rule| (rule.judge)(evidence).is_some_and(|finding| !finding.is_beyond_limit);
    let is_other = |rule: &Rule| rule.is_limit && rule.id != RULE.id && limits(rule);
    // A thread that works all the time, though it waits for a part of it, limits the server, too.
    let works = |group: &GroupLevel| {
        let is_full = group.busy_ratio() >= evidence.criteria().saturation_ratio;
        is_full && group.running >= MOSTLY_RUNS * group.threads && serves(evidence.accounts(), high, group)
    };
    // A thread that is full beside those that wait, as a compiler of Java is at first, is not what they wait for.
    let is_full = match parked {
        Some(_) => evidence.are_cpus_full(&evidence.strained()) == Some(true),
        None => evidence.limit().is_some() || high.groups.iter().any(works),
    };
    if at_backends || is_full || RULES.iter().any(is_other) {
        return None;
    }
    let at_a_time = at_a_time(evidence)?;
    // The server closed or refused further connections.
    if requests.in_flight < LEAST_PER_SLOT * at_a_time.count {
        return None;
    }
    let seen = match (asleep, &parked) {
        (None, Some((name, there))) => format!(", {there:.1} of them at one place: {name}{}", meanwhile(requests)),
        (Some(place), _) => {
            let name = place.name.replacen(": ", " in ", 1);
            let count = place.requests.min(inside).min(requests.in_flight);
            format!(", {count:.1} of them {name}, to try again or to keep to a rate")
        }
        (None, None) => " and no CPU, thread, lock, file or other server was full".into(),
    };
    let own = high.asked_of_own().filter(|one| one.busy >= MOSTLY_ASLEEP * inside);
    let own = own.min_by(|a, b| a.busy.total_cmp(&b.busy)).map(|own| {
        let call = format_nanos(own.call_us * 1e3);
        format!(" Of these, {:.1} waited for its process at {} ({call} a call).", own.busy, own.address)
    });
    // As many calls are in progress as requests that it works on.
    let is_capped = |one: &&BackendLevel| (0.8..=1.2).contains(&(one.busy / at_a_time.count));
    let capped = high.asked().chain(high.asked_of_own()).find(is_capped);
    let of_capped = capped.map(|one| {
        let connections = count(one.connections.round() as u64, "connection");
        format!(" As many calls to {} were in progress: {:.1}, on {connections}.", one.address, one.busy)
    });
    let is_elsewhere = asleep.is_some() || parked.is_some() || own.is_some() || capped.is_some();
    let only = only_processes(high, &at_a_time).filter(|_| !is_elsewhere);
    let blocked = as_many_waits(lowest, high, &at_a_time).filter(|_| own.is_none() && capped.is_none());
    let of_threads =
        || blocked.as_ref().map(|blocked| blocked.words.clone()).or_else(|| as_many_threads(high, &at_a_time));
    // However many requests there are, as many threads are blocked at one place.
    let is_constant = blocked.as_ref().is_some_and(|blocked| is_constant(evidence, blocked, from, &at_a_time));
    let at_peer = own.or(of_capped).or_else(|| of_threads().filter(|_| parked.is_none())).unwrap_or_default();
    let load = load_words(high.load, evidence.sweep()?.sweep);
    let waiting = inside.min(requests.in_flight);
    let works_on = at_a_time.phrase();
    let because = match &only {
        Some(only) => format!("{only}: it works on {works_on}, while {waiting:.1} were inside it at {load}."),
        None => format!("It works on {works_on}, while {waiting:.1} were inside it at {load}{seen}.{at_peer}"),
    };
    let each = at_a_time.each();
    let remedy = if asleep.is_some() {
        format!(
            "To try: find that sleep in its code or libraries (the page has the stacks): a lock that is tried again \
             (SQLite's busy timeout, a spin lock) is held for {each} by one request after another, so hold it for \
             less; a rate limit can be raised."
        )
    } else if let Some((name, _)) = parked {
        of_parked(name)
    } else if let Some(one) = capped {
        format!(
            "To try: more calls to {} at once (HAProxy `maxconn` of a server, nginx `max_conns`, a semaphore or a \
             pool around the client); see whether throughput grows.",
            one.address
        )
    } else if only.is_some() {
        "To try: let all processes take connections: one at a time each (Mojolicious `--accepts`, `multi_accept off`), \
         or SO_REUSEPORT; see whether throughput grows."
            .into()
    } else if let Some(blocked) = &blocked {
        format!(
            "To try: more of these threads if they are a pool (workers, `max_workers`), a higher limit (a semaphore), \
             or shorter waits in {}; see whether throughput grows.",
            blocked.place
        )
    } else {
        format!(
            "To try: look in its configuration and code for such a limit (a semaphore, a channel, a pool of \
             connections, a rate limit), or for a step of {each} that only one request takes at a time; raise the \
             limit and see whether throughput grows."
        )
    };
    finding(because, remedy, &[])?.proven_if(is_constant || parked.is_some())
}

/// The place of a kind with the most requests.
fn most(requests: &RequestLevel, kind: PlaceKind) -> Option<&RequestPlace> {
    let places = requests.places.iter().filter(|place| place.kind == kind);
    places.max_by(|a, b| a.requests.total_cmp(&b.requests))
}

/// The place in the program where most of the requests wait that it has read, and how many goroutines or threads of
/// Java wait there. Before a pool of threads, most requests are not yet read.
fn parked(level: &AccountLevel, inside: f64) -> Option<(&str, f64)> {
    let requests = level.requests.as_ref()?;
    let unread = most(requests, PlaceKind::Unread).map_or(0.0, |place| place.requests);
    let place = most(requests, PlaceKind::Parked)?;
    let (_, name) = place.name.split_once(": ")?;
    let there = level.parked.iter().find(|one| one.name() == name).map_or(place.requests, |one| one.count);
    let there = there.min(inside);
    (there >= LEAST_PARKED && there >= MOSTLY_ASLEEP * (inside - unread)).then_some((name, there))
}

/// Where the requests were that were not queued: what those who waited waited for.
fn meanwhile(requests: &RequestLevel) -> String {
    use PlaceKind::{Client, Parked, Queue, Rest, Unread, Written};
    let is_at_work = |kind| !matches!(kind, Client | Parked | Queue | Rest | Unread | Written);
    let places = requests.places.iter().filter(|place| is_at_work(place.kind) && place.requests >= LEAST_AT_WORK);
    let most = places.max_by(|a, b| a.requests.total_cmp(&b.requests));
    most.map_or(String::new(), |place| {
        format!("; meanwhile {:.1} were {}", place.requests, place.name.replacen(": ", " in ", 1))
    })
}

/// What to do about goroutines, or threads of Java, that wait at a place.
fn of_parked(place: &str) -> String {
    if place == ParkedLevel::READY {
        return "To try: a higher GOMAXPROCS (the default of a container with a small CPU limit may be 1), or fewer \
                calls that keep a thread."
            .into();
    }
    let is_lock = ["sync.Mutex", "sync.RWMutex", "semacquire", "synchronized", "Reentrant"]
        .iter()
        .any(|lock| place.starts_with(lock));
    let what = if is_lock {
        "hold that lock for a shorter time (no sleep, file access or call to another server inside it), or divide it"
    } else {
        "let more in there (a semaphore, a pool, a rate limit), or more that receive from that channel"
    };
    format!("To try: {what}; see whether throughput grows. The page has the stacks.")
}

/// The processes of a group that work, if there are as many as requests that the server works on, and others that are
/// idle.
fn only_processes(level: &AccountLevel, at_a_time: &Concurrency) -> Option<String> {
    level.groups.iter().find_map(|group| {
        let busiest = group.processes.iter().map(|one| one.busy_ratio).fold(LEAST_BUSY_PROCESS, f64::max);
        let working = group.processes.iter().filter(|one| one.busy_ratio >= AT_WORK * busiest).count();
        let all = group.processes.len();
        let is_one_each = AS_MANY.contains(&(working as f64 / at_a_time.count));
        (working > 0 && working + LEAST_IDLE_PROCESSES <= all && is_one_each).then(|| {
            let name = &group.name;
            format!("Only {working} of the {all} processes of {name} worked, the others were idle")
        })
    })
}

/// Threads of one name, if there are as many as requests that the server works on. Their waits do not show whether they
/// have a request if each of them waits at a place of its own (Java, Ruby).
fn as_many_threads(level: &AccountLevel, at_a_time: &Concurrency) -> Option<String> {
    let as_many = at_a_time.count;
    let is_equal = |group: &&GroupLevel| as_many >= 1.5 && AS_MANY.contains(&(group.threads / as_many));
    let mut groups = level.groups.iter().filter(is_equal);
    let group = groups.next().filter(|_| groups.next().is_none())?;
    Some(format!(" It has as many threads: {}. If these are its workers, it needs more of them.", group.label()))
}

/// Threads blocked at one place, of whatever names.
struct Blocked {
    kind: WaitKind,
    place: String,
    threads: f64,
    /// Threads that are blocked there without a request.
    without: f64,
    words: String,
}

/// The only place at which as many threads are blocked as requests that the server works on, without those that are
/// blocked there at the lowest load beyond its requests.
fn as_many_waits(lowest: &AccountLevel, level: &AccountLevel, at_a_time: &Concurrency) -> Option<Blocked> {
    let mut places: BTreeMap<(WaitKind, &str), Vec<(&GroupLevel, &WaitLevel)>> = BTreeMap::new();
    for (group, wait) in level.waits().filter(|(_, wait)| !wait.kind.is_idle()) {
        places.entry((wait.kind, &wait.place)).or_default().push((group, wait));
    }
    let without = |kind: WaitKind, place: &str| (lowest.blocked_at(&[kind], place) - lowest.in_flight()).max(0.0);
    let of_requests = |kind: WaitKind, place: &str| level.blocked_at(&[kind], place) - without(kind, place);
    let is_equal = |((kind, place), waits): &(&(WaitKind, &str), &Vec<(&GroupLevel, &WaitLevel)>)| {
        waits.iter().map(|(_, wait)| wait.times_per_sec).sum::<f64>() >= 0.5 * level.per_sec()
            && AS_MANY.contains(&(of_requests(*kind, place) / at_a_time.count))
    };
    let mut equal = places.iter().filter(is_equal);
    let ((kind, place), waits) = equal.next().filter(|_| equal.next().is_none())?;
    let (first, threads) = (waits[0].0, of_requests(*kind, place));
    let names: BTreeSet<&str> = waits.iter().map(|(group, _)| group.name.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let mostly = waits.len() == 1 && threads >= MOSTLY_BLOCKED * first.threads && threads < first.threads - 0.5;
    let all = if mostly { format!(" of its {:.0}", first.threads) } else { String::new() };
    let words = format!(" As many threads of {names} were in {place} at any time: {threads:.1}{all}.");
    Some(Blocked { kind: *kind, place: place.to_string(), threads, without: without(*kind, place), words })
}

/// Whether as many threads are blocked at the place at every load with at least twice as many requests, of at least
/// three, the highest of them four times as many.
fn is_constant(evidence: &Evidence<'_>, blocked: &Blocked, from: f64, at_a_time: &Concurrency) -> bool {
    let is_beyond = |level: &&AccountLevel| level.load >= from && level.in_flight() >= LEAST_PER_SLOT * at_a_time.count;
    let beyond: Vec<&AccountLevel> = evidence.accounts().iter().filter(is_beyond).collect();
    let is_as_many = |level: &&AccountLevel| {
        let threads = level.blocked_at(&[blocked.kind], &blocked.place) - blocked.without;
        (threads / blocked.threads - 1.0).abs() <= AS_CONSTANT
    };
    let most = beyond.iter().map(|level| level.in_flight()).fold(0.0, f64::max);
    blocked.threads >= 1.5
        && beyond.len() >= 3
        && most >= 2.0 * LEAST_PER_SLOT * at_a_time.count
        && beyond.iter().all(is_as_many)
}
