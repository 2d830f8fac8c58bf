//! Lines that could not be read, counted by reason, with a few examples.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $words:literal;)+) => {
        /// Why a line was not used.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),+];

            /// The reason as a phrase.
            pub fn words(self) -> &'static str {
                match self { $(Reason::$name => $words),+ }
            }
        }
    };
}

reasons! {
    /// The line has no client address at its place.
    Client = "no client address";
    /// The line has no readable time, or one before 1970 or after 2200.
    Time = "no readable time";
    /// The request line is not `METHOD TARGET HTTP/x`.
    Request = "the request is not METHOD TARGET HTTP/VERSION";
    /// The connection ended without a request (`"-"` or `""`).
    NoRequest = "the client sent no request";
    /// The target contains a space or a control byte, so that it cannot be sent again.
    Target = "the target is empty, or holds a space or a control byte";
    /// The status is not a number of three digits.
    Status = "the status is not three digits";
    /// The size is not a number.
    Bytes = "the size is not a number";
    /// The line does not follow the format.
    Layout = "the line does not follow the format";
    /// Longer than 64 KiB.
    TooLong = "the line is longer than 64 KiB";
}

const EXAMPLES: usize = 2;
const EXCERPT_BYTES: usize = 120;

/// A line that was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedLine {
    /// Line of the log, from 1.
    pub line: u64,
    /// Why it was not used.
    pub reason: Reason,
    /// Beginning of the line, with control bytes and non-ASCII bytes escaped.
    pub excerpt: String,
}

/// Number of unused lines by reason, with examples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    counts: [u64; Reason::ALL.len()],
    examples: Vec<RejectedLine>,
}

impl Rejected {
    /// Number of unused lines.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Number of lines that were not used for this reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// The first lines of each reason, in the order of the log.
    pub fn examples(&self) -> &[RejectedLine] {
        &self.examples
    }

    #[cold]
    pub(super) fn add(&mut self, line: u64, reason: Reason, text: &[u8]) {
        self.counts[reason as usize] += 1;
        if self.counts[reason as usize] <= EXAMPLES as u64 {
            self.examples.push(RejectedLine { line, reason, excerpt: excerpt(text) });
        }
    }
}

impl fmt::Display for RejectedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason.words())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_few_and_printable() {
        let mut rejected = Rejected::default();
        for line in 1..=1000 {
            rejected.add(line, Reason::Time, b"\x1b[31mred\xff");
        }
        rejected.add(1001, Reason::TooLong, b"");
        assert_eq!(rejected.total(), 1001);
        assert_eq!(rejected.count(Reason::Time), 1000);
        let shown: Vec<String> = rejected.examples().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                r"line 1: no readable time: \x1b[31mred\xff",
                r"line 2: no readable time: \x1b[31mred\xff",
                "line 1001: the line is longer than 64 KiB",
            ]
        );
    }
}
