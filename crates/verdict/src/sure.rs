//! Whether the intervals reached the width of `find --until-sure`, and why not.

use analyze::shown::percent_against;
use analyze::zones::{Findings, PointFinding};
use record::units::{count, exact_percent, format_nanos};
use record::{Doubt, DoubtKind, RunDir, Status};

/// The requested width, and each point with its width.
fn widths(run: &RunDir, findings: &Findings) -> Option<(f64, Vec<(&'static str, PointFinding)>)> {
    let wanted = run.record.scenario.sweep()?.until_sure_ratio?;
    let closed = findings.connections.iter().map(|sweep| ("the yield point", sweep.yield_point.clone()));
    let open = findings.rate.iter().map(|sweep| ("the failing rate", sweep.failure_point.clone()));
    Some((wanted, closed.chain(open).collect()))
}

fn is_reached(point: &PointFinding, wanted: f64) -> bool {
    point.width_ratio().is_some_and(|width| width <= wanted)
}

/// The sentence if all requested widths were reached.
pub(super) fn sentence(run: &RunDir, findings: &Findings) -> Option<String> {
    let (wanted, points) = widths(run, findings)?;
    if points.is_empty() || !points.iter().all(|(_, point)| is_reached(point, wanted)) {
        return None;
    }
    let each: Vec<String> = points
        .iter()
        .filter_map(|(name, point)| {
            Some(format!("{name} to {} of it", percent_against(point.width_ratio()?, wanted).0))
        })
        .collect();
    Some(format!("As narrow as requested ({}): {}.", exact_percent(wanted), each.join(", ")))
}

/// The sentence if a requested width was not reached.
pub(super) fn doubt(run: &RunDir, findings: &Findings) -> Option<Doubt> {
    let (wanted, points) = widths(run, findings)?;
    let budget_ns = run.record.scenario.sweep()?.budget_ns;
    let why = |point: &PointFinding| match point.width_ratio() {
        Some(width) => {
            let ended = match run.record.status {
                Status::Complete => format!("at the time limit of {}", format_nanos(budget_ns as f64)),
                _ => "when the run ended early".into(),
            };
            format!("{} wide after {}, {ended}", percent_against(width, wanted).0, count(point.n_repeats, "repeat"))
        }
        None if point.estimate.is_some() => "its interval has an open end".into(),
        None => format!("it was not found: {}", point.reason),
    };
    let missed: Vec<String> = points
        .iter()
        .filter(|(_, point)| !is_reached(point, wanted))
        .map(|(name, point)| format!("{name} ({})", why(point)))
        .collect();
    (!missed.is_empty()).then(|| {
        DoubtKind::SearchEndedEarly.warning(
            format!("wider than requested ({} of the point): {}", exact_percent(wanted), missed.join("; ")),
            "allow more time with --budget, use a quieter machine, or request a larger width",
        )
    })
}
