//! The document tree that a server needs to answer a mix or a log.
//!
//! ```text
//! OUT/manifest.tsv     target <TAB> file <TAB> bytes <TAB> origin, one row a target (raw bytes, without tabs)
//! OUT/nginx-map.conf   the same as an nginx map of $request_uri, for targets whose file is not where their path says
//! OUT/root/            the files; the server's document root
//! ```
//!
//! # From target to file
//!
//! A path that is safe and means one file is that file below `root/`, percent-decoded; a path that ends in `/` is its
//! `index.html`. Every other target gets `root/mapped-urls/HH/HASH.ext`, and the server needs the map to find it:
//! targets with a query, `..`, `.`, empty or over-long parts, bad percent escapes, control bytes, NUL, backslash, text
//! that is not UTF-8, `.ht*` (which Apache refuses to serve), a path that other targets use as a directory, and a path
//! that another target of a different size decodes to.
//!
//! # Sizes of a log
//!
//! The size answered most often with status 200 (`log`; of two as frequent, the larger); else the largest answered with
//! 206 (`partial`); else 1,024 bytes (`assumed`: only 304 or HEAD was seen). Targets that never succeeded get no file,
//! so that the server answers 404, too.
//!
//! # Safety
//!
//! Nothing is written outside `OUT`, no symbolic link is followed, a directory that holds anything else is refused, and
//! each file is renamed into place when it is complete, so that an interrupted run can be repeated.

mod content;
mod manifest;
mod mapping;
mod tally;
mod write;

pub use write::{Made, make};

use crate::mix::Mix;
use crate::trace::{TraceError, TraceReader};
use std::path::PathBuf;

/// Maximum size of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together. Default 10 GiB.
    pub bytes: u64,
    /// Targets. Default 1,000,000.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 10 << 30, files: 1_000_000 }
    }
}

/// One target and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The request target. Untrusted bytes, without space or control byte.
    pub target: Vec<u8>,
    /// Path below `root/`: safe, relative, UTF-8.
    pub file: String,
    /// Size.
    pub bytes: u64,
    /// The source of the size.
    pub origin: SizeOrigin,
}

record::worded! {
    /// The source of a file's size.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SizeOrigin {
        /// The mix.
        Mix = "mix",
        /// The log's answers with status 200.
        Log = "log",
        /// The log's largest answer with status 206: the file is at least this large.
        Partial = "partial",
        /// No answer of the log had the size.
        Assumed = "assumed",
    }
}

/// The files to make, and the inexact ones among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// One for each target, ordered by target.
    pub entries: Vec<FileEntry>,
    /// Requests of the log with status 200 (a GET with a size).
    pub requests: u64,
    /// The part of `requests` whose size differs from the file's: the document changed, or the answer was cut off.
    pub requests_of_other_size: u64,
    /// Targets with so many different sizes that another one may have been more frequent than the file's.
    pub of_uncertain_size: u64,
    /// Targets of the log that never succeeded.
    pub without_file: u64,
}

impl Tree {
    /// The tree of a mix.
    pub fn of_mix(mix: &Mix, limits: &Limits) -> Result<Tree, FilesError> {
        let wanted: Vec<_> = mix
            .documents
            .iter()
            .map(|document| (document.url.as_bytes().to_vec(), document.bytes, SizeOrigin::Mix))
            .collect();
        if wanted.len() > limits.files {
            return Err(FilesError::TooMany { limit: limits.files });
        }
        Tree::of(wanted)
    }

    /// The tree of a log, which is read to its end.
    pub fn of_trace(reader: &mut TraceReader, limits: &Limits) -> Result<Tree, FilesError> {
        let tallies = tally::Tallies::read(reader, limits)?;
        let mut tree = Tree::of(tallies.existing())?;
        tree.requests = tallies.requests;
        tree.requests_of_other_size = tallies.requests_of_other_size();
        tree.of_uncertain_size = tallies.of_uncertain_size();
        tree.without_file = tallies.without_file();
        Ok(tree)
    }

    fn of(wanted: Vec<(Vec<u8>, u64, SizeOrigin)>) -> Result<Tree, FilesError> {
        if wanted.is_empty() {
            return Err(FilesError::Empty);
        }
        Ok(Tree { entries: mapping::place(wanted), ..Tree::default() })
    }

    /// Bytes of all files together; a file that several targets share counts once.
    pub fn total_bytes(&self) -> u64 {
        let mut files: Vec<(&str, u64)> = self.entries.iter().map(|entry| (entry.file.as_str(), entry.bytes)).collect();
        files.sort_unstable();
        files.dedup();
        files.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// A tree that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The log could not be read further.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No document with a size.
    #[error("there is no file to make: no document has a known size")]
    Empty,
    /// Too many targets.
    #[error("there are more than {limit} different targets: raise the limit on files, or take a part of the log")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// More bytes than allowed.
    #[error(
        "the files need {needed_bytes} bytes, and the limit is {limit_bytes}: raise the limit, or take a smaller mix \
         or log"
    )]
    TooLarge {
        /// The bytes that they need.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// More bytes than free space.
    #[error("the files need {needed_bytes} more bytes, and the file system of {} has {free_bytes} \
             free", path.display())]
    NoRoom {
        /// Bytes still to be written.
        needed_bytes: u64,
        /// Free bytes.
        free_bytes: u64,
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds other things.
    #[error("{} is not empty and was not made by this command: name a new or empty directory", .0.display())]
    Foreign(PathBuf),
    /// The directory holds another workload's files.
    #[error("{} holds the files of another workload: name another directory, or remove it first", .0.display())]
    OtherWorkload(PathBuf),
    /// The system refused an operation.
    #[error("{} cannot be {what}: {cause}", path.display())]
    Io {
        /// `created`, `written`, ...
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}
