use super::*;

pub(super) const RULE: Rule = Rule {
    id: "bandwidth",
    cause: "the network's bandwidth",
    evidence: "bytes received over the emulated path's bandwidth, or `net.busiest_link_used_ratio`; the server's \
               CPUs",
    threshold: "at least 85 % of the link beyond the yield point, no CPU of the server saturated; a device must be \
                less full when the server answers less",
    refuted_by: "throughput stays the same with smaller answers",
    remedy: "smaller answers (compression, caching by clients), or a faster link: `ethtool DEVICE` shows its speed",
    source: "utilisation law: a resource that is busy all the time is the bottleneck",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

/// Least used share of a link's speed, headers included.
const LINK_RATIO: f64 = 0.85;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    if points.is_empty() || evidence.is_saturated(&points) == Some(true) {
        return None;
    }
    let path = evidence.run.record.scenario.path().map(|path| path.bandwidth_bits_per_sec as f64);
    let received = typical(&points, names::RECEIVED).map(|bytes| bytes * 8.0);
    let on_path = match (path.filter(|bits| *bits > 0.0), received) {
        (Some(bits), Some(received)) => Some((received / bits, format!("the path's {}bit/s", format_si(bits)))),
        _ => None,
    };
    let lowest = evidence.lowest();
    let grew = |name| Some(typical(&points, name)? / typical(&lowest, name)?);
    // A device that is as full when the server answers little carries other traffic.
    let is_others = matches!((grew(names::RECEIVED), grew(names::NET_LINK_USED)),
        (Some(answers), Some(device)) if answers > 1.5 && device < answers.sqrt());
    let on_link = typical(&points, names::NET_LINK_USED).filter(|_| !is_others);
    let on_link = on_link.map(|share| (share, "a network device's speed".to_string()));
    let (share, of) = on_path.into_iter().chain(on_link).find(|(share, _)| *share >= LINK_RATIO)?;
    let command = "ethtool DEVICE".to_string();
    finding(
        format!(
            "The network is full: responses took {} of {of}, while no CPU of the server was saturated.",
            percent(share)
        ),
        format!(
            "To try: smaller answers (compression, caching by clients), or a faster link; `{command}` shows its speed."
        ),
        &[command],
    )
}
