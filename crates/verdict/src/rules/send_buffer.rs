use super::*;
use record::account::SEND_BUFFER;

pub(super) const RULE: Rule = Rule {
    id: "send-buffer",
    cause: "the server's send buffers are too small",
    evidence: "the account: threads blocked in sending while all that the send buffer holds was sent, by load",
    threshold: "half of the requests in progress at every load whose account is known",
    refuted_by: "with larger buffers the answers take as long",
    remedy: "no SO_SNDBUF in its code, so that the kernel sizes the buffers; larger ones (`net.ipv4.tcp_wmem`)",
    source: "tcp(7): tcp_wmem; socket(7): SO_SNDBUF turns automatic sizes off",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "slow-readers"],
    judge,
};

const LEAST_WAITING: f64 = 0.5;

fn most_waiting(level: &AccountLevel) -> Option<(&GroupLevel, &WaitLevel)> {
    let is_full = |wait: &WaitLevel| wait.kind == WaitKind::Send && wait.place.ends_with(SEND_BUFFER);
    level.most_waiting(is_full).filter(|(_, wait)| wait.threads >= LEAST_WAITING * level.in_flight())
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let known = || evidence.accounts().iter().filter(|level| level.requests.is_some());
    let high = known().next_back()?;
    let (group, wait) = most_waiting(high)?;
    if known().any(|level| most_waiting(level).is_none()) {
        return None;
    }
    let because = format!(
        "Answers wait for room in the server's send buffers: at {} {:.1} of {} were blocked in {} at any time ({}). \
         All that the buffers hold was sent and waits to be acknowledged; the client and the path are ready for more.",
        load_words(high.load, evidence.sweep()?.sweep),
        wait.threads,
        group.label(),
        wait.place,
        wait.rate_and_length(),
    );
    let command = "ss -tmi state established".to_string();
    let remedy = format!(
        "To try: no SO_SNDBUF in its code, so that the kernel sizes the buffers, or larger ones (`net.ipv4.tcp_wmem`); \
         `{command}` shows the size (`tb`) of each connection's buffer."
    );
    finding(because, remedy, &[command])
}
