//! The run directories in a folder.

use crate::run::{RECORD, RunError};
use std::fs;
use std::path::{Path, PathBuf};

const MOST_DEPTH: usize = 6;
const MOST_ENTRIES: usize = 200_000;
const MOST_RUNS: usize = 2_000;

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoundRuns {
    /// Folders with a `run.json`, whatever it contains.
    pub runs: Vec<PathBuf>,
    /// Folders that were not searched, with the reason.
    pub left_out: Vec<(PathBuf, String)>,
}

/// Searches a folder for run directories. Links are not followed; hidden folders and folders in a run directory (the
/// second run of a comparison) are skipped. Names are visited in descending order, so an early end of the search
/// keeps the newest runs with default names.
pub fn find(folder: &Path) -> Result<FoundRuns, RunError> {
    let read = fs::read_dir(folder).map(drop);
    read.map_err(|source| RunError::Read { path: folder.into(), source })?;
    Ok(search(folder, MOST_RUNS))
}

fn search(folder: &Path, most_runs: usize) -> FoundRuns {
    let mut search = RunSearch { found: FoundRuns::default(), entries: 0, most_runs };
    search.visit(folder, 0);
    search.found
}

struct RunSearch {
    found: FoundRuns,
    entries: usize,
    most_runs: usize,
}

impl RunSearch {
    fn visit(&mut self, folder: &Path, depth: usize) {
        // Not `exists`, which follows links.
        if let Ok(there) = fs::symlink_metadata(folder.join(RECORD)) {
            if there.is_symlink() {
                self.leave_out(folder, "its run.json is a link, and links are not followed")
            } else {
                self.found.runs.push(folder.into())
            }
            return;
        }
        if depth > MOST_DEPTH {
            return self.leave_out(folder, &format!("it lies more than {MOST_DEPTH} folders deep"));
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.leave_out(folder, &error.to_string()),
        };
        let mut folders = Vec::new();
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                break;
            }
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
        folders.sort_unstable_by(|a, b| b.cmp(a));
        for folder in folders {
            if self.found.runs.len() >= self.most_runs || self.entries > MOST_ENTRIES {
                let most = self.most_runs;
                let most = format!(
                    "this run and all later ones: only {most} runs in {MOST_ENTRIES} entries are \
                    listed"
                );
                // Parent folders do not repeat the reason.
                if self.found.left_out.last().is_none_or(|(_, why)| *why != most) {
                    self.leave_out(&folder, &most);
                }
                return;
            }
            self.visit(&folder, depth + 1);
        }
    }

    fn leave_out(&mut self, folder: &Path, why: &str) {
        self.found.left_out.push((folder.into(), why.into()));
    }
}
