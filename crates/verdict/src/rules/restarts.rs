//! The server's processes end under load, and others take their place.

use super::*;
use record::account::ENDED;
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    id: "restarts",
    cause: "the server's processes end and are replaced under load",
    evidence: "the account: ids of the processes of each group of threads; processes that ended",
    threshold: "at two loads or more, and two thirds of those whose threads did something, twice as many processes of \
                a name, with idle time, as were alive at a time, at least two more; processes ended in an account of \
                the run",
    refuted_by: "the processes of the server have the same ids before and after a load",
    remedy: "more requests per process (gunicorn `--max-requests`, uWSGI `max-requests`, PHP-FPM `pm.max_requests`, \
             Apache `MaxConnectionsPerChild`); if no limit ends them, the server's log",
    source: "documentation of gunicorn, PHP-FPM and Apache: a worker ends after a number of requests, and the next one \
             loads the program anew",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client", "forks", "memory-limit", "server-log"],
    judge,
};

const TIMES: f64 = 2.0;
const MOST_LOADS: f64 = 2.0 / 3.0;
const LEAST_LOADS: usize = 2;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let levels = evidence.accounts();
    let ended = |level: &AccountLevel| level.groups.iter().any(|group| group.name.starts_with(ENDED));
    if !levels.iter().any(ended) {
        return None;
    }
    let names: BTreeSet<&str> =
        levels.iter().flat_map(|level| &level.groups).map(|group| group.name.as_str()).collect();
    let replaced = |name: &str| {
        // A process that ended in the window has lost the name of its program.
        let is_of = |group: &&GroupLevel| {
            let ended = group.name.strip_prefix(ENDED).and_then(|rest| rest.strip_prefix(": "));
            group.name == name || ended.is_some_and(|threads| name.starts_with(threads))
        };
        let of_load = |level: &AccountLevel| {
            level.group(name)?;
            let groups = || level.groups.iter().filter(is_of);
            // A child for one request never waits for the next.
            let processes = groups().flat_map(|group| &group.processes).filter(|process| process.busy_ratio < 1.0);
            let seen: BTreeSet<u32> = processes.map(|process| process.pid).collect();
            let longest_ms = groups().map(|group| group.longest_work_ms).fold(0.0, f64::max);
            Some((groups().map(|group| group.threads).sum::<f64>().max(1.0), seen, longest_ms))
        };
        let of: Vec<(f64, BTreeSet<u32>, f64)> = levels.iter().filter_map(of_load).collect();
        let is_more =
            |(alive, seen, _): &&(f64, BTreeSet<u32>, f64)| seen.len() as f64 >= f64::max(TIMES * alive, alive + 2.0);
        let more = of.iter().filter(is_more).count();
        (more >= LEAST_LOADS && more as f64 >= MOST_LOADS * of.len() as f64).then(|| {
            let all: BTreeSet<u32> = of.iter().flat_map(|(_, seen, _)| seen).copied().collect();
            let at_once = of.iter().map(|(alive, ..)| *alive).fold(0.0, f64::max);
            (all.len(), at_once, of.iter().map(|(.., longest)| *longest).fold(0.0, f64::max))
        })
    };
    let is_named = |name: &&str| !name.starts_with(ENDED) && !name.ends_with("parent");
    let named = names.into_iter().filter(is_named);
    let (name, (seen, at_once, longest_ms)) = named.filter_map(|name| Some((name, replaced(name)?))).next()?;
    let longest = if longest_ms >= 10.0 {
        format!("; one worked for {} without a pause", format_nanos(longest_ms * 1e6))
    } else {
        String::new()
    };
    finding(
        format!(
            "Processes of the server ended while it was measured, and others took their place: {} of {name} were seen \
             in the accounts of {}, at most {at_once:.1} at a time. Each begins by loading the program, which takes \
             CPU time, and requests fail or wait meanwhile{longest}.",
            count(seen, "process"),
            count(levels.len(), "load"),
        ),
        "To try: let each process serve more requests (gunicorn `--max-requests`, uWSGI `max-requests`, PHP-FPM \
         `pm.max_requests`, Apache `MaxConnectionsPerChild`); if no such limit is set, its log says why they end."
            .into(),
        &[],
    )
}
