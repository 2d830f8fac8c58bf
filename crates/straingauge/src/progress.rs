//! Progress on standard error: one line redrawn on a terminal, plain lines elsewhere, nothing with `--quiet`.

use report::watch::screen::TerminalSize;
use std::io::{IsTerminal, Write, stderr};
use std::os::fd::AsFd;

#[derive(Debug)]
pub struct Progress {
    is_quiet: bool,
    is_terminal: bool,
    has_open_line: bool,
}

impl Progress {
    pub fn new(is_quiet: bool) -> Self {
        Progress { is_quiet, is_terminal: stderr().is_terminal(), has_open_line: false }
    }

    /// Prints a line that stays.
    pub fn say(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        self.clear();
        let columns = terminal_size(stderr()).columns;
        for line in text.lines() {
            let fits = !self.is_terminal || line.chars().count() <= columns;
            let line = if fits { format!("{line}\n") } else { report::text::wrap_at(columns, line, "", "  ") };
            let _ = stderr().write_all(line.as_bytes());
        }
    }

    /// Shows a line that the next one replaces, only on a terminal.
    pub fn show(&mut self, text: &str) {
        if self.is_quiet || !self.is_terminal {
            return;
        }
        let line: String = text.chars().take(terminal_size(stderr()).columns.saturating_sub(1)).collect();
        let _ = write!(stderr(), "\r\x1b[K{line}");
        let _ = stderr().flush();
        self.has_open_line = true;
    }

    pub fn clear(&mut self) {
        if self.has_open_line {
            let _ = write!(stderr(), "\r\x1b[K");
            let _ = stderr().flush();
            self.has_open_line = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Size of a terminal; 80 x 24 if unknown.
pub fn terminal_size(terminal: impl AsFd) -> TerminalSize {
    let size = rustix::termios::tcgetwinsize(terminal).ok();
    let or = |value: Option<u16>, default| value.filter(|value| *value > 0).map_or(default, usize::from);
    TerminalSize { columns: or(size.map(|size| size.ws_col), 80), rows: or(size.map(|size| size.ws_row), 24) }
}
