//! Groups of functions named by the user, as in Kim and Rixner's profiler: `name=pattern,pattern`.

use crate::watch::pack::matches;
use record::PlainText;
use std::fmt;
use std::str::FromStr;

const MAX_PATTERNS: usize = 256;

/// A name, or a pattern with `*` (any characters), for kernel functions; with the prefix `user:` for functions of the
/// server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionPattern {
    glob: String,
    is_user: bool,
}

impl FunctionPattern {
    /// Whether a function matches, with or without the compiler's suffixes (`.isra.0`).
    pub fn matches(&self, function: &str, is_user: bool) -> bool {
        let plain = function.split('.').next().unwrap_or(function);
        self.is_user == is_user && (matches(&self.glob, function) || !is_user && matches(&self.glob, plain))
    }

    /// Whether the pattern is for the server's functions, which are known only after the run.
    pub fn is_user(&self) -> bool {
        self.is_user
    }
}

impl fmt::Display for FunctionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_user { "user:" } else { "" }, self.glob)
    }
}

/// A named group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionGroup {
    /// Its name.
    pub name: String,
    /// Its patterns.
    pub patterns: Vec<FunctionPattern>,
}

impl FunctionGroup {
    /// Whether the group contains a function.
    pub fn contains(&self, function: &str, is_user: bool) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(function, is_user))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a group: write it as name=pattern,pattern, for instance acks=tcp_ack*,tcp_send_ack")]
pub struct GroupError(pub PlainText);

impl FromStr for FunctionGroup {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || GroupError(PlainText::new(text, 80));
        let (name, patterns) = text.split_once('=').ok_or_else(wrong)?;
        let name = name.trim();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(wrong());
        }
        let patterns: Vec<FunctionPattern> = patterns
            .split(',')
            .take(MAX_PATTERNS + 1)
            .map(|pattern| {
                let pattern = pattern.trim();
                let (glob, is_user) = pattern.strip_prefix("user:").map_or((pattern, false), |glob| (glob, true));
                FunctionPattern { glob: glob.to_string(), is_user }
            })
            .collect();
        let is_wrong =
            |pattern: &FunctionPattern| pattern.glob.is_empty() || pattern.glob.chars().any(char::is_control);
        if patterns.len() > MAX_PATTERNS || patterns.iter().any(is_wrong) {
            return Err(wrong());
        }
        Ok(FunctionGroup { name: name.to_string(), patterns })
    }
}
