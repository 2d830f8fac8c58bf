//! Cuts a stream into lines inside one fixed buffer.

use crate::BYTE_ORDER_MARK;
use memchr::memchr;
use std::io::{self, Read};

/// Maximum length of a line. Longer lines are skipped and counted.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024;

/// Size of the buffer that holds all lines. It is small enough for a core's second-level cache.
pub const BUFFER_BYTES: usize = 192 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLine {
    /// A line without its line end (`\n` or `\r\n`), as a range of the buffer.
    Text { start: usize, end: usize },
    /// A line longer than [`LINE_LIMIT_BYTES`], which was dropped.
    TooLong,
}

/// Lines of a stream. Each is a range of [`LogLines::buffer`] that is valid until the next call.
pub(super) struct LogLines {
    source: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    is_at_end: bool,
    /// Whether the buffer is inside a too long line whose beginning was dropped.
    is_skipping: bool,
    /// Lines begun so far, including skipped ones, which is the number of the last returned line.
    pub(super) line: u64,
    pub(super) bytes: u64,
}

impl LogLines {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        LogLines {
            source,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            is_at_end: false,
            is_skipping: false,
            line: 0,
            bytes: 0,
        }
    }

    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// The beginning of the stream after a byte order mark, up to the buffer's size. Call it only before the first
    /// line.
    pub(super) fn peek(&mut self) -> io::Result<&[u8]> {
        while !self.is_at_end && self.end < self.buffer.len() {
            self.fill()?;
        }
        if self.buffer[self.start..self.end].starts_with(BYTE_ORDER_MARK) {
            self.start += BYTE_ORDER_MARK.len();
        }
        Ok(&self.buffer[self.start..self.end])
    }

    #[inline]
    pub(super) fn next(&mut self) -> io::Result<Option<LogLine>> {
        let mut scanned = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(found) = memchr(b'\n', &unread[scanned..]) {
                let length = scanned + found;
                let (start, end) = (self.start, self.start + length);
                self.start += length + 1;
                self.bytes += length as u64 + 1;
                return Ok(Some(self.take(start, end)));
            }
            scanned = unread.len();
            if scanned > LINE_LIMIT_BYTES {
                self.is_skipping = true;
                self.bytes += scanned as u64;
                self.start = self.end;
                scanned = 0;
            }
            if self.is_at_end {
                if self.start == self.end && !self.is_skipping {
                    return Ok(None);
                }
                let (start, end) = (self.start, self.end);
                self.bytes += (self.end - self.start) as u64;
                self.start = self.end;
                return Ok(Some(self.take(start, end)));
            }
            self.fill()?;
        }
    }

    #[inline]
    fn take(&mut self, start: usize, mut end: usize) -> LogLine {
        self.line += 1;
        if std::mem::take(&mut self.is_skipping) || end - start > LINE_LIMIT_BYTES {
            return LogLine::TooLong;
        }
        if end > start && self.buffer[end - 1] == b'\r' {
            end -= 1;
        }
        LogLine::Text { start, end }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        } else if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns a few bytes at a time, as a pipe may.
    struct Trickle(Vec<u8>, usize);

    impl Read for Trickle {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn all(bytes: Vec<u8>, step: usize) -> (Vec<(u64, Vec<u8>)>, u64) {
        let mut lines = LogLines::new(Box::new(Trickle(bytes, step)));
        let mut out = Vec::new();
        let mut too_long = 0;
        while let Some(line) = lines.next().unwrap() {
            match line {
                LogLine::Text { start, end } => out.push((lines.line, lines.buffer()[start..end].to_vec())),
                LogLine::TooLong => too_long += 1,
            }
        }
        (out, too_long)
    }

    #[test]
    fn a_stream_without_line_ends_is_one_long_line() {
        let (lines, too_long) = all(vec![b'y'; 3 * BUFFER_BYTES], 100_000);
        assert!(lines.is_empty());
        assert_eq!(too_long, 1);
    }

    #[test]
    fn the_longest_allowed_line_is_read() {
        let mut text = vec![b'x'; LINE_LIMIT_BYTES];
        text.push(b'\n');
        text.extend(vec![b'y'; LINE_LIMIT_BYTES + 1]);
        text.push(b'\n');
        let (lines, too_long) = all(text, usize::MAX);
        assert_eq!((lines.len(), too_long), (1, 1));
    }

    proptest! {
        #[test]
        fn the_size_of_reads_does_not_change_the_lines(text in "([a-c]{0,5}\r?\n){0,20}[a-c]{0,3}", step in 1usize..9) {
            let whole = text.strip_suffix('\n').unwrap_or(&text);
            let without_cr = |line: &str| line.strip_suffix('\r').unwrap_or(line).into();
            let mut expected: Vec<Vec<u8>> = whole.split('\n').map(without_cr).collect();
            if text.is_empty() {
                expected.clear();
            }
            let (lines, _) = all(text.clone().into_bytes(), step);
            prop_assert_eq!(lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), expected);
        }
    }
}
