//! `find --compare-with` and `--beside`: the second side, measured in turn with the server.

use crate::cli::FindOptions;
use crate::defaults;
use crate::failure::wrong_usage;
use crate::plan::{self, RunOptions};
use crate::tools;
use anyhow::{Context, Result, bail};
use record::PlainText;
use std::process::Command;
use std::time::Duration;

pub struct Second {
    /// The command of the second server, or the command that runs with the first.
    pub command: Vec<String>,
    /// Time for a command to start or end; `None` for a second server.
    pub settle: Option<Duration>,
    /// Regression threshold.
    pub threshold_ratio: f64,
}

pub(super) fn option(options: &FindOptions) -> Option<&'static str> {
    match (&options.compare_with, &options.beside) {
        (Some(_), _) => Some("--compare-with"),
        (None, Some(_)) => Some("--beside"),
        (None, None) => None,
    }
}

pub(super) fn second(options: &FindOptions, drive: &RunOptions) -> Result<Option<Second>> {
    let threshold_ratio = plan::threshold_ratio(options.threshold)?;
    if options.settle.is_some() && options.beside.is_none() {
        return Err(wrong_usage("settle of [find] needs a command next to the server: add --beside"));
    }
    let (command, settle) = match (&options.compare_with, &options.beside) {
        (None, None) if options.threshold.is_some() => {
            return Err(wrong_usage("threshold of [find] compares two servers: add --compare-with or --beside"));
        }
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(wrong_usage("--compare-with and --beside exclude each other: leave one out"));
        }
        (Some(with), None) => {
            let is_elsewhere = drive.options.fleet.server_with.is_some();
            (command(with, &drive.options.server.command, is_elsewhere)?, None)
        }
        (None, Some(beside)) => {
            let settle = options.settle.map_or(defaults::SETTLE, |time| time.0);
            (shell_words("--beside", beside, "the words of a command")?, Some(settle))
        }
    };
    Ok(Some(Second { command, settle, threshold_ratio }))
}

fn shell_words(option: &str, typed: &str, wanted: &str) -> Result<Vec<String>> {
    match shlex::split(typed) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "{option} '{}' is not a command: give {wanted} as for a shell",
            PlainText::new(typed, 120)
        ))),
    }
}

/// The second server's command; `scale` means the first server under scalable select. For a local server, the tool
/// checks whether it applies.
pub fn command(with: &str, first: &[String], is_elsewhere: bool) -> Result<Vec<String>> {
    if first.is_empty() {
        return Err(wrong_usage("--compare-with also needs the first server: add -- SERVER ..."));
    }
    if with.trim() == "scale" {
        let mut program = "straingauge".to_string();
        if !is_elsewhere {
            applies(first)?;
            let own = std::env::current_exe().context("cannot find this program's own file")?;
            program = own.into_os_string().into_string().map_err(|_| {
                wrong_usage("the name of this program's folder is not UTF-8: move the program for --compare-with scale")
            })?;
        }
        return Ok([program, "scale".into(), "--".into()].into_iter().chain(first.iter().cloned()).collect());
    }
    shell_words("--compare-with", with, "'scale', or the second server's words")
}

fn applies(server: &[String]) -> Result<()> {
    let program = tools::program("scale").context("--compare-with scale")?;
    let said = Command::new(&program).args(["--check", "--"]).args(server).output();
    let said = said.with_context(|| format!("{} cannot be started", program.display()))?;
    let why = String::from_utf8_lossy(&said.stderr);
    let why = why.lines().last().unwrap_or("straingauge scale --check failed");
    if !said.status.success() {
        bail!("{}", PlainText::new(why.trim_start_matches("straingauge scale: "), 1000));
    }
    Ok(())
}
