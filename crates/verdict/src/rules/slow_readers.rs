use super::delayed_ack::FAR_CONNECT_US;
use super::*;
use record::account::CLOSED_WINDOW;

pub(super) const RULE: Rule = Rule {
    id: "slow-readers",
    cause: "clients that read slowly hold the server's threads",
    evidence: "the account: threads blocked in sending on connections that mostly waited for the receiver's window \
               (the kernel's `rwnd_limited`), by load; the client's CPUs",
    threshold: "most of the requests added by load (at least 1) waited there, or for threads without idle time \
                (criterion `saturation_ratio`) that mostly waited there; the load generator's CPUs not saturated; a \
                possibility below 40 % of the added requests, or if connecting takes more than 5 ms, because a small \
                window on a long path has the same effect",
    refuted_by: "`ss -ti` shows no `rwnd_limited` on the server's connections: the path or the send buffer is full",
    remedy: "a buffering proxy, larger send buffers (`net.ipv4.tcp_wmem`), events instead of a thread per answer, a \
             timeout for slow clients",
    source: "RFC 9293, section 3.8.6: the receiver's window; tcp(7), TCP_INFO",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let figure = |name: &str| typical(&evidence.strained(), name).unwrap_or(0.0);
    let is_ours = figure(names::CLIENT_UTILISATION) >= evidence.criteria().saturation_ratio;
    // On a long path, a small window limits even a client that reads at once.
    let is_far = figure(names::CONNECT_P50) > FAR_CONNECT_US;
    evidence.limit_by(RULE.id).filter(|_| !is_ours)?.proven_if(!is_far)
}

fn is_slow(wait: &WaitLevel) -> bool {
    wait.kind == WaitKind::Send && wait.place.ends_with(CLOSED_WINDOW)
}

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let (group, wait) = reading.high.most_waiting(is_slow)?;
    full_of(reading, group, wait)
}

/// `None` if the threads wait for the path instead of the clients.
pub fn full_of(reading: &AccountRange<'_>, group: &GroupLevel, wait: &WaitLevel) -> Option<FoundLimit> {
    if !is_slow(wait) {
        return None;
    }
    let because = format!(
        "Clients read their answers slowly: at {} {:.1} of {} were blocked in {} at any time ({}), {:.1} at {}. The \
         connections waited for the receiver's window, not for the path: the clients are slow, not the server.",
        reading.at_high(),
        wait.threads,
        group.label(),
        wait.place,
        wait.rate_and_length(),
        reading.low.blocked_at(&[wait.kind], &wait.place),
        reading.at_low(),
    );
    let command = "ss -tim state established".to_string();
    let remedy = format!(
        "To try: a proxy in front that buffers answers (e.g. nginx), larger send buffers (`net.ipv4.tcp_wmem`), events \
         instead of a thread per answer, a timeout for slow clients; `{command}` shows `rwnd_limited` of each \
         connection."
    );
    FoundLimit::new(RULE.id, because, remedy, &[command])
}
