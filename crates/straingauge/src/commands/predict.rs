//! `straingauge predict`: answers what-if questions from run directories without measuring.

use crate::cli::PredictArgs;
use crate::failure::{self, print_either, wrong_usage};
use crate::plan;
use analyze::predict::{self, what_if};
use anyhow::Result;
use record::{RunDir, WhatIf};
use std::process::ExitCode;

pub fn run(args: PredictArgs) -> Result<ExitCode> {
    let question = args.question.what_if();
    what_if::check(&question).map_err(|why| wrong_usage(format!("--{why}")))?;
    let runs = args.runs.iter().map(|path| RunDir::open(path)).collect::<Result<Vec<_>, _>>()?;
    let kept = match (&args.scenario, question == WhatIf::default()) {
        (Some(path), _) => plan::what_ifs(path)?,
        (None, true) => runs.first().map(|run| run.record.scenario.what_ifs().to_vec()).unwrap_or_default(),
        (None, false) => Vec::new(),
    };
    let prediction = predict::with_what_ifs(&runs, &question, &kept)?;
    print_either(args.json, || report::predict::json(&prediction), || report::predict::text(&prediction))?;
    Ok(ExitCode::from(failure::DONE))
}
