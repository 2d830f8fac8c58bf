use super::delayed_ack::{FAR_CONNECT_US, MOST_ANSWER_BYTES};
use super::*;

pub(super) const RULE: Rule = Rule {
    id: "held-answers",
    cause: "answers wait in the kernel after the server has written them",
    evidence: "the account: answers written and not yet acknowledged, less those that only wait for a delayed \
               acknowledgement; `client.body_bytes`, `client.connect_p50_us`",
    threshold: "half of the requests in progress at the lowest load and at every other one below the yield point; \
                answers of at most 64 KiB, connecting takes at most 5 ms, at least 5 answers",
    refuted_by: "`ss -ti` shows no `notsent` on the server's connections",
    remedy: "TCP_CORK off or TCP_NODELAY on at the end of each answer; MSG_MORE only if more follows",
    source: "tcp(7): TCP_CORK holds an incomplete segment back for 200 ms; send(2): MSG_MORE",
    is_limit: false,
    is_counted: true,
    hidden_by: &["client", "delayed-ack", "loss", "send-buffer", "slow-readers"],
    judge,
};

const LEAST_HELD: f64 = 0.5;
const LEAST_ANSWERS: u64 = 5;

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let from = evidence.strained_from().unwrap_or(f64::INFINITY);
    let known: Vec<&AccountLevel> = evidence.accounts().iter().filter(|level| level.requests.is_some()).collect();
    let lowest = *known.first()?;
    let held = |level: &AccountLevel| {
        let places = level.requests.iter().flat_map(|requests| &requests.places);
        places.filter(|place| place.kind == PlaceKind::Written).map(|place| place.requests).sum::<f64>()
    };
    let calm = || known.iter().filter(|level| level.load < from || level.load == lowest.load);
    if calm().any(|level| held(level) < LEAST_HELD * level.in_flight()) {
        return None;
    }
    let points: Vec<&Point> = calm().flat_map(|level| evidence.quiet_at(sweep.sweep, level.load)).collect();
    let answers = answers(&points);
    let bytes = median(points.iter().filter_map(|point| {
        Some(point.value(names::BODY_BYTES)? / point.outcomes.completed() as f64).filter(|bytes| bytes.is_finite())
    }))?;
    let is_far = typical(&points, names::CONNECT_P50).is_none_or(|us| us > FAR_CONNECT_US);
    if answers < LEAST_ANSWERS || bytes > MOST_ANSWER_BYTES || is_far {
        return None;
    }
    let because = format!(
        "Answers wait in the kernel after the server has written them: at {}, {:.1} of {:.1} requests in progress were \
         answers of {} that were written and not yet acknowledged; a response took {} (median p50, n = {answers}). The \
         kernel holds an incomplete segment back for 200 ms if TCP_CORK or MSG_MORE promises more.",
        load_words(lowest.load, sweep.sweep),
        held(lowest),
        lowest.in_flight(),
        format_bytes(bytes),
        format_nanos(typical(&points, names::RESPONSE_P50)? * 1e3),
    );
    let command = "ss -ti state established".to_string();
    let remedy = format!(
        "To try: TCP_CORK off or TCP_NODELAY on at the end of each answer, and MSG_MORE only if more follows; \
         `{command}` shows `notsent` of each connection."
    );
    finding(because, remedy, &[command])
}
