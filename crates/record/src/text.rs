//! Text from outside (names of processes, files and servers, headers, log lines, standard error, contents of files),
//! made safe at its origin.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::ops::Deref;

/// Text from outside, made safe to print: one line of limited length. Control characters (which begin escape
/// sequences) and characters that change the direction or the joining of the following text become `?`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct PlainText(String);

/// The default limit of characters.
pub const MOST_CHARS: usize = 300;

impl PlainText {
    /// The first `limit` characters; `...` marks a cut.
    pub fn new(text: &str, limit: usize) -> PlainText {
        let mut clean: String = text.chars().take(limit).map(|c| if is_safe(c) { c } else { '?' }).collect();
        if text.chars().nth(limit).is_some() {
            clean.push_str("...");
        }
        PlainText(clean)
    }

    /// As [`new`](Self::new), for bytes, which are trimmed; invalid UTF-8 becomes U+FFFD.
    pub fn of_bytes(bytes: &[u8], limit: usize) -> PlainText {
        // No character has more than four bytes.
        let bytes = bytes.trim_ascii();
        let kept = &bytes[..bytes.len().min(limit.saturating_mul(4).saturating_add(4))];
        PlainText::new(&String::from_utf8_lossy(kept), limit)
    }

    /// As a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// [`PlainText`] as a string, for text of a run directory.
pub fn plain(text: &str, limit: usize) -> String {
    PlainText::new(text, limit).into()
}

/// Whether a character has no effect on other characters.
fn is_safe(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_format
}

impl Deref for PlainText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for PlainText {
    /// Uses the default limit, [`MOST_CHARS`].
    fn from(text: &str) -> PlainText {
        PlainText::new(text, MOST_CHARS)
    }
}

impl PartialEq<str> for PlainText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for PlainText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl From<PlainText> for String {
    fn from(text: PlainText) -> String {
        text.0
    }
}

impl<'de> Deserialize<'de> for PlainText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| PlainText::new(&text, MOST_CHARS))
    }
}
