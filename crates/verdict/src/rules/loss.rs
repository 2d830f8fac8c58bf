use super::*;

pub(super) const RULE: Rule = Rule {
    id: "loss",
    cause: "segments are lost on the path or dropped at its ends",
    evidence: "`tcp.retransmits_per_sec` over `tcp.segments_out_per_sec`, of the server's network namespace; the loss \
               of an emulated path",
    threshold: "1 % of the segments sent, twice the loss of an emulated path, and at least 5, in most points of a \
                load and at most loads above it, and in two points",
    refuted_by: "`nstat -z TcpRetransSegs` counts none under this load, or another program of the namespace sends them",
    remedy: "`ip -s link` and `ethtool -S DEVICE` show where they are dropped; `ss -ti` shows which connections",
    source: "RFC 6298: a timeout is 200 ms or more in Linux; Mathis and others, \"The Macroscopic Behavior of the TCP \
             Congestion Avoidance Algorithm\" (1997)",
    is_limit: false,
    // If other work takes the CPU, acknowledgements are late and segments are sent again without a loss.
    is_counted: false,
    hidden_by: &["client", "backlog", "bandwidth", "conntrack", "dropped-packets"],
    judge,
};

const LEAST_LOST: f64 = 0.01;
const TIMES_PLANNED: f64 = 2.0;
const LEAST_POINTS: usize = 2;

fn lost(point: &Point) -> Option<f64> {
    let (again, sent) = (point.value(names::TCP_RETRANSMITS)?, point.value(names::TCP_OUT)?);
    (sent > 0.0).then_some(again / sent)
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let planned = evidence.run.record.scenario.path().map_or(0.0, |path| path.loss_ratio);
    let least = LEAST_LOST.max(TIMES_PLANNED * planned);
    let is_lost = |point: &Point| {
        let counted = point.figures.get(names::TCP_RETRANSMITS).and_then(|figure| figure.n);
        counted.is_some_and(|count| count >= LEAST_ERRORS) && lost(point).is_some_and(|share| share >= least)
    };
    let (at, points) = evidence.first_level(is_lost)?;
    // A machine that stands still sends segments again that were only late.
    if evidence.run.points.iter().filter(|point| is_lost(point)).count() < LEAST_POINTS {
        return None;
    }
    let share = median(points.iter().filter_map(|point| lost(point)))?;
    let rate = typical(&points, names::TCP_RETRANSMITS)?;
    let before: Vec<f64> = evidence.lowest().iter().filter_map(|point| lost(point)).collect();
    let before = median(&before).map_or(String::new(), |share| format!(", {} at the lowest load", percent(share)));
    let command = "ss -ti state established".to_string();
    finding(
        format!(
            "Segments are lost: from {at} on {} of the server's segments were sent again ({}/s{before}). Each takes a \
             round trip more, and the last one of an answer 200 ms or more.",
            percent(share),
            format_si(rate)
        ),
        format!(
            "To try: `{command}` shows the connections with retransmits, `ip -s link` and `ethtool -S DEVICE` show \
             where packets are dropped: a queue that is too short, a shaper, a link with errors."
        ),
        &[command],
    )
}
