use super::garbage_collection::is_collector;
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "background",
    cause: "background work of the server takes CPU time",
    evidence: "the account: CPUs of the threads with one name, by load; the throughput",
    threshold: "at least three loads; at least 0.1 CPUs at each of them, at most 1.4 times the least of them, while \
                throughput and the CPU time of the server's other threads doubled, and their own waits did not; these \
                are fewer than half of the requests at the lowest load; at least a tenth of the server's CPU time at \
                the highest load; not the threads of a garbage collector",
    refuted_by: "these threads use less CPU time without load",
    remedy: "run that work less often, at another time, or on separate CPUs",
    source: "utilisation law: CPU time that does not grow with throughput belongs to no request",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

const LEAST_CPUS: f64 = 0.1;
const LEAST_LOADS: usize = 3;
/// Ratio of the highest to the lowest CPU time up to which it is the same at every load. That of a compiler at run time
/// falls.
const MOST_RATIO: f64 = 1.4;
const LEAST_GROWTH: f64 = 2.0;
const OTHERS_GROWTH: f64 = 2.0;
/// Waits per request at the lowest load from which on threads may wait for requests. Those of a busy pool wait less
/// often at higher loads.
const MOST_WAITS_PER_REQUEST: f64 = 0.5;
const LEAST_SHARE: f64 = 0.1;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let levels = evidence.accounts();
    let (first, last) = (levels.first()?, levels.last()?);
    let rate = |level: &AccountLevel| typical(&evidence.quiet_at(sweep.sweep, level.load), names::THROUGHPUT);
    let rates = range(levels.iter().filter_map(rate))?;
    let used = typical(&evidence.quiet_at(sweep.sweep, last.load), names::SERVER_CPUS_USED)?;
    if levels.len() < LEAST_LOADS || rates.1 < LEAST_GROWTH * rates.0 {
        return None;
    }
    let running = |level: &AccountLevel, name: &str| level.group(name).map_or(0.0, |group| group.running);
    let is_steady = |group: &&GroupLevel| {
        let cpus = range(levels.iter().map(|level| running(level, &group.name)));
        cpus.is_some_and(|(least, most)| least >= LEAST_CPUS && most <= MOST_RATIO * least)
    };
    // Threads that serve requests wait more often as throughput grows, even if a compiler makes requests cheaper.
    let wakes = |level: &AccountLevel, name: &str| {
        let waits = level.group(name).map(|group| group.waits.iter().map(|wait| wait.times_per_sec));
        waits.map_or(0.0, Iterator::sum)
    };
    let most_waits = MOST_WAITS_PER_REQUEST * rate(first)?;
    let is_of_requests = |group: &&GroupLevel| {
        let (before, after) = (wakes(first, &group.name), wakes(last, &group.name));
        after >= OTHERS_GROWTH * before.max(1.0) || before >= most_waits
    };
    let grows = |group: &GroupLevel| {
        let most = levels.iter().map(|level| running(level, &group.name)).fold(0.0, f64::max);
        most >= LEAST_CPUS && most >= OTHERS_GROWTH * running(first, &group.name)
    };
    let is_background = |group: &&GroupLevel| is_steady(group) && !is_of_requests(group) && !is_collector(group);
    let steady = first.groups.iter().filter(is_background);
    let group = steady.max_by(|a, b| a.running.total_cmp(&b.running))?;
    let (least, most) = range(levels.iter().map(|level| running(level, &group.name)))?;
    let share = running(last, &group.name) / used;
    if share < LEAST_SHARE || !last.groups.iter().any(grows) {
        return None;
    }
    let command = format!("top -H -p {}", server_pid(evidence.run));
    finding(
        format!(
            "Background work takes CPU time: the threads of {} used {least:.2} to {most:.2} CPUs at every load from {} \
             to {}, while throughput grew from {}/s to {}/s. That is {} of the server's CPU time at the highest.",
            group.name,
            load_words(first.load, sweep.sweep),
            load_words(last.load, sweep.sweep),
            format_si(rates.0),
            format_si(rates.1),
            percent(share)
        ),
        format!(
            "To try: run that work less often, at another time, or on separate CPUs (`taskset`); `{command}` shows its \
             threads, and `straingauge profile` their functions."
        ),
        &[command],
    )
}
