//! Lines of a log, of bounded length.

use std::io::{self, BufRead, BufReader, Read};

/// Maximum length of a line. Longer lines are skipped and counted.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024;

/// Size of the read buffer. It is small enough for a core's second-level cache.
pub const BUFFER_BYTES: usize = 128 * 1024;

/// Reads a log line by line.
pub struct LogLines {
    source: BufReader<Box<dyn Read + Send>>,
    /// The last line without its line end (`\n` or `\r\n`).
    pub text: Vec<u8>,
    /// Number of the last line, from 1.
    pub line: u64,
    /// Bytes read so far.
    pub bytes: u64,
}

impl LogLines {
    /// Reads from the start of `source`.
    pub fn new(source: Box<dyn Read + Send>) -> Self {
        LogLines { source: BufReader::with_capacity(BUFFER_BYTES, source), text: Vec::new(), line: 0, bytes: 0 }
    }

    /// Reads the next line; `None` at the end, and `Some(false)` for a line longer than [`LINE_LIMIT_BYTES`].
    #[inline]
    pub fn next_line(&mut self) -> io::Result<Option<bool>> {
        self.text.clear();
        let mut read = (&mut self.source).take(LINE_LIMIT_BYTES as u64 + 1).read_until(b'\n', &mut self.text)?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        self.text.pop_if(|last| *last == b'\n');
        let is_too_long = self.text.len() > LINE_LIMIT_BYTES;
        if is_too_long {
            read += self.source.skip_until(b'\n')?;
        }
        self.bytes += read as u64;
        self.text.pop_if(|last| *last == b'\r');
        Ok(Some(!is_too_long))
    }
}
