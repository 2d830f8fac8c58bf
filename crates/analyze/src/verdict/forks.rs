//! Processes or threads that are started for each request.

use super::command::server_pid;
use super::evidence::Evidence;
use super::growth::line;
use super::judge::{Finding, finding};
use super::rules::{LEAST_REQUESTS, Rule};
use crate::statistics::range;
use crate::zones::percent;
use record::units::{format_si, grouped};
use record::{Point, Sweep, names};

pub(super) const RULE: Rule = Rule {
    id: "forks",
    cause: "a process or thread is started for each request",
    evidence: "`machine.started_per_sec` (the kernel counts processes and threads) against \
               `client.throughput_per_sec`, over all points",
    threshold: "half a start or more for each request: the slope of a straight line that explains 90 % over 6 points \
                or more, whose throughput differs 1.5 times or more",
    refuted_by: "`perf trace -e clone,clone3,fork,vfork -s -p PID` counts fewer than requests",
    remedy: "processes or threads that stay (FastCGI, a pool of workers), keep-alive where each connection has one",
    source: "Stevens, Fenner and Rudoff, \"UNIX Network Programming\", chapter 30: a child per client costs the most",
    is_limit: true,
    is_counted: true,
    hidden_by: &["client"],
    judge,
};

const LEAST_STARTS: f64 = 0.5;
const LEAST_EXPLAINED: f64 = 0.9;
const LEAST_POINTS: usize = 6;
const LEAST_SPAN: f64 = 1.5;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let starts = |point: &Point| {
        let is_load = point.sweep != Sweep::Yardstick && point.outcomes.completed() as f64 >= LEAST_REQUESTS;
        let pair = (point.value(names::THROUGHPUT)?, point.value(names::MACHINE_STARTED)?);
        (is_load && pair.0.is_finite() && pair.1.is_finite()).then_some(pair)
    };
    let points: Vec<(f64, f64)> = evidence.run.points.iter().filter_map(starts).collect();
    let (least, most) = range(&points.iter().map(|(rate, _)| *rate).collect::<Vec<_>>())?;
    if points.len() < LEAST_POINTS || most < LEAST_SPAN * least {
        return None;
    }
    let (each, explained) = line(&points)?;
    if each < LEAST_STARTS || explained < LEAST_EXPLAINED {
        return None;
    }
    let command = format!("perf trace -e clone,clone3,fork,vfork -s -p {}", server_pid(evidence.run));
    finding(
        format!(
            "Each request starts {each:.1} processes or threads: their number grew with throughput from {}/s to {}/s \
             (a straight line over {} points explains {}). Starting and ending them is a part of a request's cost.",
            format_si(least),
            format_si(most),
            grouped(points.len() as f64),
            percent(explained)
        ),
        format!(
            "To try: processes or threads that stay (FastCGI instead of CGI, a pool of workers), keep-alive where each \
             connection has its own; `{command}` shows who starts them."
        ),
        &[command],
    )
}
