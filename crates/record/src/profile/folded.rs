//! Folded stacks: `outermost;...;innermost COUNT`, one stack per line, the input of flame graph viewers. The root is
//! the server's program, or the place outside it where its packets were handled; kernel functions end in `_[k]`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

/// A folded file with more lines, or with a longer line, was not written by straingauge.
const MAX_LINES: usize = 1_000_000;
const MAX_LINE_BYTES: u64 = 64 << 10;
/// C++ and Rust have names of several thousand characters.
const MOST_FRAME_CHARS: usize = 4096;

/// Marks a kernel function.
pub const KERNEL_MARK: &str = "_[k]";

/// Stacks, outermost first, with their counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded(pub BTreeMap<Vec<String>, u64>);

impl Folded {
    /// Counts a stack, outermost function first. A name cannot end its frame or its line: `;` is replaced, and spaces
    /// at the ends of a frame are dropped.
    pub fn add(&mut self, frames: impl IntoIterator<Item = String>, count: u64) {
        let safe = |frame: String| {
            let frame = crate::text::plain(&frame, MOST_FRAME_CHARS).replace(';', ":");
            match frame.trim() {
                "" => "[unknown]".to_string(),
                trimmed => trimmed.to_string(),
            }
        };
        let sum = self.0.entry(frames.into_iter().map(safe).collect()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|(frames, count)| format!("{} {count}\n", frames.join(";"))).collect()
    }

    /// Reads the text of a file; skips comments (`#`) and empty lines.
    pub fn parse(mut text: impl BufRead) -> Result<Folded, FoldedError> {
        let mut folded = Folded::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = Read::take(&mut text, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            let wrong = || FoldedError::Line { number };
            if number > MAX_LINES || read as u64 == MAX_LINE_BYTES {
                return Err(wrong());
            }
            let text = std::str::from_utf8(&line).map_err(|_| wrong())?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (frames, count) = text.rsplit_once(' ').ok_or_else(wrong)?;
            let count: u64 = count.parse().map_err(|_| wrong())?;
            folded.add(frames.split(';').map(str::to_string), count);
        }
        if folded.0.is_empty() { Err(FoldedError::Empty) } else { Ok(folded) }
    }
}

/// The reason why a file has no folded stacks.
#[derive(Debug, thiserror::Error)]
pub enum FoldedError {
    /// A line is not `frame;frame COUNT`.
    #[error("line {number} is not 'function;function COUNT'")]
    Line {
        /// Line number, from 1.
        number: usize,
    },
    /// There is no stack.
    #[error("it holds no stacks")]
    Empty,
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}
