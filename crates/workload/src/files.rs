//! The document tree that a server needs to answer a mix or a log.
//!
//! ```text
//! OUT/manifest.tsv     target <TAB> file <TAB> bytes <TAB> origin, one row per target (raw bytes, without tabs)
//! OUT/nginx-map.conf   an nginx map from $request_uri to the file, for targets whose file is not at their path
//! OUT/root/            the files; the server's document root
//! ```
//!
//! # From target to file
//!
//! A safe and unambiguous path is percent-decoded and used below `root/`; a path that ends in `/` gets an
//! `index.html`. Every other target gets `root/mapped-urls/HH/HASH.ext`, and the server needs the map to find it:
//! targets with a query, `..`, `.`, empty or over-long parts, bad percent escapes, control bytes, NUL, backslash,
//! text that is not UTF-8, `.ht*` (which Apache refuses to serve), a path that other targets use as a directory, and
//! a path that another target of a different size decodes to.
//!
//! # Sizes of a log
//!
//! A file gets the size that was answered most often with status 200 (`log`; the larger of two equally frequent
//! sizes), else the largest that was answered with 206 (`partial`), else 1,024 bytes (`assumed`, when only 304 or
//! HEAD was seen). Targets that never succeeded get no file, so that the server also answers 404.
//!
//! # Safety
//!
//! Nothing is written outside `OUT`, no symbolic link is followed, a directory that holds anything else is refused,
//! and each file is renamed into place when it is complete, so that an interrupted run can be repeated.

pub mod content;
pub mod manifest;
pub mod mapping;
mod tally;
mod write;

pub use write::{WrittenTree, make};

use crate::mix::Mix;
use crate::trace::TraceReader;
use crate::{WorkloadError, wrong};

/// Limits of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Maximum bytes of all files together. Default 10 GiB.
    pub bytes: u64,
    /// Maximum number of targets. Default 1,000,000.
    pub files: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        TreeLimits { bytes: 10 << 30, files: 1_000_000 }
    }
}

impl TreeLimits {
    fn too_many(&self) -> WorkloadError {
        let limit = self.files;
        wrong(format!("more than {limit} different targets: raise the limit on files, or use a part of the log"))
    }
}

/// One target and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The request target. Untrusted bytes, without space or control byte.
    pub target: Vec<u8>,
    /// Path below `root/`: safe, relative, UTF-8.
    pub file: String,
    /// Size of the file.
    pub bytes: u64,
    /// Where the size comes from.
    pub origin: SizeOrigin,
}

record::worded! {
    /// Where a file's size comes from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SizeOrigin {
        /// From the mix.
        Mix = "mix",
        /// From the log's answers with status 200.
        Log = "log",
        /// From the log's largest answer with status 206. The file on the logged server is at least this large.
        Partial = "partial",
        /// Assumed, because no answer in the log had a size.
        Assumed = "assumed",
    }
}

/// The files to write, and counts of the files whose size is not exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// One entry for each target, sorted by target.
    pub entries: Vec<FileEntry>,
    /// GET requests in the log with status 200 and a size.
    pub requests: u64,
    /// How many of `requests` were answered with a different size than the file's: the document changed, or the
    /// answer was cut off.
    pub requests_of_other_size: u64,
    /// Targets with so many different sizes that the file's size may not be the most frequent one.
    pub of_uncertain_size: u64,
    /// Targets in the log that never succeeded.
    pub without_file: u64,
}

impl Tree {
    /// Makes the tree of a mix.
    pub fn of_mix(mix: &Mix, limits: &TreeLimits) -> Result<Tree, WorkloadError> {
        let wanted: Vec<_> = mix
            .documents
            .iter()
            .map(|document| (document.url.as_bytes().to_vec(), document.bytes, SizeOrigin::Mix))
            .collect();
        if wanted.len() > limits.files {
            return Err(limits.too_many());
        }
        Tree::new(wanted)
    }

    /// Reads a log to its end and makes its tree.
    pub fn of_trace(reader: &mut TraceReader, limits: &TreeLimits) -> Result<Tree, WorkloadError> {
        let tallies = tally::Tallies::read(reader, limits)?;
        let mut tree = Tree::new(tallies.existing())?;
        tree.requests = tallies.requests;
        tree.requests_of_other_size = tallies.requests_of_other_size();
        tree.of_uncertain_size = tallies.of_uncertain_size();
        tree.without_file = tallies.without_file();
        Ok(tree)
    }

    fn new(wanted: Vec<(Vec<u8>, u64, SizeOrigin)>) -> Result<Tree, WorkloadError> {
        if wanted.is_empty() {
            return Err(wrong("no file to write: no document has a known size"));
        }
        Ok(Tree { entries: mapping::place(wanted), ..Tree::default() })
    }

    /// Bytes of all files together. A file that several targets share counts once.
    pub fn total_bytes(&self) -> u64 {
        self.files().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// The different files and their sizes, in the order of their paths.
    fn files(&self) -> Vec<(&str, u64)> {
        let mut files: Vec<_> = self.entries.iter().map(|entry| (entry.file.as_str(), entry.bytes)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}
