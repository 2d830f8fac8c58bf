//! `straingauge predict`: answers what-if questions from run directories; nothing is measured.

use crate::cli::PredictArgs;
use crate::failure::{self, print, wrong_usage};
use crate::plan;
use analyze::predict::{self, Question, what_if};
use anyhow::Result;
use record::RunDir;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: PredictArgs) -> Result<ExitCode> {
    let question = what_if::question(&args.question.what_if()).map_err(|why| wrong_usage(format!("--{why}")))?;
    let runs = args.runs.iter().map(|path| RunDir::open(path)).collect::<Result<Vec<_>, _>>()?;
    let kept = match (&args.scenario, question == Question::default()) {
        (Some(path), _) => plan::what_ifs(path)?,
        (None, true) => runs.first().map(|run| run.record.scenario.what_ifs().to_vec()).unwrap_or_default(),
        (None, false) => Vec::new(),
    };
    let prediction = predict::with_what_ifs(&runs, &question, &kept)?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report::predict::json(&prediction))?))?;
    } else {
        print(&report::predict::text(&prediction))?;
    }
    Ok(ExitCode::from(failure::DONE))
}
