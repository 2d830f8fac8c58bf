use std::io::{self, BufRead, BufReader, Read};

/// Maximum length of a line. Longer lines are skipped and counted.
const LINE_LIMIT_BYTES: usize = 64 * 1024;

/// Size of the read buffer. It is small enough for a core's second-level cache.
const BUFFER_BYTES: usize = 128 * 1024;

pub(super) struct LogLines {
    source: BufReader<Box<dyn Read + Send>>,
    /// The last line without its line end (`\n` or `\r\n`).
    pub(super) text: Vec<u8>,
    /// Number of the last line, from 1.
    pub(super) line: u64,
    pub(super) bytes: u64,
}

impl LogLines {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        LogLines { source: BufReader::with_capacity(BUFFER_BYTES, source), text: Vec::new(), line: 0, bytes: 0 }
    }

    /// Reads the next line; `None` at the end, and `Some(false)` for a line longer than [`LINE_LIMIT_BYTES`].
    #[inline]
    pub(super) fn next(&mut self) -> io::Result<Option<bool>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_long_ones_skipped() {
        let [longest, too_long, unended] = [0, 1, 3 * BUFFER_BYTES].map(|more| "x".repeat(LINE_LIMIT_BYTES + more));
        let text = format!("a\r\n\n{longest}\n{too_long}\nb\n{unended}");
        let bytes = text.len() as u64;
        let mut lines = LogLines::new(Box::new(io::Cursor::new(text)));
        for (number, expected) in (1..).zip([Some("a"), Some(""), Some(&longest), None, Some("b"), None]) {
            let is_whole = lines.next().unwrap().unwrap();
            assert_eq!(lines.line, number);
            assert_eq!(is_whole.then_some(&lines.text[..]), expected.map(str::as_bytes), "line {number}");
        }
        assert_eq!((lines.next().unwrap(), lines.bytes), (None, bytes));
    }
}
