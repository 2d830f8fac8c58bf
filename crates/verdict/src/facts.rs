//! A finding that names no cause: connections that serve few requests.

use super::evidence::Evidence;
use analyze::zones::{SweepFindings, load_words};
use record::Sweep;
use record::units::grouped;

/// Number of lowest loads checked.
const LOADS: usize = 3;
/// A connection that serves fewer requests than this adds the cost of opening it to theirs.
const FEW: f64 = 20.0;
/// Least number of reopened connections.
const LEAST_REOPENED: f64 = 50.0;
/// Largest share of reopened connections that had broken. Broken connections are reopened, too.
const MOST_BROKEN_RATIO: f64 = 0.01;

/// Number of requests that the server answers on a connection before it closes it, if they are few.
pub(super) fn short_connections(evidence: &Evidence<'_>, closed: &SweepFindings) -> Option<String> {
    let plan = evidence.run.record.scenario.load()?;
    let is_asked = plan.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection"));
    if plan.requests_per_connection > 0 || is_asked {
        return None;
    }
    let levels = &closed.levels[..closed.levels.len().min(LOADS)];
    let (mut answered, mut reopened, mut broken) = (0.0, 0.0, 0.0);
    for point in levels.iter().flat_map(|level| evidence.quiet_at(Sweep::Connections, level.load)) {
        // Connections are counted from the warm-up on, requests in the window.
        let whole = 1.0 + point.warmup_ns as f64 / point.duration_ns.max(1) as f64;
        answered += point.outcomes.completed() as f64 * whole;
        reopened += point.outcomes.connects.saturating_sub(point.outcomes.connections_used) as f64;
        broken += point.outcomes.errors() as f64;
    }
    let each = answered / reopened;
    if reopened < LEAST_REOPENED || each >= FEW || broken > MOST_BROKEN_RATIO * answered {
        return None;
    }
    let (first, last) = (levels.first()?, levels.last()?);
    Some(format!(
        "The server closes each connection after about {each:.0} request{} ({} connections were opened again from {} \
         to {}), so each request's cost includes a part of opening one. To try: allow more requests per connection \
         (nginx `keepalive_requests`, Apache `MaxKeepAliveRequests`), or enable keep-alive.",
        if each < 1.5 { "" } else { "s" },
        grouped(reopened),
        load_words(first.load, Sweep::Connections),
        load_words(last.load, Sweep::Connections)
    ))
}
