//! Ends a search, however it stopped: finishes the runs, prints the verdict, writes the report.

use super::prove::prove;
use super::search::{Search, SearchEnd};
use crate::commands::report::{ShownRuns, write_report};
use crate::failure::{self, print, print_json};
use crate::progress::Progress;
use analyze::compare::THRESHOLD_RATIO;
use analyze::zones;
use anyhow::{Result, bail};
use record::run::{RunDir, RunError};
use record::{DoubtKind, Status};
use report::check;
use std::process::ExitCode;
use verdict::answer;
use verdict::limit::{FailLimit, LimitCheck};

impl Search<'_> {
    /// Stops the server and finishes the runs. Also returns the reason of an early end.
    pub fn finish(&mut self, ended: &Result<SearchEnd>) -> (Vec<RunDir>, Result<(), RunError>, Option<String>) {
        // Remove the server and its namespaces before the slower drawing.
        self.close();
        let (status, why) = match ended {
            Ok(SearchEnd::Complete) => (Status::Complete, None),
            Ok(SearchEnd::Interrupted) => (Status::Interrupted, Some("a signal".to_string())),
            Ok(SearchEnd::Lost(lost)) => (Status::Interrupted, Some(lost.clone())),
            Err(error) => (Status::Interrupted, Some(format!("{error:#}"))),
        };
        let (mut runs, mut finished) = (Vec::new(), Ok(()));
        for mut side in std::mem::take(&mut self.sides) {
            if let Some(why) = &why {
                side.writer.record_mut().doubts.push(DoubtKind::Interrupted.warning(
                    format!("the run ended early: {why}"),
                    "the zones rest on the points measured so far; repeat the run to its end",
                ));
            }
            finished = finished.and(side.writer.finish(status, why.clone()));
            // Use the run in memory, not the directory: a full disk must not lose measurements.
            runs.push(side.run());
        }
        (runs, finished, why)
    }

    /// Writes the verdict and the report from what was measured.
    pub fn conclude(mut self, ended: Result<SearchEnd>, limits: &[FailLimit]) -> Result<ExitCode> {
        let (runs, finished, why) = self.finish(&ended);
        let first = &runs[0];
        let threshold_ratio = self.plan.second.as_ref().map_or(THRESHOLD_RATIO, |second| second.threshold_ratio);
        let mut results = ShownRuns::new(first, runs.get(1), threshold_ratio);
        let names = if self.plan.beside().is_some() { ["without: ", "with: "] } else { ["A: ", "B: "] };
        let judged = judged(limits, &runs, names);
        let crossed = judged.iter().filter(|one| one.check.is_crossed);
        let crossed: Vec<String> =
            crossed.map(|one| format!("{}limit crossed: {}", one.whose, one.check.words)).collect();
        let json = |results: &ShownRuns<'_>| {
            let mut output = results.output();
            output.limits_crossed = Some(crossed.clone());
            print_json(&output.value())
        };
        let output = &self.drive.output;
        let is_printed = !output.summary.files().are_printed();
        let proves = self.plan.proves && matches!(ended, Ok(SearchEnd::Complete));
        let mut shown = match (is_printed, output.json) {
            (true, false) => print(&results.text(self.plan.is_full)),
            (true, true) if !proves => json(&results),
            _ => Ok(()),
        };
        let mut progress = Progress::new(output.quiet);
        let written = finished.map_err(anyhow::Error::from).and_then(|()| write_report(first));
        match &written {
            Ok(page) => progress.say(&format!("report: {}\nrun:    {}", page.display(), first.path.display())),
            Err(error) if ended.is_err() => progress.say(&failure::sentence(error)),
            Err(_) => {}
        }
        let mut checks = vec![check::end(why.as_deref())];
        checks.extend(judged.iter().map(|one| check::limit(one.whose, one.limit, &one.check)));
        let mut cases = [&checks[..], &results.checks()[..]].concat();
        if why.is_none() && output.summary.junit.is_some() {
            // The JUnit file has no other place for the verdict; Markdown begins with it.
            cases[0].words = verdict::sentences(first, &zones::of_run(first)).headline;
        }
        let summarised = output.summary.write(|| results.markdown(&checks), &cases);
        if let Some(live) = self.live.take() {
            live.end(first);
        }
        if proves {
            let proof = results.proof.insert(prove(self.drive, self.plan, first));
            let text = report::proof::text(proof);
            shown = match (is_printed, output.json) {
                (true, false) => shown.and(print(&text)),
                (true, true) => json(&results),
                _ => shown,
            };
            shown = shown.and(write_report(first).map(|_| ()));
        }
        let ended = ended?;
        written?;
        shown.and(summarised)?;
        match ended {
            SearchEnd::Interrupted => return Ok(ExitCode::from(failure::INTERRUPTED)),
            SearchEnd::Lost(_) => {
                bail!("{}; the points measured so far are kept in {}", why.unwrap_or_default(), first.path.display())
            }
            SearchEnd::Complete => {}
        }
        let code = results.conclusion()?.map_or(failure::DONE, crate::commands::compare::code);
        for text in &crossed {
            eprintln!("straingauge: {text}");
        }
        Ok(ExitCode::from(if crossed.is_empty() { code } else { failure::LIMIT_CROSSED }))
    }
}

struct JudgedLimit<'a> {
    /// Prefix for one of two runs: `A: `.
    whose: &'static str,
    limit: &'a FailLimit,
    check: LimitCheck,
}

fn judged<'a>(limits: &'a [FailLimit], runs: &'a [RunDir], names: [&'static str; 2]) -> Vec<JudgedLimit<'a>> {
    let names = if runs.len() == 1 { ["", ""] } else { names };
    let of_run = |(run, whose): (&'a RunDir, &'static str)| {
        let findings = zones::of_run(run);
        let figures = answer::figures(&findings, answer::derive(run, &findings, &[]).as_ref());
        limits.iter().map(move |limit| JudgedLimit { whose, limit, check: limit.check_run(run, &figures) })
    };
    runs.iter().zip(names).flat_map(of_run).collect()
}
