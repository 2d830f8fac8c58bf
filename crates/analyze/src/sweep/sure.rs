//! The current width of a search's interval, and the time needed for a narrower one.

use super::schedule::WindowSchedule;
use super::{MIN_REPEATS, ladder};
use crate::shown::percent_against;
use crate::zones::{PointFinding, load_number, load_words};
use record::Sweep;
use record::scenario::SweepPlan;
use record::units::{count, exact_percent, format_nanos};

pub(super) struct RepeatTimes {
    pub repeat_ns: u64,
    pub left_ns: u64,
}

pub(super) fn width_words(
    plan: &SweepPlan,
    found: &PointFinding,
    (name, sweep): (&str, Sweep),
    repeat: u32,
    RepeatTimes { repeat_ns, left_ns }: RepeatTimes,
) -> Option<String> {
    let wanted = plan.until_sure_ratio.filter(|_| repeat > 0)?;
    let known = match (found.width_ratio(), found.estimate) {
        (Some(width), _) => format!(
            "{name} {} to {}, {} wide",
            load_number(found.low?, sweep),
            load_words(found.high?, sweep),
            percent_against(width, wanted).0
        ),
        (None, Some(estimate)) => format!("{name} about {}, with an open interval so far", load_words(estimate, sweep)),
        (None, None) => return Some(format!("so far no {name}: {}", found.reason)),
    };
    let after = format!("after {}", count(repeat, "repeat"));
    let Some(width) = found.width_ratio().filter(|width| *width > wanted) else {
        return Some(format!("{known} {after}"));
    };
    // The width of an interval is inversely proportional to the square root of the number of repeats.
    let more = (f64::from(repeat.max(1)) * ((width / wanted).powi(2) - 1.0)).ceil().max(1.0);
    let needed_ns = more * repeat_ns as f64;
    let at_most = if needed_ns > left_ns as f64 { "; the time limit comes first" } else { "" };
    Some(format!(
        "{known} {after}; requested {}: about {} more{at_most}",
        exact_percent(wanted),
        format_nanos(needed_ns.min(left_ns as f64))
    ))
}

/// Minimum duration of the sweeps, nanoseconds: first pass and fewest repeats, for a server that answers at once and
/// never fails.
pub fn least_ns(plan: &SweepPlan, is_closed: bool, is_open: bool) -> u64 {
    /// Time for connecting and writing, for each point.
    const OVERHEAD_NS: u64 = 60_000_000;
    /// Loads that refinement adds, steps of the search over rate before its blocks, and rates of a block.
    const REFINED: u64 = 4;
    const STEPS: u64 = 10;
    const BLOCK: u64 = 9;
    let schedule = WindowSchedule::new(plan, 1.0);
    let point = |duration_ns: u64| schedule.with_warmup_ns(duration_ns) + OVERHEAD_NS;
    let repeats = u64::from(plan.repeats.clamp(1, MIN_REPEATS));
    let loads = ladder(plan).len() as u64;
    let ways = if plan.unload { 2 } else { 1 };
    let closed = loads * point(schedule.short_ns()) + repeats * ways * (loads + REFINED) * point(schedule.full_ns);
    let open = STEPS * point(schedule.middle_ns()) + repeats * BLOCK * point(schedule.full_ns);
    (if is_closed { closed } else { 0 }) + (if is_open { open } else { 0 })
}
