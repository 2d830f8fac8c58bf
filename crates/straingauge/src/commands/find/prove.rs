//! `find --prove`: after the search, makes the stage that the verdict names dearer, in a run of its own.

use super::search::Search;
use super::{Purpose, SearchPlan, measure_all};
use crate::cli::{IfPermitted, MetricsOptions, SweepWord, WatchWord};
use crate::failure;
use crate::plan::RunOptions;
use crate::quantity::Count;
use anyhow::Result;
use record::RunDir;
use verdict::proof::{self, Experiment, Proof};

/// Makes the limit of a finished run dearer. A failure is part of the result.
pub(super) fn prove(drive: &RunOptions, plan: &SearchPlan, run: &RunDir) -> Proof {
    let findings = analyze::zones::of_run(run);
    let experiment = match proof::experiment(run, &findings) {
        Ok(experiment) => experiment,
        Err(none) => return none,
    };
    match measured(drive, plan, run, &experiment) {
        Ok(made) => experiment.judged(&made, &findings),
        Err(error) => Proof { stage: experiment.proof.stage, why: failure::sentence(&error), ..Proof::default() },
    }
}

fn measured(drive: &RunOptions, plan: &SearchPlan, run: &RunDir, experiment: &Experiment) -> Result<RunDir> {
    let mut drive = drive.clone();
    drive.output.out = Some(run.path.join(proof::FOLDER));
    drive.output.metrics = MetricsOptions::default();
    drive.options.load.connections = Some(Count(experiment.proof.connections));
    drive.options.watching.detail = Some(WatchWord::Off);
    let mut sweep = plan.sweep.clone();
    // At least three repeats for an interval.
    sweep.repeats = sweep.repeats.clamp(3, 5);
    (sweep.axis, sweep.unload, sweep.until_sure_ratio) = (Some(experiment.axis.clone()), false, None);
    let purpose = Purpose::Zones(IfPermitted::Never);
    let plan = SearchPlan::new(sweep, SweepWord::Connections, purpose);
    let mut search = Search::begin(&drive, &plan, None)?;
    let ended = match search.warm_up() {
        Ok(None) => measure_all(&mut search, &plan),
        Ok(Some(early)) => Ok(early),
        Err(error) => Err(error),
    };
    let (mut runs, finished, _) = search.finish(&ended);
    ended?;
    finished?;
    Ok(runs.remove(0))
}
