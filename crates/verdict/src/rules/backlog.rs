use super::*;

pub(super) const RULE: Rule = Rule {
    id: "backlog",
    cause: "the listen backlog is too small",
    evidence: "`tcp.listen_overflows_per_sec`, `tcp.listen_overflows_before_window`, `tcp.accept_queue_limit`, \
               `client.response_max_us`, net.core.somaxconn",
    threshold: "in most points of a load and of the loads above it at least 1 overflow per second; or at least 1 while \
                connections were opened, in a point that fails with a response of at least a second or without any \
                response; more connections than the queue has room for; not the limit if the CPUs are full at a lower \
                load under strain",
    refuted_by: "the overflows remain with a larger backlog: the server does not accept at all",
    remedy: "a larger backlog in the server's configuration (nginx `listen ... backlog=4096`, Apache \
             `ListenBacklog`), `sysctl -w net.core.somaxconn=4096`",
    source: "listen(2); Banga and Druschel (1997): a full queue drops SYNs, and each costs a second or more",
    is_limit: true,
    is_counted: false,
    hidden_by: &[
        "client",
        "descriptors",
        "slow-file",
        "slow-readers",
        "scalable-select",
        "lock",
        "one-at-a-time",
        "worker-pool",
        "backend",
    ],
    judge,
};

/// The kernel retries a SYN after a second; buckets of response times are 0.1 % wide.
const SYN_RETRY_US: f64 = 990_000.0;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let criteria = *evidence.criteria();
    let value = |point: &Point, name| point.value(name).unwrap_or(0.0);
    // A SYN dropped at the start is retried after a second, perhaps after the end of a short window. If every request
    // was answered sooner, the point failed for another reason.
    let is_late = |point: &Point| {
        let outcomes = &point.outcomes;
        let unanswered =
            [outcomes.timed_out, outcomes.connect_timed_out, outcomes.connections_silent, outcomes.unfinished];
        value(point, names::RESPONSE_MAX) >= SYN_RETRY_US || unanswered.iter().any(|count| *count > 0)
    };
    let fails = |point: &Point| is_late(point) && analyze::zones::fails(point, &criteria);
    // The kernel counts all listeners of the namespace. If this load has too few connections to fill the queue, another
    // service's queue overflowed.
    let is_own = |point: &Point| {
        let most = point.connections as f64 + value(point, names::COLD);
        point.value(names::ACCEPT_QUEUE_LIMIT).is_none_or(|limit| most > limit)
    };
    let (at, points) = evidence.first_level(|point| {
        let has_lost = value(point, names::TCP_LISTEN_OVERFLOWS) >= LOST_PER_SEC
            || value(point, names::TCP_LISTEN_OVERFLOWS_BEFORE) >= 1.0 && fails(point);
        has_lost && is_own(point)
    })?;
    let rate = typical(&points, names::TCP_LISTEN_OVERFLOWS)?;
    let seen = if rate >= LOST_PER_SEC {
        format!("{}/s", format_si(rate))
    } else {
        format!("{} while connections were opened", grouped(typical(&points, names::TCP_LISTEN_OVERFLOWS_BEFORE)?))
    };
    let limit = typical(&points, names::ACCEPT_QUEUE_LIMIT);
    let most = evidence.run.record.machine.sysctls.get("net.core.somaxconn").and_then(|text| text.parse::<f64>().ok());
    let wanted = limit.map_or(4096.0, |limit| (limit * 8.0).clamp(1024.0, 65_535.0));
    let mut commands = Vec::new();
    if most.is_none_or(|most| most < wanted) {
        commands.push(format!("sysctl -w net.core.somaxconn={wanted:.0}"));
    }
    let sysctl = commands.first().map(|command| format!("`{command}` and ")).unwrap_or_default();
    finding(
        format!(
            "The accept queue overflowed from {at} on ({seen}): its limit is {}, and connections were dropped before \
             the server saw them; each is tried again after a second or more.",
            limit.map_or("not known".into(), grouped)
        ),
        format!(
            "To try: {sysctl}a larger backlog in the server's configuration (nginx `listen ... backlog={wanted:.0}`, \
             Apache `ListenBacklog {wanted:.0}`, HAProxy `backlog {wanted:.0}`)."
        ),
        &commands,
    )?
    .beyond_limit_if(is_full_before(evidence, points.first()?) || is_flat_before(evidence, points.first()?))
}

/// Whether throughput stopped growing at a much lower load than a point's.
fn is_flat_before(evidence: &Evidence<'_>, point: &Point) -> bool {
    const MUCH_LOWER: f64 = 0.7;
    evidence.strained_from().is_some_and(|from| from <= MUCH_LOWER * point.load())
}

/// Whether the server's CPUs are full at a load under strain that is lower than a point's.
fn is_full_before(evidence: &Evidence<'_>, point: &Point) -> bool {
    let lower: Vec<&Point> = evidence.strained().into_iter().filter(|one| one.load() < point.load()).collect();
    evidence.are_cpus_full(&lower) == Some(true)
}
