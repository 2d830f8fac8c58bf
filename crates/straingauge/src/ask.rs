//! Asks a question of the user at the terminal.

use crate::failure::interrupted;
use crate::signals::Stop;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Write};

const MOST_BYTES: usize = 256;

/// Whether a user can answer: standard input and standard error are a terminal.
pub fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a question. Any answer except `y` or `yes` means no. Ctrl-C ends the wait.
pub fn yes(question: &str, stop: &Stop) -> Result<bool> {
    let mut terminal = std::io::stderr();
    write!(terminal, "{question} [y/N] ").and_then(|()| terminal.flush()).context("cannot ask on the terminal")?;
    let stdin = std::io::stdin();
    let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        if stop.is_set() {
            let _ = writeln!(terminal);
            return Err(interrupted("waiting for an answer"));
        }
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        // If a signal interrupts poll, the loop checks `stop`.
        if poll(&mut ready, Some(&wait)).unwrap_or(0) > 0 {
            break;
        }
    }
    let mut answer = [0; MOST_BYTES];
    let length = rustix::io::read(&stdin, &mut answer).context("cannot read the answer")?;
    let answer = String::from_utf8_lossy(&answer[..length]).trim().to_ascii_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}
