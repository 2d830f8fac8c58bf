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
    /// Progress for this invocation.
    pub fn new(is_quiet: bool) -> Self {
        Progress { is_quiet, is_terminal: std::io::stderr().is_terminal(), has_open_line: false }
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        self.clear();
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// A line that the next one replaces; shown on a terminal only.
    pub fn show(&mut self, text: &str) {
        if self.is_quiet || !self.is_terminal {
            return;
        }
        let line: String = text.chars().take(width().saturating_sub(1)).collect();
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

/// Columns of the terminal on standard error; 80 if the terminal does not report them.
fn width() -> usize {
    // SAFETY: an all-zero winsize is valid, and the ioctl writes only that.
    let columns = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size) == 0 { size.ws_col } else { 0 }
    };
    if columns == 0 { 80 } else { usize::from(columns) }
}
