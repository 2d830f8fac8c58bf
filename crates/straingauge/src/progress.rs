//! Progress on standard error: one line redrawn on a terminal, plain lines elsewhere, nothing with `--quiet`.

use std::io::{IsTerminal, Write};

/// The destination of progress lines.
#[derive(Debug)]
pub struct Progress {
    is_quiet: bool,
    is_terminal: bool,
    has_open_line: bool,
}

impl Progress {
    /// Progress output for this invocation.
    pub fn new(is_quiet: bool) -> Self {
        Progress { is_quiet, is_terminal: std::io::stderr().is_terminal(), has_open_line: false }
    }

    /// Prints a line that stays.
    pub fn say(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        self.clear();
        let columns = terminal_size(libc::STDERR_FILENO).0;
        for line in text.lines() {
            let fits = !self.is_terminal || line.chars().count() <= columns;
            let line = if fits { format!("{line}\n") } else { report::text::wrap_at(columns, line, "", "  ") };
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Shows a line that the next one replaces, only on a terminal.
    pub fn show(&mut self, text: &str) {
        if self.is_quiet || !self.is_terminal {
            return;
        }
        let line: String = text.chars().take(terminal_size(libc::STDERR_FILENO).0.saturating_sub(1)).collect();
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
        self.has_open_line = true;
    }

    /// Removes the replaceable line.
    pub fn clear(&mut self) {
        if self.has_open_line {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            let _ = std::io::stderr().flush();
            self.has_open_line = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Columns and rows of a descriptor's terminal; 80 and 24 if unknown.
pub fn terminal_size(fd: libc::c_int) -> (usize, usize) {
    // SAFETY: an all-zero winsize is valid, and the ioctl writes only that.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(fd, libc::TIOCGWINSZ, &mut size);
        size
    };
    let or = |value: u16, default| if value == 0 { default } else { usize::from(value) };
    (or(size.ws_col, 80), or(size.ws_row, 24))
}
