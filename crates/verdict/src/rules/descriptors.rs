use super::*;
use crate::command::more_descriptors;

pub(super) const RULE: Rule = Rule {
    id: "descriptors",
    cause: "the server's descriptor limit",
    evidence: "`server.descriptors_used_ratio`; connections that waited to be accepted (`tcp.accept_queue_max`), \
               got no answer, or were refused or closed",
    threshold: "97 % of the limit in use in most points of a load and of the loads above it, with such connections",
    refuted_by: "`/proc/PID/limits` shows a limit far above the number of open descriptors",
    remedy: "`sh -c 'ulimit -n 65536; exec SERVER'`; `LimitNOFILE=` in a systemd unit",
    source: "accept(2), EMFILE",
    is_limit: true,
    is_counted: true,
    hidden_by: &[],
    judge,
};

const DESCRIPTORS_RATIO: f64 = 0.97;
/// Descriptors per connection, of at least so many, from which they are leaked: a proxy has two, and some have a pipe
/// between these.
const LEAKED_RATIO: u64 = 8;
const LEAST_LEAKED: u64 = 64;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let criteria = *evidence.criteria();
    let is_full = |point: &Point| point.value(names::SERVER_DESCRIPTORS).is_some_and(|used| used >= DESCRIPTORS_RATIO);
    let waits = |point: &Point| point.value(names::ACCEPT_QUEUE_MAX).is_some_and(|queue| queue >= 1.0);
    // Without readings of the accept queue, the client's refused and closed connections are the evidence.
    let lost = |point: &Point| {
        let seen = &point.outcomes;
        let lost = [seen.connect_timed_out, seen.connections_silent, seen.closed_early, seen.reset, seen.refused];
        lost.iter().any(|count| *count > 0) && analyze::zones::fails(point, &criteria)
    };
    let (at, points) = evidence.first_level(|point| is_full(point) && (waits(point) || lost(point)))?;
    let used = points.iter().filter_map(|point| point.figures.get(names::SERVER_DESCRIPTORS)?.n).max()?;
    let share = typical(&points, names::SERVER_DESCRIPTORS)?;
    let (remedy, commands) = more_descriptors(evidence.run);
    let connections = points.iter().map(|point| point.connections).max()?;
    if used > LEAKED_RATIO * connections.max(LEAST_LEAKED) {
        let command =
            format!("ls -l /proc/{}/fd | awk '{{print $NF}}' | sort | uniq -c | sort -n", server_pid(evidence.run));
        return finding(
            format!(
                "A process of the server had {} descriptors open at {at}, {} of its limit: it keeps files or \
                 connections open that it no longer uses.",
                grouped(used as f64),
                percent(share)
            ),
            format!("`{command}` shows which; close each after use. A higher limit only delays the failure."),
            &[command],
        );
    }
    finding(
        format!(
            "A process of the server had {} descriptors open at {at}, {} of its limit: it cannot accept more \
             connections.",
            grouped(used as f64),
            percent(share)
        ),
        remedy,
        &commands,
    )
}
