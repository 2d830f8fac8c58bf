//! Ends a search, however it stopped: finishes the runs, prints the verdict, writes the report.

use super::search::{Ended, Search};
use crate::commands::report::{Pair, run_output, run_text, write_report};
use crate::failure::{self, print_either};
use crate::progress::Progress;
use analyze::limit::Limit;
use analyze::zones;
use analyze::zones::Findings;
use anyhow::{Result, bail};
use record::run::RunDir;
use record::units::format_si;
use record::{DoubtKind, Status};
use std::process::ExitCode;

impl Search<'_> {
    /// Writes the verdict and the report from what was measured.
    pub fn conclude(mut self, ended: Result<Ended>, limits: &[Limit]) -> Result<ExitCode> {
        // The server and its namespaces are removed before the slower work of drawing.
        self.close();
        let (status, why) = match &ended {
            Ok(Ended::Complete) => (Status::Complete, None),
            Ok(Ended::Interrupted) => (Status::Interrupted, Some("a signal".to_string())),
            Ok(Ended::Lost(lost)) => (Status::Interrupted, Some(lost.clone())),
            Err(error) => (Status::Interrupted, Some(format!("{error:#}"))),
        };
        let (mut runs, mut finished) = (Vec::new(), Ok(()));
        for mut side in std::mem::take(&mut self.sides) {
            if let Some(why) = &why {
                side.writer.record_mut().doubts.push(DoubtKind::Interrupted.warning(
                    format!("the run ended early: {why}"),
                    "the zones rest on the points measured until then; run it again to its end",
                ));
            }
            finished = finished.and(side.writer.finish(status, why.clone()));
            // From memory, not from the directory: a full disk must not lose measurements.
            runs.push(RunDir {
                path: side.writer.path().to_path_buf(),
                record: side.writer.record().clone(),
                points: side.points,
                reading_doubts: Vec::new(),
            });
        }
        let first = &runs[0];
        let compared = match (&self.plan.second, runs.as_slice()) {
            (Some(second), [a, b]) => Some(Pair::of(a, b, second.threshold_ratio)),
            _ => None,
        };
        let names = if self.plan.beside().is_some() { ["without", "with"] } else { ["A", "B"] };
        let crossed: Vec<String> = match runs.as_slice() {
            [one] => crossed_limits(limits, &zones::of_run(one)),
            several => several
                .iter()
                .zip(names)
                .flat_map(|(run, name)| {
                    let crossed = crossed_limits(limits, &zones::of_run(run));
                    crossed.into_iter().map(move |text| format!("{name}: {text}"))
                })
                .collect(),
        };
        let json = || {
            let mut output = match (runs.as_slice(), &compared) {
                ([a, b], Some(compared)) => compared.output(a, b),
                _ => run_output(first),
            };
            output.limits_crossed = Some(crossed.clone());
            output.value()
        };
        let text = || match (runs.as_slice(), &compared) {
            ([a, b], Some(compared)) => compared.text(a, b),
            _ => run_text(first),
        };
        print_either(self.drive.output.json, json, text)?;
        let mut progress = Progress::new(self.drive.output.quiet);
        let written = finished.map_err(anyhow::Error::from).and_then(|()| write_report(first, None));
        match &written {
            Ok(page) => progress.say(&format!("report: {}\nrun:    {}", page.display(), first.path.display())),
            Err(error) if ended.is_err() => progress.say(&failure::sentence(error)),
            Err(_) => {}
        }
        let ended = ended?;
        written?;
        match ended {
            Ended::Interrupted => return Ok(ExitCode::from(failure::INTERRUPTED)),
            Ended::Lost(_) => bail!(
                "{}; the {} points measured until then are kept in {}",
                why.unwrap_or_default(),
                format_si(runs.iter().map(|run| run.points.len()).sum::<usize>() as f64),
                first.path.display()
            ),
            Ended::Complete => {}
        }
        let code = match compared {
            Some(compared) => crate::commands::compare::code(compared.conclusion()?),
            None => failure::DONE,
        };
        for text in &crossed {
            eprintln!("straingauge: {text}");
        }
        Ok(ExitCode::from(if crossed.is_empty() { code } else { failure::LIMIT_CROSSED }))
    }
}

/// The limits that the findings cross, in words.
fn crossed_limits(limits: &[Limit], findings: &Findings) -> Vec<String> {
    let figures = findings.figures();
    limits
        .iter()
        .map(|limit| (limit, limit.check_figures(&figures)))
        .filter(|(_, check)| check.is_crossed())
        .map(|(_, check)| format!("limit crossed: {check}"))
        .collect()
}
