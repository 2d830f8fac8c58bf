//! All doubts of a run in one list: the most severe first, one entry for each kind.

use analyze::zones::{Findings, percent};
use record::owner::{ELSEWHERE, OwnerState};
use record::text::plain;
use record::units::count;
use record::{Doubt, DoubtKind, RunDir, Severity, Status};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Drift above this is a note.
const DRIFT_NOTE_RATIO: f64 = 0.03;
const DRIFT_WARNING_RATIO: f64 = 0.10;

pub(super) fn collect(run: &RunDir, findings: &Findings) -> Vec<Doubt> {
    let mut all = Vec::new();
    all.extend(ending(run));
    all.extend(run.record.doubts.iter().cloned());
    all.extend(run.reading_doubts.iter().cloned());
    all.extend(findings.sweeps().flat_map(|sweep| sweep.doubts.iter().cloned()));
    all.extend(findings.unloading.iter().flat_map(|unloading| unloading.doubts.iter().cloned()));
    all.extend(super::sure::doubt(run, findings));
    all.extend(findings.axes.iter().flat_map(|axis| axis.doubts.iter().cloned()));
    all.extend(drift(findings));
    all.extend(of_points(run));
    let mut kept: Vec<Doubt> = Vec::new();
    for doubt in all {
        if !kept.contains(&doubt) {
            kept.push(doubt);
        }
    }
    kept.sort_by_key(|doubt| Reverse(doubt.severity));
    kept
}

/// Doubt about a run that is not complete.
pub(crate) fn ending(run: &RunDir) -> Option<Doubt> {
    let why = || run.record.ended_by.as_deref().map(|why| format!(": {}", plain(why, 200))).unwrap_or_default();
    let points = count(run.points.len(), "point");
    let what = match run.record.status {
        Status::Complete => return None,
        Status::Interrupted if run.record.doubts.iter().any(|doubt| doubt.kind == DoubtKind::Interrupted) => {
            return None;
        }
        Status::Interrupted => format!("the run ended early after {points}{}", why()),
        Status::Running => match run.writer_life() {
            OwnerState::Alive => format!("the run has not ended; {points} so far"),
            OwnerState::Ended => format!("the process that wrote the run was killed after {points}"),
            OwnerState::Elsewhere => format!("the run is not finished after {points}; {ELSEWHERE}"),
        },
    };
    Some(DoubtKind::Interrupted.warning(what, "repeat the run to its end"))
}

fn drift(findings: &Findings) -> Option<Doubt> {
    let drift = findings.drift?;
    let cv = drift.cpu_cv_ratio.into_iter().chain(drift.load_cv_ratio).fold(0.0, f64::max);
    let is_swept = findings.sweeps().next().is_some() || !findings.axes.is_empty();
    if !is_swept || cv < DRIFT_NOTE_RATIO {
        return None;
    }
    let severity = if cv < DRIFT_WARNING_RATIO { Severity::Note } else { Severity::Warning };
    let (cv, n) = (percent(cv), drift.n);
    let (what, remedy) = if drift.is_of_server() {
        (
            format!(
                "the server's speed at the same load varied by {cv} between repeats, while the machine's arithmetic \
                 speed did not (yardstick, n = {n}): the server changed, or memory, disks or other work did"
            ),
            "measure the server fresh and after hours of load; `straingauge watch` shows its memory",
        )
    } else {
        (
            format!("the machine's speed varied by {cv} between repeats (yardstick, n = {n})"),
            "quote rates with their range, compare runs side by side, or use a dedicated machine",
        )
    };
    Some(Doubt::new(DoubtKind::Drift, severity, what, remedy))
}

/// Points share most of their doubts: each kind and severity is listed once, with the number of points.
fn of_points(run: &RunDir) -> Vec<Doubt> {
    type Doubted<'a> = Vec<(u32, &'a Doubt)>;
    let mut by_kind: BTreeMap<(Reverse<Severity>, DoubtKind), Doubted<'_>> = BTreeMap::new();
    for point in &run.points {
        for doubt in &point.doubts {
            by_kind.entry((Reverse(doubt.severity), doubt.kind)).or_default().push((point.index, doubt));
        }
    }
    by_kind
        .into_iter()
        .map(|((Reverse(severity), kind), of_kind)| {
            let (index, first) = of_kind[0];
            let mut points: Vec<u32> = of_kind.iter().map(|(index, _)| *index).collect();
            points.dedup();
            let what = match points.len() {
                _ if run.points.len() == 1 => first.what.clone(),
                1 => format!("point {index:03}: {}", first.what),
                n => format!("{n} of {} points; first point {index:03}: {}", run.points.len(), first.what),
            };
            Doubt::new(kind, severity, what, first.remedy.clone())
        })
        .collect()
}
