//! The server answers only so many connections at a time; the others wait until one of these closes.

use super::*;

pub(super) const RULE: Rule = Rule {
    id: "connection-limit",
    cause: "the server serves only so many connections at a time",
    evidence: "connections without a byte of a response in the whole window or long after it, by number of connections",
    threshold: "in points with two numbers of connections (1.3 times apart or more) as many were answered, to 10 %, \
                and at no smaller number was one without an answer",
    refuted_by: "with a higher limit, the same number of connections is answered",
    remedy: "a higher limit in its configuration (lighttpd `server.max-connections`, Apache `MaxRequestWorkers`, \
             workers of gunicorn or Puma), or a shorter keep-alive",
    source: "a connection that is kept alive keeps its place, also between requests",
    is_limit: false,
    is_counted: true,
    hidden_by: &[
        "descriptors",
        "hangs",
        "backlog",
        "server-log",
        "worker-pool",
        "lock",
        "one-at-a-time",
        "conntrack",
        "dropped-packets",
        "loss",
        "client-ports",
    ],
    judge,
};

const APART: f64 = 1.3;
const EQUAL: f64 = 0.1;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let in_loop = |point: &&Point| point.sweep == Sweep::Connections && point.outcomes.completed() > 0;
    let points: Vec<&Point> = evidence.run.points.iter().filter(in_loop).collect();
    // A request that was sent in the window and is still unanswered long after it has no server either.
    let silent = |point: &Point| point.outcomes.connections_silent.max(point.outcomes.unfinished);
    let starved: Vec<&Point> = points.iter().copied().filter(|point| silent(point) > 0).collect();
    let served = |point: &Point| point.outcomes.connections_used.saturating_sub(silent(point)) as f64;
    let usual = median(starved.iter().map(|point| served(point)))?;
    let near = |point: &&Point| (served(point) - usual).abs() <= f64::max(1.0, EQUAL * usual);
    let same: Vec<&Point> = starved.iter().copied().filter(near).collect();
    let (least, most) = range(same.iter().map(|point| point.connections as f64).collect::<Vec<_>>())?;
    let is_below = |point: &&&Point| (point.connections as f64) < usual * (1.0 - EQUAL);
    let fits = points.iter().filter(is_below).all(|point| silent(point) == 0);
    if usual < 1.0 || most < APART * least || same.len() * 4 < starved.len() * 3 || !fits {
        return None;
    }
    finding(
        format!(
            "At {} and at {} only {usual:.0} connections got answers; the others waited for one of \
             these to close (n = {} points).",
            load_words(least, Sweep::Connections),
            load_words(most, Sweep::Connections),
            same.len()
        ),
        "To try: a higher limit of connections or workers in its configuration (lighttpd `server.max-connections`, \
         Apache `MaxRequestWorkers`), or a shorter keep-alive, so that waiting clients get their turn."
            .into(),
        &[],
    )
}
