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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_group_contains_the_functions_that_match_its_patterns() {
        let group: FunctionGroup = "acks = tcp_ack*, tcp_clean_rtx_queue ,user:ngx_*_handler".parse().unwrap();
        assert_eq!(group.name, "acks");
        assert!(group.contains("tcp_ack_update_rtt", false));
        assert!(group.contains("tcp_clean_rtx_queue", false));
        assert!(!group.contains("tcp_clean_rtx_queue2", false));
        assert!(group.contains("ngx_http_handler", true));
        assert!(!group.contains("ngx_http_handler", false));
        assert!(group.contains("tcp_clean_rtx_queue.constprop.0", false));
    }

    #[test]
    fn invalid_text_is_refused_with_an_example() {
        for text in ["", "acks", "=tcp_*", "acks=", "acks=tcp_*,,x"] {
            let sentence = text.parse::<FunctionGroup>().expect_err(text).to_string();
            assert!(sentence.contains("name=pattern"), "{sentence}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_matcher(glob in "\\PC{0,30}", text in "\\PC{0,60}") {
            let _ = matches(&glob, &text);
            let _ = glob.parse::<FunctionGroup>();
        }
    }
}
