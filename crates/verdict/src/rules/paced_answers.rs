//! The server sends its answers at a limited rate, or with pauses between pieces.

use super::delayed_ack::FAR_CONNECT_US;
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "paced-answers",
    cause: "the server sends each answer slowly",
    evidence: "`client.response_p50_us` less `client.first_byte_p50_us`, `client.connect_p50_us`, \
               `server.cpus_busy_ratio`",
    threshold: "at two loads or more, the highest at least twice the lowest: 100 ms or more from the first byte of an \
                answer to its last, at each load the same (to 10 %, medians); connecting takes at most 5 ms, the \
                server's CPUs are less than half busy, and the client reads as fast as it can; at least 5 answers",
    refuted_by: "the client or the path was slow: another client on the server's machine gets the answer at once",
    remedy: "a higher limit on the rate (nginx `limit_rate`, HAProxy `bwlim-out`), or no pauses between pieces",
    source: "documentation of nginx, ngx_http_core_module: `limit_rate` limits each connection, whatever the load",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client", "stopped", "slow-readers", "send-buffer", "held-answers", "loss", "bandwidth", "cpu-quota"],
    judge,
};

const LEAST_US: f64 = 100e3;
const SAME_TIME: f64 = 1.1;
const APART: f64 = 2.0;
const IDLE_RATIO: f64 = 0.5;
const LEAST_ANSWERS: u64 = 5;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let gap_us = |point: &Point| Some(point.value(names::RESPONSE_P50)? - point.value(names::FIRST_BYTE_P50)?);
    let of_load = |load: f64| {
        let points = evidence.quiet_at(sweep.sweep, load);
        Some((load, median(points.iter().filter_map(|point| gap_us(point)))?, points))
    };
    let loads: Vec<(f64, f64, Vec<&Point>)> = sweep.levels.iter().filter_map(|level| of_load(level.load)).collect();
    let (lowest, highest) = range(loads.iter().map(|(load, ..)| *load))?;
    let (shortest_us, longest_us) = range(loads.iter().map(|(_, us, _)| *us))?;
    let points: Vec<&Point> = loads.iter().flat_map(|(.., points)| points).copied().collect();
    let is_idle = typical(&points, names::SERVER_CPU_BUSY).is_some_and(|busy| busy < IDLE_RATIO);
    let is_near = typical(&points, names::CONNECT_P50).is_some_and(|us| us <= FAR_CONNECT_US);
    let reads_slowly =
        evidence.run.record.scenario.load().is_some_and(|load| load.clients.pace_bytes_per_sec().is_some());
    let is_same = highest >= APART * lowest && longest_us <= SAME_TIME * shortest_us;
    if reads_slowly || !(is_same && is_idle && is_near) || shortest_us < LEAST_US || answers(&points) < LEAST_ANSWERS {
        return None;
    }
    finding(
        format!(
            "The server sends each answer slowly: from its first byte to its last it took {} at any load \
             (medians, n = {}), while the server's CPUs were mostly idle.",
            from_to(shortest_us, longest_us),
            grouped(answers(&points) as f64),
        ),
        "To try: a higher limit on the rate of a connection (nginx `limit_rate`, HAProxy `bwlim-out`), or no pauses \
         between the pieces of an answer (a backend that sends them slowly, a sleep)."
            .into(),
        &[],
    )
}
