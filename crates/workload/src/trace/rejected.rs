use std::fmt;

record::worded! {
    /// Why a line was not used.
    #[allow(missing_docs)]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum RejectReason {
        Client = "no client address",
        /// Or one before 1970 or after 2200.
        Time = "no readable time",
        Request = "the request is not METHOD TARGET HTTP/VERSION",
        /// `"-"` or `""`.
        NoRequest = "the client sent no request",
        Target = "the target is empty, or holds a space or a control byte",
        Status = "the status is not three digits",
        Bytes = "the size is not a number",
        Layout = "the line does not follow the format",
        TooLong = "the line is longer than 64 KiB",
    }
}

const EXAMPLES: usize = 2;
const EXCERPT_BYTES: usize = 120;

/// A line that was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedLine {
    /// Line of the log, from 1.
    pub line: u64,
    /// Why it was not used.
    pub reason: RejectReason,
    /// Beginning of the line, with control bytes and non-ASCII bytes escaped.
    pub excerpt: String,
}

/// Number of unused lines by reason, with examples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    counts: [u64; RejectReason::ALL.len()],
    examples: Vec<RejectedLine>,
}

impl Rejected {
    /// Number of unused lines.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The first lines of each reason, in the order of the log.
    pub fn examples(&self) -> &[RejectedLine] {
        &self.examples
    }

    /// Counts a line and keeps it as an example if it is one of the first of its reason.
    #[cold]
    pub fn add(&mut self, line: u64, reason: RejectReason, text: &[u8]) {
        self.counts[reason as usize] += 1;
        if self.counts[reason as usize] <= EXAMPLES as u64 {
            self.examples.push(RejectedLine { line, reason, excerpt: excerpt(text) });
        }
    }
}

impl fmt::Display for RejectedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason.word())?;
        if !self.excerpt.is_empty() {
            write!(f, ": {}", self.excerpt)?;
        }
        Ok(())
    }
}

/// The beginning of untrusted bytes, escaped so that it is safe to print on one line of a terminal.
pub(super) fn excerpt(text: &[u8]) -> String {
    let mut out = text[..text.len().min(EXCERPT_BYTES)].escape_ascii().to_string();
    if text.len() > EXCERPT_BYTES {
        out.push_str("...");
    }
    out
}
