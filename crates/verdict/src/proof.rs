//! `find --prove`: the stage that the verdict names is made dearer, and the throughput must fall as predicted. A stage
//! that serves m requests at once, each for a time t, has the throughput m / t: 1 us more in it adds 1 / m us to 1 /
//! throughput.

use super::evidence::{Evidence, strained_from};
use super::{causes, hot_function};
use crate::answer::full;
use analyze::axis::slow_down::Effect;
use analyze::axis::{AxisFindings, of_points, slowed_words};
use analyze::zones::{Findings, Zone};
use record::axis::MAX_SLOW_DOWN_NS;
use record::{Axis, AxisPlan, RunDir, SlowPlace, Status};
use serde::Serialize;

/// The folder in a run directory that contains the run of the experiment.
pub const FOLDER: &str = "proof";
/// [`Dearer::at_once`] of a stage that takes no time of the server's threads.
pub const ELSEWHERE: f64 = f64::INFINITY;
const TOLERANCE: f64 = 0.2;
/// Largest slope that proves the limit, as a multiple of the predicted one.
const MOST_RATIO: f64 = 2.0;
/// A smaller slope counts as none.
const FLAT: f64 = 0.1;
/// Time added to a request, as a share of its time in the stage.
const ADDED_RATIO: f64 = 0.2;
/// Time added to threads that are not the limit, as a share of their idle time.
const OF_IDLE_RATIO: f64 = 0.5;

/// How a full stage is made dearer.
#[derive(Debug, Clone, PartialEq)]
pub struct Dearer {
    /// Where time is added.
    pub place: SlowPlace,
    /// The function, if that is the place.
    pub function: Option<String>,
    /// Number of requests that the stage serves at once.
    pub at_once: f64,
}

record::worded! {
    /// Conclusion of an experiment.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Conclusion {
        /// The slope is the predicted one.
        Proved = "proved",
        /// The slope's interval excludes the prediction.
        Refuted = "refuted",
        /// The interval is too wide.
        Undecided = "undecided",
        /// Nothing was measured.
        #[default]
        NotProved = "not proved",
    }
}

/// Whether the named limit is the limit. The slope is that of 1 / throughput per CPU time added to a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Proof {
    /// Stage that the verdict names; empty if it names none.
    pub stage: String,
    /// Conclusion of the experiment.
    pub conclusion: Conclusion,
    /// Reason for the conclusion.
    pub why: String,
    /// Place where time was added.
    pub place: String,
    /// Connections of the closed loop.
    pub connections: u64,
    /// Slope that the account predicts; absent if nothing was measured.
    pub predicted: Option<f64>,
    /// Effect of the added time.
    pub axis: Option<Box<AxisFindings>>,
}

/// A planned experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The result before the measurement.
    pub proof: Proof,
    /// What is measured.
    pub axis: AxisPlan,
}

/// Plans the experiment for a run's verdict; the error is the result without one.
pub fn experiment(run: &RunDir, findings: &Findings) -> Result<Experiment, Proof> {
    let run = &*analyze::zones::polling::without_polling_in(run, &findings.criteria);
    let evidence = &Evidence::new(run, findings);
    let causes = causes(evidence);
    let full = full(run, findings, &causes);
    let stage = full.as_ref().map_or(String::new(), |full| full.words.clone());
    let none = |why: &str| Proof { stage: stage.clone(), why: why.into(), ..Proof::default() };
    let full = full.ok_or_else(|| none("the verdict names no limit"))?;
    let Some(Dearer { mut place, mut function, at_once }) = full.dearer else {
        return Err(none("no place is known where added time makes it dearer"));
    };
    let closed = findings.connections.as_ref();
    let strained = closed.zip(closed.and_then(strained_from)).map_or(Vec::new(), |(closed, from)| {
        closed.levels.iter().filter(|level| level.load >= from && level.throughput_per_sec.is_some()).collect()
    });
    let level = strained.iter().rfind(|level| level.zone != Zone::Failure).or(strained.first());
    let Some((level, per_sec)) = level.and_then(|level| Some((level, level.throughput_per_sec?.median))) else {
        return Err(none("no closed loop beyond the yield point was measured"));
    };
    if let Some(own) = hot_function::own(evidence).filter(|own| own.can_be_slowed && causes.is_empty()) {
        (place, function) = (SlowPlace::Function, Some(own.function));
    }
    let mut values = Vec::new();
    // A request may call a function any number of times, so that a trial finds the values.
    if place != SlowPlace::Function {
        let mut most_ns = (ADDED_RATIO * at_once / per_sec * 1e9).min(MAX_SLOW_DOWN_NS as f64);
        if level.full(findings.criteria.saturation_ratio).is_none() {
            let busy = level.busiest_thread_cpus.map_or(0.0, |spread| spread.median);
            most_ns = most_ns.min(OF_IDLE_RATIO * (1.0 - busy).max(0.0) / per_sec * 1e9);
        }
        values = [most_ns / 2.0, most_ns].map(f64::round).to_vec();
    }
    let name = function.as_ref().map_or(String::new(), |name| format!(" {name}"));
    let proof = Proof {
        place: format!("{}{name}", slowed_words(place)),
        connections: level.load as u64,
        predicted: Some(1.0 / at_once),
        ..none("")
    };
    let (axis, overload_ratio, conforming_ratio) = (Axis::SlowDown, 1.0, 1.0);
    Ok(Experiment {
        proof,
        axis: AxisPlan { axis, values, overload_ratio, conforming_ratio, slowed: vec![place], function },
    })
}

/// The result that is kept with a run.
pub fn kept(run: &RunDir) -> Option<Proof> {
    let path = run.path.join(FOLDER);
    let made = path.join("run.json").is_file().then(|| RunDir::open(&path).ok()).flatten()?;
    let findings = analyze::zones::of_run(run);
    Some(experiment(run, &findings).ok()?.judged(&made, &findings))
}

impl Experiment {
    /// The result after the run of the experiment.
    pub fn judged(self, made: &RunDir, findings: &Findings) -> Proof {
        let mut axes = of_points(&made.points, &findings.criteria, 1.0).into_iter();
        let axis = axes.find(|axis| axis.slowed.is_some()).map(Box::new);
        let effect = axis.as_ref().and_then(|axis| axis.effect.as_ref());
        let (conclusion, why) = match (&made.record.ended_by, effect) {
            (Some(why), _) if made.record.status == Status::Interrupted => {
                (Conclusion::Undecided, format!("the experiment was interrupted: {why}"))
            }
            (_, Some(effect)) => concluded(effect, self.proof.predicted.unwrap_or_default()),
            (_, None) => (Conclusion::Undecided, "requests do not reach the place often enough".into()),
        };
        Proof { conclusion, why, axis, ..self.proof }
    }
}

/// Compares the measured slope with the predicted one. Added time delays other threads as well, so that the throughput
/// may fall by somewhat more; less shows that the stage is not the limit.
pub fn concluded(effect: &Effect, predicted: f64) -> (Conclusion, String) {
    let (near, widest) = if predicted > 0.0 { (TOLERANCE * predicted, predicted) } else { (FLAT, 5.0 * FLAT) };
    let most = f64::max(MOST_RATIO * predicted, near);
    let measured = effect.time.and_then(|time| Some((time.value, time.interval()?)));
    let (conclusion, why) = match measured {
        None => (Conclusion::Undecided, "too few repeats for an interval"),
        Some(_) if effect.is_client_limited && predicted > 0.0 => {
            (Conclusion::Undecided, "the client was saturated, not the server")
        }
        Some((slope, (_, high))) if slope < predicted - near && high < predicted => {
            (Conclusion::Refuted, "the throughput fell less than the account predicts: the limit is something else")
        }
        Some((slope, (low, _))) if slope > most && low > predicted + near => {
            (Conclusion::Refuted, "the throughput fell more than the account predicts: something else limits it, too")
        }
        Some((_, (low, high))) if high - low > widest && (predicted == 0.0 || low < predicted - near) => {
            (Conclusion::Undecided, "the interval is too wide: measure longer (--budget), or on a quiet machine")
        }
        Some(_) => (Conclusion::Proved, "the throughput changed as the account predicts"),
    };
    (conclusion, why.into())
}
