use super::*;

pub(super) const RULE: Rule = Rule {
    id: "lock",
    cause: "threads wait for each other (a lock, a semaphore, a pool)",
    evidence: "the account: requests whose threads were blocked by a lock (futex, flock, semaphore) that another \
               thread released, by load",
    threshold: "most of the requests added by load (at least 1) waited like this, or for threads without idle time \
                (criterion `saturation_ratio`) that mostly waited like this; at least half a waiting thread more than \
                before the strain, and a wait for every 100 requests; a possibility below 40 % of the added requests; \
                or half of the time of a full pool's threads for a request are sleeps that were not there at the \
                lowest load",
    refuted_by: "the stacks on the page show threads that wait for work, not for a lock",
    remedy: "a shorter time under the lock, or several locks; the page has the stacks of the threads that waited \
             and of those that released it",
    source: "futex(2); Gunther (2007): contention keeps throughput flat while CPUs are idle",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge: |evidence| evidence.limit_by("lock"),
};

const LEAST_GROWN: f64 = 0.5;
/// Least number of added threads that wait at one place, apparently for work, per added request.
const SEMAPHORE_GROWTH: f64 = 0.6;
/// Least number of waits per request for a full lock. A parked thread also waits now and then.
const LEAST_WAITS_PER_REQUEST: f64 = 0.01;

/// Kinds of waits that another thread ends. In each window the functions on the stacks tell a lock from work that is
/// handed out, so by load both kinds are compared together.
const BY_ANOTHER: [WaitKind; 2] = [WaitKind::Lock, WaitKind::Work];

/// Threads that wait for work get more of it as load rises. If instead more of them wait at one place, about as many as
/// there are more requests, they wait for each other there.
pub fn full(reading: &AccountRange<'_>, kind: WaitKind) -> Option<FoundLimit> {
    let before = |place: &str| reading.low.blocked_at(&BY_ANOTHER, place);
    let locks = reading.high.waits().filter(|(_, wait)| wait.kind == kind);
    let grown = |wait: &WaitLevel| wait.threads - before(&wait.place);
    let (group, wait) = locks.max_by(|a, b| grown(a.1).total_cmp(&grown(b.1)))?;
    let added = reading.high.in_flight() - reading.low.in_flight();
    let least_grown = if kind == WaitKind::Lock { LEAST_GROWN } else { LEAST_GROWN.max(SEMAPHORE_GROWTH * added) };
    if grown(wait) < least_grown || wait.times_per_sec < LEAST_WAITS_PER_REQUEST * reading.high.per_sec() {
        return None;
    }
    let before = before(&wait.place);
    let since = reading.since(|level| level.blocked_at(&BY_ANOTHER, &wait.place) >= 1.0);
    let names: String = [(&wait.place, ""), (&wait.function, "in ")]
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, before)| format!("{before}{name}, "))
        .collect();
    let names = names.strip_suffix(", ").map_or(String::new(), |names| format!("{names}; "));
    let (holder, others) = others(group, wait);
    let because = format!(
        "A lock is full from {since} on{holder}: at {} {:.1} of the {:.0} threads of {} waited for it at any time \
         ({names}{} waits/s, the longest {}), {before:.1} at {}.{others}",
        reading.at_high(),
        wait.threads,
        group.threads,
        group.name,
        format_si(wait.times_per_sec),
        format_nanos(wait.longest_ms * 1e6),
        reading.at_low(),
    );
    let remedy = if wait.place.ends_with(ADDRESS_SPACE) {
        "To try: let each request make fewer mappings, by an allocator that keeps large blocks (glibc: \
         GLIBC_TUNABLES=glibc.malloc.mmap_threshold=67108864:glibc.malloc.trim_threshold=268435456), by buffers \
         that are reused, or use processes instead of threads."
    } else {
        "To try: hold it for a shorter time (no sleep, file access or call to another server inside it), or divide it; \
         if it is a semaphore or a pool, let more in. The page has the stacks of the threads that waited and of those \
         that released it."
    };
    let found = FoundLimit::new(RULE.id, because, remedy.into(), &[])?;
    match kind {
        _ if wait.place.ends_with(ADDRESS_SPACE) => found.dearer(SlowPlace::KernelLock, 1.0),
        WaitKind::Lock if wait.place.starts_with("futex") => found.dearer(SlowPlace::Lock, 1.0),
        _ => Some(found),
    }
}

/// Share of the threads' time for a request from which on waits that were not there at the lowest load are most of it.
const MOSTLY_WAITS: f64 = 0.5;

/// Whether most of the threads' time for a request are sleeps and locks that were not there at the lowest load.
pub fn wait_for_each_other(reading: &AccountRange<'_>, group: &GroupLevel) -> bool {
    let waits = |group: &GroupLevel| group.blocked(WaitKind::Sleep) + group.blocked(WaitKind::Lock);
    let Some(lowest) = reading.lowest().filter(|lowest| lowest.per_sec() > 0.0) else { return false };
    let before = lowest.group(&group.name).map_or(0.0, waits) / lowest.per_sec();
    let grown = waits(group) - before * reading.high.per_sec();
    grown >= MOSTLY_WAITS * (group.threads - group.idle)
}

/// Threads that sleep only at higher loads and then try again, as SQLite's busy handler does.
pub fn polled(reading: &AccountRange<'_>, group: &GroupLevel, sleep: &WaitLevel) -> Option<FoundLimit> {
    let since = reading.full_since(group);
    let (_, others) = others(group, sleep);
    let function = if sleep.function.is_empty() { String::new() } else { format!(" in {}", sleep.function) };
    let because = format!(
        "Threads wait for each other and try again from {since} on: at {} {:.1} of the {:.0} threads of {} were asleep \
         at any time ({}{function}; {} waits/s, {} each), {:.1} at {}.{others}",
        reading.at_high(),
        sleep.threads,
        group.threads,
        group.name,
        sleep.place,
        format_si(sleep.times_per_sec),
        format_nanos(sleep.each_ns()),
        reading.low.blocked_at(&[WaitKind::Sleep], &sleep.place),
        reading.at_low(),
    );
    let remedy = "To try: find what they try (a lock on a file or a database, a full queue, a rate) in the stacks on \
                  the page, and hold it for a shorter time, wait for it without a sleep, or divide it.";
    FoundLimit::new(RULE.id, because, remedy.into(), &[])
}

/// The place where the holder probably is, and the states of the threads that did not wait. The holder is among them.
fn others(group: &GroupLevel, wait: &WaitLevel) -> (String, String) {
    let rest = || group.waits.iter().filter(|one| one.place != wait.place && !one.kind.is_idle() && one.threads >= 0.3);
    let most = |is_lock: bool| {
        let of_kind = rest().filter(|one| BY_ANOTHER.contains(&one.kind) == is_lock);
        of_kind.max_by(|a, b| a.threads.total_cmp(&b.threads))
    };
    // Who waits for another lock holds this one only if nobody is blocked in anything else.
    let held = most(false).or_else(|| most(true));
    match (held, group.running) {
        (Some(held), running) if held.threads > running => (
            format!(", probably held in {}", held.place),
            format!(" Meanwhile {:.1} were in {}: look there first.", held.threads, held.place),
        ),
        (_, running) => (String::new(), format!(" Meanwhile {running:.1} ran.")),
    }
}
