//! What-if answers from measured runs: service demands, models of the server, and their comparison with measurements.
//!
//! Read in this order: [`of_runs`], then [`server`] (the model), [`check`] (how it is chosen and tested),
//! [`question`] (what-ifs), [`demand`] (the demand law and the lines), [`open`] (the queue of an open loop), and the
//! fits [`usl`] and [`regression`]. `docs/predict.md` explains units and assumptions.

pub mod cheaper;
pub mod check;
pub mod curve;
pub mod demand;
pub mod mix;
pub mod open_points;
pub mod question;
pub mod readings;
pub mod validate;
pub mod what_if;

use crate::Refused;
use record::units::format_si;
use record::{RunDir, WhatIf};
use serde::Serialize;

/// CPUs of other work above which a doubt is raised.
const NOISY_CPUS: f64 = 0.1;

/// Capacities within this ratio of models that fit equally well count as one number.
const ALIKE: f64 = 1.1;

/// Results of a sweep's CPU readings, without a model.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Measured {
    /// Kind of sweep: `closed loop` or `open loop`.
    pub sweep: &'static str,
    /// Service demands by resource and load.
    pub demands: Vec<demand::Demand>,
    /// Idle, user and kernel CPU over the rate.
    pub regressions: Vec<demand::Regression>,
}

/// A prediction with its basis.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Prediction {
    /// Measured demands and lines, without a model.
    pub measured: Vec<Measured>,
    /// The chosen model, fitted to all points of the closed loop.
    pub model: statistics::server::Server,
    /// The errors of every model on points that it was not fitted to.
    pub checks: Vec<check::Check>,
    /// The predictions of a fit up to half the yield point for the rest.
    pub extrapolation: Option<check::Extrapolation>,
    /// Test of the fit against points and findings beyond half the yield point; absent if no model could be fitted or
    /// no load lies beyond.
    pub validation: Option<validate::Validation>,
    /// The run's open-loop points, each with the model's prediction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_points: Vec<validate::CheckedNumber>,
    /// Number of bootstrap resamples for the intervals.
    pub resamples: usize,
    /// Answer to the question on the command line.
    pub answer: question::PredictedAnswer,
    /// Questions kept with the scenario, each with its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_ifs: Vec<what_if::WhatIfAnswer>,
    /// Reasons not to trust the prediction.
    pub doubts: Vec<String>,
}

/// Predicts from one or more runs of one server.
///
/// # Errors
/// One sentence for runs that cannot be modelled (too few points, a single load, impossible figures, no watching), for
/// a model that fails its check, and for a question that the data cannot answer.
pub fn of_runs(runs: &[RunDir], question: &WhatIf) -> Result<Prediction, Refused> {
    with_what_ifs(runs, question, &[])
}

/// Answers the questions kept with a run. If nothing can be predicted, each has the reason.
pub fn kept(run: &RunDir) -> Vec<what_if::WhatIfAnswer> {
    let what_ifs = run.record.scenario.what_ifs();
    if what_ifs.is_empty() {
        return Vec::new();
    }
    match with_what_ifs(std::slice::from_ref(run), &WhatIf::default(), what_ifs) {
        Ok(prediction) => prediction.what_ifs,
        Err(error) => what_ifs.iter().map(|what_if| what_if::WhatIfAnswer::new(what_if, Err(error.clone()))).collect(),
    }
}

/// Like [`of_runs`], with more questions for the same fit.
///
/// # Errors
/// Errors of [`of_runs`]. A further question that cannot be answered has the reason instead of an answer.
pub fn with_what_ifs(runs: &[RunDir], question: &WhatIf, what_ifs: &[WhatIf]) -> Result<Prediction, Refused> {
    // To the models, runs with different mixes are different servers. The first one is fitted; the others separate
    // the classes.
    let first = if question.mix.is_empty() { runs } else { &runs[..1] };
    let differences = readings::one_server(runs, !question.mix.is_empty())?;
    let mut readings = readings::read(first)?;
    readings.doubts.extend(differences);
    let confidence = readings.criteria.confidence_ratio;
    if readings.closed.is_empty() {
        check::enough(&readings::typicals(&readings.open), "open-loop")?;
        return Err(Refused(
            "the models need a closed loop, and this run has only open-loop points: run find with both sweeps".into(),
        ));
    }
    let Fitted { choice, servers, extrapolation, validation } = fitted_to(&readings, &runs[0], check::RESAMPLES)?;
    let open_points = open_points::checks(&readings, &choice.server);
    let answer_one = |question: &WhatIf| {
        what_if::check(question)?;
        let mix = if question.mix.is_empty() { None } else { Some(mix::of_runs(runs, &question.mix)?) };
        let cheaper =
            if question.cheaper.is_empty() { None } else { Some(cheaper::of_run(&runs[0], &question.cheaper)?) };
        question::answer(&readings, &choice, &servers, question, &question::CostEffect { mix, cheaper })
    };
    let answer = answer_one(question)?;
    let answer_kept = |kept: &WhatIf| {
        if kept.mix.is_empty() && question.mix.is_empty() || runs.len() == 1 {
            return answer_one(kept);
        }
        of_runs(runs, kept).map(|prediction| prediction.answer)
    };
    let what_ifs = what_ifs.iter().map(|kept| what_if::WhatIfAnswer::new(kept, answer_kept(kept))).collect();
    let sweeps = [("closed loop", &readings.closed), ("open loop", &readings.open)];
    let measured = sweeps
        .into_iter()
        .filter(|(_, readings)| !readings.is_empty())
        .map(|(sweep, points)| Measured {
            sweep,
            demands: demand::demands(points, confidence),
            regressions: demand::regressions(
                points,
                readings.parallel_cpus,
                readings.criteria.saturation_ratio,
                confidence,
            ),
        })
        .collect();
    Ok(Prediction {
        measured,
        model: choice.server,
        doubts: doubts(&readings, extrapolation.as_ref(), &choice, &open_points),
        checks: choice.checks,
        open_points,
        extrapolation,
        validation,
        resamples: servers.len(),
        answer,
        what_ifs,
    })
}

/// The model of a run, with its checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The chosen model.
    pub choice: check::ModelChoice,
    /// The model fitted to resampled points, for intervals.
    pub servers: Vec<statistics::server::Server>,
    /// As [`Prediction::extrapolation`].
    pub extrapolation: Option<check::Extrapolation>,
    /// As [`Prediction::validation`].
    pub validation: Option<validate::Validation>,
}

fn fitted_to(readings: &readings::Readings, run: &RunDir, resamples: usize) -> Result<Fitted, Refused> {
    let mut choice = check::choose(&readings.closed, readings.parallel_cpus)?;
    // The closed loop may have ended below a limit that the open loop reached.
    let limit = open_points::limit(readings);
    choice.server = open_points::limited(choice.server, limit);
    choice.alike = choice.alike.into_iter().map(|server| open_points::limited(server, limit)).collect();
    let servers = check::resampled(&readings.closed, &choice.server, resamples);
    let findings = crate::zones::of_run(run);
    let measured = findings.connections.as_ref().and_then(|sweep| sweep.yield_point.estimate);
    let predicted = choice.server.yield_connections(readings.criteria.elastic_gain_ratio, 0.0);
    let extrapolation = check::extrapolate(readings, measured, predicted);
    Ok(Fitted {
        validation: extrapolation.as_ref().and_then(|found| validate::validate(readings, found, &findings)),
        servers: servers.into_iter().map(|server| open_points::limited(server, limit)).collect(),
        choice,
        extrapolation,
    })
}

fn doubts(
    readings: &readings::Readings,
    extrapolation: Option<&check::Extrapolation>,
    choice: &check::ModelChoice,
    open_points: &[validate::CheckedNumber],
) -> Vec<String> {
    let server = &choice.server;
    let is_law = server.form == statistics::server::Form::Usl;
    let mut doubts = Vec::new();
    let busy = readings.most_busy_ratio();
    if !is_law && !server.is_limited(0.0) && busy < statistics::server::FULL {
        doubts.push(format!(
            "the server's CPUs were at most {:.0} % busy, so the knee was not measured: capacity, yield and failure \
             point assume that only the CPUs limit; any other limit is lower. Measure loads up to the yield point",
            busy * 100.0
        ));
    }
    let capacities: Vec<f64> = choice.alike.iter().map(|server| server.capacity_per_sec(0.0)).collect();
    if let Some((low, high)) = statistics::range(&capacities).filter(|(low, high)| *high > ALIKE * low) {
        doubts.push(format!(
            "{} models predict these points equally well and give capacities of {}/s to {}/s: measure closer to \
             saturation to decide",
            capacities.len(),
            format_si(low),
            format_si(high)
        ));
    }
    if is_law {
        doubts.push(
            "the law describes only throughput between the measured loads; its limit is the CPUs' at the lowest \
             measured demand"
                .into(),
        );
    } else {
        doubts.extend(open_points::doubts(readings, server, open_points));
    }
    if readings.others_cpus >= NOISY_CPUS {
        doubts.push(format!(
            "other work used {:.2} CPUs of the machine: demands come from the server's own CPU time, but other work \
             lowered its throughput; repeat the run on a quiet machine",
            readings.others_cpus
        ));
    }
    if readings.closed.iter().all(|reading| reading.failed) {
        doubts.push("every point of the closed loop crossed a criterion of failure".into());
    }
    doubts.extend(extrapolation.and_then(|found| found.doubt.clone()));
    doubts.extend(readings.doubts.iter().cloned());
    if !is_law && readings.parallel_cpus > 1.0 {
        doubts.push(
            "the server is modelled with one queue before all of its CPUs; contention between them was not measured"
                .into(),
        );
    }
    doubts
}
