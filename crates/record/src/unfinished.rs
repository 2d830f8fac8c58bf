//! Files that appear only when complete: until then they have a hidden name with their owner. A killed process leaves
//! them, and [`KIND`] finds and removes them.

use crate::leftovers::{FoundLeftovers, Leftover, LeftoverKind, SearchScope, refusal};
use crate::owner::{Owner, OwnerState};
use crate::text::plain;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files and folders that were being written.
pub const KIND: LeftoverKind =
    LeftoverKind { name: "unfinished file", named: ".NAME.OWNER.partial in a folder of runs", find, remove };

const ENDING: &str = ".partial";
/// Maximum depth of the search: a run, its points, and nested folders of runs.
const MOST_DEPTH: usize = 9;
const MOST_ENTRIES: usize = 200_000;

/// The name of `name` until it is complete.
pub fn name_of(name: &str) -> String {
    format!(".{name}.{}{ENDING}", Owner::of_this_process())
}

/// The owner of an unfinished file of this name.
pub fn owner_in(name: &OsStr) -> Option<Owner> {
    let (_, owner) = name.to_str()?.strip_prefix('.')?.strip_suffix(ENDING)?.rsplit_once('.')?;
    Owner::parse(owner)
}

fn of_entry(entry: &fs::DirEntry) -> Option<Leftover> {
    let owner = owner_in(&entry.file_name()).filter(|owner| owner.life() == OwnerState::Ended)?;
    let is_folder = entry.file_type().ok()?.is_dir();
    let detail = if is_folder { "a point that was being written" } else { "a file that was being written" };
    let path = entry.path();
    // Only a UTF-8 path can be found again by its name.
    Some(Leftover { kind: KIND.name, name: path.to_str()?.into(), detail: detail.into(), owner })
}

fn find(scene: &SearchScope) -> FoundLeftovers {
    let mut search = UnfinishedSearch { found: FoundLeftovers::default(), entries: 0 };
    for folder in &scene.folders {
        match fs::canonicalize(folder) {
            Ok(folder) => search.visit(&folder, 0),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => search.found.not_seen.push(format!("{}: {error}", shown(folder))),
        }
    }
    search.found
}

struct UnfinishedSearch {
    found: FoundLeftovers,
    entries: usize,
}

impl UnfinishedSearch {
    fn visit(&mut self, folder: &Path, depth: usize) {
        if let Some(why) = refusal(folder) {
            return self.found.not_seen.push(format!("{}: {why}", shown(folder)));
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.found.not_seen.push(format!("{}: {error}", shown(folder))),
        };
        let mut folders = Vec::new();
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                let sentence = format!("{}: only {MOST_ENTRIES} entries are searched", shown(folder));
                return self.found.add(FoundLeftovers { not_seen: vec![sentence], ..FoundLeftovers::default() });
            }
            self.found.left.extend(of_entry(&entry));
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && depth < MOST_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
        folders.iter().for_each(|folder| self.visit(folder, depth + 1));
    }
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string(), 300)
}

/// Removes an unfinished file, if only this user can write to its folder and its owner has ended.
fn remove(left: &Leftover) -> Result<(), String> {
    let path = PathBuf::from(&left.name);
    let why = |error: String| format!("{} is not removed: {error}", shown(&path));
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(why("it has no name".into()));
    };
    if owner_in(name) != Some(left.owner) {
        return Err(why("it is not straingauge's".into()));
    }
    if left.owner.life() != OwnerState::Ended {
        return Err(why("its process still runs".into()));
    }
    if let Some(refused) = refusal(folder) {
        return Err(why(format!("in its folder, {refused}")));
    }
    let removed = match fs::symlink_metadata(&path) {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(&path),
        Ok(_) => fs::remove_file(&path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(why(error.to_string())),
        _ => Ok(()),
    }
}
