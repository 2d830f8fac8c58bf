//! Packs: the functions of a server that mark the boundaries between the phases of a request. Built-in packs are
//! reviewed files, one per server (`packs/NAME.pack`); users can supply others.
//!
//! A line has a keyword and its value, separated by white space; `#` begins a comment:
//!
//! ```text
//! server     nginx                        # its name in tables
//! binary     nginx*                       # file name of the program; * stands for any characters; repeatable
//! parsed     ngx_http_handler             # the request is read: parse ends, process begins; the first call counts
//! processed  ngx_http_free_request        # the response is written: process ends, log begins
//! logged     ngx_http_free_request return # log ends; `return`: when the function returns, not when it is called
//! logged     done in libserver.so*        # in a library that the program has mapped
//! ```

use record::PlainText;
use std::path::Path;

/// The packs that ship with the program.
pub const BUILT_IN: [(&str, &str); 2] =
    [("nginx", include_str!("../../packs/nginx.pack")), ("apache", include_str!("../../packs/apache.pack"))];

const MOST_BYTES: u64 = 64 << 10;
/// Maximum functions in a pack, each of which is a probe in every window.
const MOST_FUNCTIONS: usize = 16;
const MOST_NAME: usize = 200;

/// The end of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseEnd {
    /// End of parse.
    Parsed = 1,
    /// End of process.
    Processed = 2,
    /// End of log.
    Logged = 3,
}

/// A function that marks a boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundaryFunction {
    /// The boundary.
    pub boundary: PhaseEnd,
    /// Symbol of the function.
    pub function: String,
    /// Whether the boundary is at the function's return instead of its call.
    pub at_return: bool,
    /// File name (a pattern) of the library with the function; `None`: the program itself.
    pub library: Option<String>,
    /// Line of the pack, from 1.
    pub line: usize,
}

/// A pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// Source of the pack: a built-in name or a path.
    pub origin: String,
    /// The server's name.
    pub server: String,
    /// File names of the server's program (patterns).
    pub binaries: Vec<String>,
    /// Functions of the pack, in the order of the file.
    pub marks: Vec<BoundaryFunction>,
}

/// The reason why a pack cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PackError(String);

impl Pack {
    /// Reads a built-in pack by its name, or a file.
    pub fn open(word: &str) -> Result<Pack, PackError> {
        Pack::open_with_text(word).map(|(pack, _)| pack)
    }

    /// Reads a pack and also returns its text, for callers that pass it on.
    pub fn open_with_text(word: &str) -> Result<(Pack, String), PackError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == word) {
            return Ok((Pack::parse(name, text)?, text.to_string()));
        }
        let unreadable = |error| PackError(format!("{word} cannot be read: {error}"));
        let mut text = String::new();
        let file = std::fs::File::open(Path::new(word)).map_err(unreadable)?;
        std::io::Read::read_to_string(&mut std::io::Read::take(file, MOST_BYTES + 1), &mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(PackError(format!("{word}: a pack has at most {MOST_BYTES} bytes")));
        }
        Ok((Pack::parse(word, &text)?, text))
    }

    /// Parses a pack.
    pub fn parse(origin: &str, text: &str) -> Result<Pack, PackError> {
        let mut pack = Pack { origin: origin.into(), server: String::new(), binaries: Vec::new(), marks: Vec::new() };
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let wrong = |what| PackError(format!("{origin}, line {}: {what}", index + 1));
            pack.take(&words, index + 1).map_err(wrong)?;
        }
        let missing = if pack.server.is_empty() {
            Some("a line 'server NAME' is missing".to_string())
        } else if pack.binaries.is_empty() {
            Some("a line 'binary FILE' is missing".to_string())
        } else {
            [(PhaseEnd::Parsed, "parsed"), (PhaseEnd::Processed, "processed"), (PhaseEnd::Logged, "logged")]
                .into_iter()
                .find(|(boundary, _)| pack.marks.iter().all(|mark| mark.boundary != *boundary))
                .map(|(_, word)| format!("a line '{word} FUNCTION' is missing: phases need all three boundaries"))
        };
        match missing {
            Some(what) => Err(PackError(format!("{origin}: {what}"))),
            None => Ok(pack),
        }
    }

    fn take(&mut self, words: &[&str], line: usize) -> Result<(), String> {
        let Some((first, rest)) = words.split_first() else { return Ok(()) };
        if let Some(long) = rest.iter().find(|word| word.len() > MOST_NAME) {
            return Err(format!("a name has {} characters, more than {MOST_NAME}", long.len()));
        }
        let boundary = match *first {
            "server" | "binary" => {
                let [value] = rest else { return Err(format!("'{first}' takes one word")) };
                if *first == "binary" {
                    self.binaries.push((*value).into());
                } else if !self.server.is_empty() {
                    return Err("the server has a name already".into());
                } else {
                    self.server = (*value).into();
                }
                return Ok(());
            }
            "parsed" => PhaseEnd::Parsed,
            "processed" => PhaseEnd::Processed,
            "logged" => PhaseEnd::Logged,
            other => {
                return Err(format!(
                    "'{}' is not a keyword: use server, binary, parsed, processed or logged",
                    PlainText::new(other, 40)
                ));
            }
        };
        let Some((function, mut rest)) = rest.split_first() else {
            return Err(format!("'{first}' needs the name of a function"));
        };
        let mut mark =
            BoundaryFunction { boundary, function: (*function).into(), at_return: false, library: None, line };
        if let Some((&"return", more)) = rest.split_first() {
            mark.at_return = true;
            rest = more;
        }
        mark.library = match rest {
            [] => None,
            ["in", library] => Some((*library).into()),
            _ => return Err("only 'return' and 'in LIBRARY' may follow the function".into()),
        };
        if self.marks.len() == MOST_FUNCTIONS {
            return Err(format!("a pack has at most {MOST_FUNCTIONS} functions"));
        }
        self.marks.push(mark);
        Ok(())
    }

    /// Whether a program's file name matches this pack.
    pub fn fits(&self, file_name: &str) -> bool {
        self.binaries.iter().any(|pattern| matches(pattern, file_name))
    }
}

/// Whether a name matches a pattern; `*` matches any characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
