use super::*;

pub(super) const RULE: Rule = Rule {
    id: "unequal-workers",
    cause: "one of several processes is slower than the others, or the only full one",
    evidence: "the account: each process's time with and without work at the highest load under strain; requests \
               by process",
    threshold: "at least twice the time of the median process for a request, busy for at least 70 % of the time, \
                not mostly in locks or sleeps that were not there at the lowest load; or one process without idle \
                time, and the median one busy for at most 70 % of it",
    refuted_by: "a different process is full in each run",
    remedy: "one queue for all processes, connections that may change process, equal CPUs for each",
    source: "Little's law; socket(7), SO_REUSEPORT: connections are spread by a hash, regardless of each one's load",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "forks"],
    judge: |evidence| evidence.limit_by("unequal-workers"),
};

const SLOWER: f64 = 2.0;

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let groups = || reading.high.groups.iter().filter(|group| group.processes.len() > 1);
    groups().find_map(|group| slow_one(reading, group)).or_else(|| groups().find_map(|group| full_one(reading, group)))
}

/// A process that takes several times as long per request as the median one, and has little idle time.
fn slow_one(reading: &AccountRange<'_>, group: &GroupLevel) -> Option<FoundLimit> {
    let at_work = group.processes.iter().filter(|one| one.us_per_request().is_some());
    let mut by_time: Vec<(f64, &ProcessLevel)> =
        at_work.map(|one| (one.us_per_request().unwrap_or(0.0), one)).collect();
    by_time.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (slowest_us, slowest) = *by_time.first()?;
    let others: Vec<f64> = by_time.iter().skip(1).map(|(us, _)| *us).collect();
    let typical_us = median(&others)?;
    if slowest_us < SLOWER * typical_us || slowest.busy_ratio < LITTLE_IDLE {
        return None;
    }
    // A lock may be unfair.
    if lock::wait_for_each_other(reading, group) {
        return None;
    }
    let because = format!(
        "One process is slower than the others: at {} process {} of {} took {} of its threads' time for a request \
         ({}/s), the other {} {} (median). Connections that stay with it wait for it.",
        reading.at_high(),
        slowest.pid,
        group.name,
        format_nanos(slowest_us * 1e3),
        format_si(slowest.requests_per_sec.unwrap_or(0.0)),
        others.len(),
        format_nanos(typical_us * 1e3),
    );
    compare_processes(because, &[slowest.pid])
}

fn full_one(reading: &AccountRange<'_>, group: &GroupLevel) -> Option<FoundLimit> {
    let mut busy: Vec<(u32, f64)> = group.processes.iter().map(|one| (one.pid, one.busy_ratio)).collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1));
    let full: Vec<u32> = busy.iter().take_while(|(_, busy)| *busy >= reading.full).map(|(pid, _)| *pid).collect();
    let rest: Vec<f64> = busy.iter().skip(full.len()).map(|(_, busy)| *busy).collect();
    let (least, most) = range(&rest)?;
    // A process that only starts the others and waits for them does not count.
    let others = rest.iter().filter(|busy| **busy > 0.01).count();
    if full.is_empty() || others == 0 || busy.get(busy.len() / 2).is_none_or(|(_, busy)| *busy > LITTLE_IDLE) {
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
        reading.at_high(),
        pids.join(", "),
        group.name,
        rest.len(),
    );
    compare_processes(because, &full)
}

fn compare_processes(because: String, pids: &[u32]) -> Option<FoundLimit> {
    let pids: Vec<String> = pids.iter().take(4).map(u32::to_string).collect();
    let command = format!("ps -o pid,psr,pcpu,args -p {}", pids.join(","));
    let remedy = format!(
        "To try: compare its work and its CPU with the others' (`{command}`); connections stay with one process \
         (SO_REUSEPORT, accept in turn) even if it is slow: let all processes accept from one queue, or close \
         connections after some requests."
    );
    FoundLimit::new(RULE.id, because, remedy, &[command])
}
