//! The command of `find --beside`, e.g. an agent, a monitor or a tracer. It runs in the server's network namespace,
//! on its CPUs, in a session that ends with it.

use super::RunningServer;
use super::guardian::{self, Guardian};
use super::output::ServerOutput;
use crate::process;
use anyhow::{Result, anyhow};
use record::PlainText;
use record::leftovers::MARK;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running agent. Dropping it stops all its processes.
pub struct Agent {
    words: PlainText,
    child: Child,
    output: ServerOutput,
    mark: String,
    /// `None` after it was stopped.
    guardian: Option<Guardian>,
}

impl Agent {
    /// Starts `argv` next to the server that listens on `port`. `server`: if straingauge started it; `pid`: its
    /// process.
    pub fn start(argv: &[String], server: Option<&RunningServer>, port: u16, pid: Option<u32>) -> Result<Agent> {
        super::become_subreaper();
        let mark = guardian::next_mark(guardian::BESIDE);
        let argv = addressed(argv, port, pid);
        let mut command = Command::new(program(&argv[0]));
        command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env(MARK, &mark).env("STRAINGAUGE_PORT", port.to_string());
        if let Some(pid) = pid {
            command.env("STRAINGAUGE_SERVER_PID", pid.to_string());
        }
        match server {
            Some(server) => server.put_beside(&mut command)?,
            None => super::run_pinned(&mut command, &[]),
        }
        let words = PlainText::new(&argv.join(" "), 120);
        let what = format!("the command '{words}' of --beside");
        let mut child = command.spawn().map_err(|error| process::cannot_start(&what, &error))?;
        let output = ServerOutput::capture(&mut child);
        let guardian = Guardian::over(child.id(), &mark).map_err(|error| {
            process::end(&mut child, &[]);
            anyhow!("{what} was not started, because no guardian process could be: {error}")
        })?;
        Ok(Agent { words, child, output, mark, guardian: Some(guardian) })
    }

    /// Processes of the agent: its session, and daemons that left it.
    pub fn pids(&self) -> Vec<u32> {
        let members = guardian::members_of(self.child.id(), &self.mark);
        members.into_iter().map(|pid| pid.as_raw_pid() as u32).collect()
    }

    /// How the agent ended, in a sentence; `None` while it or its daemon runs.
    pub fn end_reason(&self) -> Option<String> {
        let status = process::ended(self.child.id())?;
        if status.success() && !self.pids().is_empty() {
            return None;
        }
        Some(format!("the command '{}' of --beside {}", self.words, self.output.exit_words(status)))
    }

    /// Stops all processes, politely first; returns the kept output.
    pub fn stop(&mut self) -> Vec<u8> {
        if let Some(guardian) = self.guardian.take() {
            let pids = self.pids();
            process::end(&mut self.child, &pids);
            // Ends the remaining processes.
            drop(guardian);
            // Lets the threads that read the output finish.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.output.bytes()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The program of a command; the word `straingauge` means this program.
fn program(word: &str) -> std::path::PathBuf {
    match word {
        "straingauge" => std::env::current_exe().unwrap_or_else(|_| word.into()),
        word => word.into(),
    }
}

/// Replaces the words PORT and PID by those of the server. A word may be part of an argument (`:PORT`), but not of a
/// longer word or a variable (`$PORT`, `PORT_NAME`).
pub fn addressed(argv: &[String], port: u16, pid: Option<u32>) -> Vec<String> {
    let replaced = |text: &str, word: &str, by: &str| {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(word) {
            let (before, after) = (&rest[..at], &rest[at + word.len()..]);
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '{' | '=');
            let last = before.chars().next_back().or(out.chars().next_back());
            let follows = last.is_some_and(|c| is_part(c) && c != '=');
            let goes_on = after.starts_with(is_part);
            out.push_str(before);
            out.push_str(if follows || goes_on { word } else { by });
            rest = after;
        }
        out + rest
    };
    let port = port.to_string();
    let with_pid = |text: String| pid.map_or(text.clone(), |pid| replaced(&text, "PID", &pid.to_string()));
    argv.iter().map(|word| with_pid(replaced(word, "PORT", &port))).collect()
}
