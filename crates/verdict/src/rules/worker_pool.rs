use super::*;

pub(super) const RULE: Rule = Rule {
    id: "worker-pool",
    cause: "a fixed pool of workers is busy",
    evidence: "the account: idle and blocked time of the threads with one name; requests in progress",
    threshold: "most of the requests added by load (at least 1) were queued in the server or asleep; threads with one \
                name had no idle time (criterion `saturation_ratio`; a possibility from 85 % busy) and filled no CPU; \
                they were mostly blocked in something other than a lock, a file or another server, or for a fifth of \
                it in a file, a sleep, a backend or a full send buffer while they ran for the rest; not if they were \
                as many as the requests at two lower loads, and as many as here at no other; a possibility below 40 % \
                of the added requests",
    refuted_by: "throughput stays the same with more workers",
    remedy: "more workers in its configuration, or shorter waits; `grep -H . /proc/PID/task/*/comm` names its \
             threads",
    source: "Little's law",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "stopped"],
    judge: |evidence| evidence.limit_by("worker-pool"),
};

/// Least number of requests in progress per thread of a full pool.
const LEAST_PER_THREAD: f64 = 1.05;
/// Idle share of the threads' time up to which they have no idle time.
const NO_IDLE_TIME: f64 = 0.1;

/// Whether there are as many threads as requests at two lower loads or more, and no other load with as many threads as
/// here: connections of more threads may only have come too late.
fn follows_requests(reading: &AccountRange<'_>, group: &GroupLevel) -> bool {
    let others = || reading.all.iter().filter(|level| level.load != reading.high.load && level.in_flight() >= 1.5);
    let threads = |level: &&AccountLevel| level.group(&group.name).map_or(0.0, |same| same.threads);
    let follows = |level: &&AccountLevel| {
        let (threads, requests) = (threads(level), level.in_flight());
        threads <= 0.8 * group.threads && (threads - requests).abs() <= 1.0 + 0.1 * requests
    };
    let is_same = |level: &&AccountLevel| (0.9..=1.1).contains(&(threads(level) / group.threads));
    others().filter(follows).count() >= 2 && !others().any(|level| is_same(&level))
}

pub fn full(reading: &AccountRange<'_>, group: &GroupLevel, most: &WaitLevel, work: f64) -> Option<FoundLimit> {
    let in_flight = reading.high.requests.as_ref()?.in_flight;
    // If each request has a thread, more threads do not help.
    if in_flight < LEAST_PER_THREAD * group.threads {
        return None;
    }
    if follows_requests(reading, group) {
        return None;
    }
    // Threads beyond the number of requests serve none: they poll for work.
    let lowest = reading.lowest()?;
    let asleep = lowest.group(&group.name).map_or(0.0, |same| same.blocked(WaitKind::Sleep));
    if most.kind == WaitKind::Sleep && asleep > lowest.in_flight() + 1.0 {
        return None;
    }
    if most.kind == WaitKind::Sleep && lock::wait_for_each_other(reading, group) {
        return lock::polled(reading, group, most);
    }
    let since = reading.full_since(group);
    let idle = 1.0 - group.busy_ratio();
    let idle = if idle <= NO_IDLE_TIME { "no".to_string() } else { percent(idle) };
    let because = format!(
        "The server has a fixed pool, which is full from {since} on: {} had {idle} idle time at {}, while {:.1} \
         requests were in progress. Its threads spent {} of that time in {}{}, {} waiting for a CPU, and {} running.",
        group.label(),
        reading.at_high(),
        in_flight,
        percent(most.threads / work),
        most.place,
        if most.function.is_empty() { String::new() } else { format!(" ({})", most.function) },
        percent(group.ready() / work),
        percent(group.running / work),
    );
    let command = format!("grep -H . /proc/{}/task/*/comm", reading.pid);
    let remedy = format!(
        "To try: more workers (threads, processes) in its configuration, or shorter waits in {}; the page has the \
         stacks. `{command}` names the threads.",
        most.place
    );
    FoundLimit::new(RULE.id, because, remedy, &[command])?.dearer(SlowPlace::Request, group.threads.round())
}
