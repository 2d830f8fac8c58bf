//! The length of an open-loop trial: long enough for stalls of the server, and for a 99th percentile.

use crate::zones::{self, REQUESTS, STALLS, TrialResult, judged, stall_ns};
use record::units::{count, format_nanos, format_si, grouped};
use record::{Criteria, Point, Sweep, names};

/// Closed-loop points with at least this share of the highest goodput keep the server as busy as the open loop does.
const BUSY_RATIO: f64 = 0.8;

/// The longest stall of the server below this rate, nanoseconds. It is the second longest of several points, in case
/// one was the machine's.
fn longest_stall_ns(points: &[Point], below_per_sec: f64, criteria: &Criteria) -> f64 {
    let goodput = |point: &Point| point.value(names::GOODPUT).unwrap_or(0.0);
    let closed = || points.iter().filter(|point| point.sweep == Sweep::Connections && !zones::fails(point, criteria));
    let most = closed().map(goodput).fold(0.0, f64::max);
    let is_lower = |point: &&Point| {
        point.sweep == Sweep::Rate
            && point.offered_per_sec().is_some_and(|rate| rate <= below_per_sec)
            && judged(point, criteria) != Some(TrialResult::Failed)
    };
    let busy = closed().filter(|point| goodput(point) >= BUSY_RATIO * most);
    let mut stalls: Vec<f64> = busy.chain(points.iter().filter(is_lower)).map(stall_ns).collect();
    stalls.sort_by(|a, b| b.total_cmp(a));
    stalls.get(1).or(stalls.first()).copied().unwrap_or(0.0)
}

/// The window, in nanoseconds, that gives a trial at this rate enough stalls and requests.
pub fn needed_ns(points: &[Point], rate_per_sec: f64, criteria: &Criteria) -> u64 {
    let stalls_ns = STALLS * longest_stall_ns(points, rate_per_sec, criteria);
    let requests_ns = REQUESTS as f64 / rate_per_sec * 1e9;
    stalls_ns.max(requests_ns) as u64
}

/// Describes why no trial at this rate could be judged; `None` if one held or failed, or none was measured.
pub fn too_short(points: &[Point], rate_per_sec: f64, criteria: &Criteria) -> Option<String> {
    let trials =
        || points.iter().filter(|point| point.sweep == Sweep::Rate && point.offered_per_sec() == Some(rate_per_sec));
    if trials().any(|point| judged(point, criteria) != Some(TrialResult::Unclear)) {
        return None;
    }
    let longest = trials().max_by_key(|point| point.duration_ns)?;
    let (window, stall_ns) = (format_nanos(longest.duration_ns as f64), stall_ns(longest));
    let answers = longest.outcomes.completed();
    let why = if STALLS * stall_ns > longest.duration_ns as f64 {
        let needed = format_nanos(STALLS * stall_ns);
        format!("the server stalled for {}; whether that is usual needs {needed}", format_nanos(stall_ns))
    } else if answers < REQUESTS {
        format!("there were {}, and a 99th percentile needs {}", count(answers, "answer"), grouped(REQUESTS as f64))
    } else {
        "the number of unanswered requests may be chance".into()
    };
    let rate = format_si(rate_per_sec);
    Some(format!("whether {rate}/s holds is not known at this budget: its longest trial took {window}; {why}"))
}
