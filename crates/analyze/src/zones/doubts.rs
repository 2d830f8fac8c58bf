//! Reasons to doubt a sweep's findings.

use super::failure::{self, LevelTrial};
use super::words::load_words;
use super::{Level, PointFinding, PointPlace, percent};
use crate::disturbance::DISTURBED_RATIO;
use record::{Doubt, DoubtKind, Sweep};

pub(super) fn of_sweep(
    levels: &[Level],
    trials: &[LevelTrial],
    yield_point: &PointFinding,
    failure_point: &PointFinding,
    repeats: usize,
    sweep: Sweep,
) -> Vec<Doubt> {
    let mut found = Vec::new();
    let which = if sweep == Sweep::Rate { "open loop" } else { "closed loop" };
    if repeats < 2 {
        found.push(DoubtKind::TooFewSamples.warning(
            format!(
                "{which}: every load was measured once, so the intervals include the spacing of the loads, but not the \
                     noise"
            ),
            "allow more time with --budget, or more repeats with --repeats",
        ));
    }
    let inconsistent = failure::inconsistent(trials);
    if !inconsistent.is_empty() && failure_point.estimate.is_some() {
        let loads: Vec<String> = inconsistent.iter().take(4).map(|load| load_words(*load, sweep)).collect();
        let more = if inconsistent.len() > 4 { ", ..." } else { "" };
        found.push(DoubtKind::SourcesDisagree.note(
            format!(
                "{which}: trials of the same load disagreed whether it failed ({}{more}), which widens the interval",
                loads.join(", ")
            ),
            "run on a quieter machine, or allow more time with --budget",
        ));
    }
    if let (Some(_), None) = (yield_point.estimate, yield_point.high) {
        found.push(DoubtKind::SearchEndedEarly.warning(
            format!("{which}: the measured loads do not bound the yield point's interval above"),
            "raise --max-connections, or allow more time with --budget",
        ));
    }
    let (disturbed, all) = disturbed(levels);
    if disturbed > 0 && disturbed as f64 >= DISTURBED_RATIO * all as f64 {
        found.push(DoubtKind::NoisyNeighbour.warning(
            format!(
                "{which}: other work disturbed {disturbed} of {all} points, so the intervals may not contain the \
                 values of a quiet machine"
            ),
            "stop the other work and repeat it, or give the server and the client separate CPUs",
        ));
    }
    // The yield point of the closed loop is determined from throughput, that of the open loop from the CPUs.
    if sweep == Sweep::Rate
        && yield_point.place == PointPlace::Unknown
        && let Some(level) = levels.iter().rfind(|level| level.crowded)
    {
        found.push(DoubtKind::NoisyNeighbour.warning(
            format!(
                "{which}: other work took much of the server's CPUs ({} busy at {}); whether the server alone would \
                 saturate them is not known",
                level.cpus_busy_ratio.map_or("not measured how".into(), |busy| percent(busy.median)),
                load_words(level.load, sweep)
            ),
            "stop the other work and repeat it, or give the server separate CPUs (--server-cpus)",
        ));
    }
    if let Some(level) = levels.iter().find(|level| level.client_limited) {
        found.push(DoubtKind::ClientSaturated.invalid(
            format!("{which}: from {} on the client was saturated, the server was not", load_words(level.load, sweep)),
            "give the client more CPUs (--cpus), or limit the server to fewer (--server-cpus)",
        ));
    }
    found
}

/// Number of points that other work disturbed, and of all points.
pub fn disturbed(levels: &[Level]) -> (u64, u64) {
    levels.iter().fold((0, 0), |sum, level| (sum.0 + level.disturbed, sum.1 + level.points))
}
