use super::*;
use record::account::ENDED;

pub(super) const RULE: Rule = Rule {
    id: "forks",
    cause: "a process or thread is started for each request",
    evidence: "`machine.started_per_sec` (the kernel counts processes and threads) against \
               `client.throughput_per_sec`, over all points; processes of the server that ended, in the account",
    threshold: "at least half a start per request: the slope of a straight line that explains 90 %, over at least 6 \
                points whose throughput differs by a factor of 1.5 or more; or, if processes of the server end at \
                every load, the same number of starts per request in each point within 30 %",
    refuted_by: "`perf trace -e clone,clone3,fork,vfork -s -p PID` counts fewer calls than requests",
    remedy: "long-lived processes or threads (FastCGI, a pool of workers); keep-alive if each connection has its own",
    source: "Stevens, Fenner and Rudoff, \"UNIX Network Programming\", chapter 30: a child process per client has the \
        highest cost",
    // Starting processes takes CPU time, so a CPU is the limit, or something else is.
    is_limit: false,
    is_counted: true,
    hidden_by: &["client"],
    judge,
};

const LEAST_STARTS: f64 = 0.5;
const LEAST_EXPLAINED: f64 = 0.9;
const LEAST_POINTS: usize = 6;
const LEAST_SPAN: f64 = 1.5;
const MOST_SPREAD: f64 = 1.3;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let starts = |point: &Point| {
        let is_load = point.sweep != Sweep::Yardstick && point.outcomes.completed() as f64 >= LEAST_REQUESTS;
        let pair = (point.value(names::THROUGHPUT)?, point.value(names::MACHINE_STARTED)?);
        (is_load && pair.0.is_finite() && pair.1.is_finite()).then_some(pair)
    };
    let points: Vec<(f64, f64)> = evidence.run.points.iter().filter_map(starts).collect();
    if points.len() < LEAST_POINTS {
        return None;
    }
    let (least, most) = range(points.iter().map(|(rate, _)| *rate))?;
    let by_line = || {
        let (each, explained) = line(&points)?;
        let is_clear = most >= LEAST_SPAN * least && explained >= LEAST_EXPLAINED;
        is_clear.then(|| (each, format!("a straight line over them explains {}", percent(explained))))
    };
    // If throughput is about the same at all loads, no line can be fitted; the account shows whose processes they are.
    let by_account = || {
        let ratios = points.iter().map(|(rate, starts)| starts / rate);
        let (fewest, largest) = range(ratios)?;
        let ends = |level: &AccountLevel| level.groups.iter().any(|group| group.name.starts_with(ENDED));
        let is_clear = largest <= MOST_SPREAD * fewest && !evidence.accounts().is_empty();
        (is_clear && evidence.accounts().iter().all(ends))
            .then(|| (fewest, "and processes of the server ended at every load".into()))
    };
    let enough = |(each, _): &(f64, String)| *each >= LEAST_STARTS;
    let (each, shown_by) = by_line().filter(enough).or_else(|| by_account().filter(enough))?;
    let command = format!("perf trace -e clone,clone3,fork,vfork -s -p {}", server_pid(evidence.run));
    finding(
        format!(
            "Each request starts {each:.1} processes or threads, in {} points with {}/s to {}/s ({shown_by}). Starting \
             and ending them is part of the cost of a request.",
            grouped(points.len() as f64),
            format_si(least),
            format_si(most),
        ),
        format!(
            "To try: long-lived processes or threads (FastCGI instead of CGI, a pool of workers), or keep-alive if \
             each connection has its own; `{command}` shows who starts them."
        ),
        &[command],
    )
}
