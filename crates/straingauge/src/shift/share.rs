//! Runs the user's command that sets the server's share of live traffic, and restores the usual share at every end.

use crate::server::guardian::{self, Guardian};
use crate::server::output::ServerOutput;
use anyhow::{Result, anyhow, bail};
use record::PlainText;
use record::scenario::ShiftPlan;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The hidden command of the watchdog.
pub const COMMAND: &str = "restore-share";
/// Timeout of the command.
const LIMIT: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The watchdog sets the usual share again after this time, because a command of the killed straingauge may still be
/// running.
const AGAIN: Duration = Duration::from_secs(2);

pub struct ShareCommand {
    plan: ShiftPlan,
    now: f64,
    has_moved: bool,
    /// `None` once the usual share was restored for good.
    watchdog: Option<Guardian>,
}

impl ShareCommand {
    /// Without a watchdog.
    pub fn unguarded(plan: ShiftPlan) -> ShareCommand {
        ShareCommand { plan, now: f64::NAN, has_moved: false, watchdog: None }
    }

    /// Starts the watchdog, which sets the usual share if this process ends without doing so.
    pub fn guarded(plan: &ShiftPlan) -> Result<ShareCommand> {
        let watchdog = Guardian::with(&[COMMAND, &plan.command, &plan.usual.to_string()])
            .map_err(|error| anyhow!("no traffic was moved, because the watchdog could not be started: {error}"))?;
        let mut share = ShareCommand::unguarded(plan.clone());
        share.watchdog = Some(watchdog);
        Ok(share)
    }

    pub fn now(&self) -> f64 {
        self.now
    }

    pub fn usual(&self) -> f64 {
        self.plan.usual
    }

    /// Runs the command with this share. If it fails, the usual share is restored.
    pub fn set(&mut self, share: f64) -> Result<()> {
        self.has_moved |= share != self.plan.usual;
        let set = set(&self.plan.command, share);
        // After a failure, the share is unknown.
        self.now = if set.is_ok() { share } else { f64::NAN };
        let Err(why) = set else { return Ok(()) };
        if share == self.plan.usual {
            return Err(why);
        }
        self.restore().map_err(|restoring| anyhow!("{why}; {restoring}"))?;
        bail!("{why}; the usual share {} is restored", self.plan.usual)
    }

    /// Sets the usual share, twice if the first time fails.
    pub fn restore(&mut self) -> Result<()> {
        let usual = self.plan.usual;
        if self.now == usual || !self.has_moved {
            return Ok(());
        }
        set(&self.plan.command, usual).or_else(|_| set(&self.plan.command, usual)).map_err(|why| {
            anyhow!(
                "THE USUAL SHARE {usual} WAS NOT RESTORED ({why}): run the command yourself with {{share}} = {usual}"
            )
        })?;
        self.now = usual;
        Ok(())
    }
}

impl Drop for ShareCommand {
    fn drop(&mut self) {
        match self.restore() {
            Ok(()) => {
                if let Some(watchdog) = self.watchdog.take() {
                    watchdog.dismiss();
                }
            }
            // The watchdog tries once more.
            Err(error) => eprintln!("straingauge: {error}"),
        }
    }
}

/// The error is a sentence.
fn set(command: &str, share: f64) -> Result<()> {
    let command = command.replace("{share}", &share.to_string());
    let words = PlainText::new(&command, 200);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).env("STRAINGAUGE_SHARE", share.to_string());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = shell.spawn().map_err(|error| anyhow!("'{words}' cannot be started: {error}"))?;
    let output = ServerOutput::capture(&mut child);
    let Some(status) = ended_in_time(&mut child)? else {
        bail!("'{words}' did not end within {} s and was ended", LIMIT.as_secs());
    };
    if status.success() {
        return Ok(());
    }
    let said = output.final_words().map_or(String::new(), |line| format!(": {line}"));
    bail!("'{words}' failed with {status}{said}")
}

fn ended_in_time(child: &mut Child) -> io::Result<Option<std::process::ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= LIMIT {
            crate::process::end(child, &[]);
            return Ok(None);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Runs as the watchdog: waits for the end of straingauge, and then sets the usual share unless that was done.
pub fn restore_on_end(command: &str, usual: f64) -> ExitCode {
    if guardian::order() == Some(guardian::STOPPED) {
        return ExitCode::SUCCESS;
    }
    let first = set(command, usual);
    std::thread::sleep(AGAIN);
    let again = set(command, usual);
    if first.is_ok() || again.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
