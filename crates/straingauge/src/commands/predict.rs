//! `straingauge predict`: answers what-if questions from run directories; nothing is measured.

use crate::cli::{PredictArgs, RateWord};
use crate::failure::{self, print, wrong_usage};
use crate::plan;
use analyze::predict::{self, Question, Rate};
use anyhow::Result;
use record::RunDir;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: PredictArgs) -> Result<ExitCode> {
    let question = question(&args)?;
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

fn question(args: &PredictArgs) -> Result<Question> {
    for (option, count) in [("--connections", args.connections), ("--cores", args.cores)] {
        if count.is_some_and(|count| count.0 == 0) {
            return Err(wrong_usage(format!("{option} must be at least 1")));
        }
    }
    Ok(Question {
        cpus: args.cores.map(|count| count.0 as f64),
        rate: args.rate.map(|rate| match rate {
            RateWord::PerSec(rate) => Rate::PerSec(rate),
            RateWord::Times(times) => Rate::Times(times),
        }),
        connections: args.connections.map(|count| count.0 as f64),
        delay_s: args.round_trip.map_or(0.0, |longer| longer.0.as_secs_f64()),
        cold: args.cold.map(|count| count.0 as f64),
        scaled_select: args.scaled_select,
        mix: args.class_shares.as_ref().map(|mix| mix.0.clone()).unwrap_or_default(),
    })
}
