//! Leftovers: everything that a killed run may leave behind. Each crate declares its kinds, and this module collects
//! them. `doctor --leftovers` lists them and `doctor --clean` removes them, as does each command that starts a server
//! before it begins.

use crate::server::guardian;
use record::leftovers::{FoundLeftovers, Leftover, LeftoverKind, SearchScope};
use record::owner::Owner;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// Maximum rounds, because ending one process may orphan others.
const ROUNDS: usize = 5;

/// Every kind, in the order of removal. Guardians and servers come first, because they may still create the others.
pub fn kinds() -> impl Iterator<Item = LeftoverKind> {
    guardian::LEFTOVERS.into_iter().chain(wan::LEFTOVERS).chain([record::unfinished::KIND])
}

pub fn find(scene: &SearchScope) -> FoundLeftovers {
    let mut found = FoundLeftovers::default();
    kinds().for_each(|kind| found.add((kind.find)(scene)));
    found
}

/// The output of `--json` with `--leftovers` or `--clean`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Removal {
    /// Things that killed runs left and that still exist.
    pub leftovers: Vec<Leftover>,
    /// Things that `--clean` removed.
    pub removed: Vec<Leftover>,
    /// Reasons why something could not be removed, one sentence each.
    pub not_removed: Vec<String>,
    /// Things that could not be checked, and why, one sentence each.
    pub not_seen: Vec<String>,
}

/// Removes leftovers until no removable one is found: all, or those of one owner. `folders` are folders of runs.
pub fn remove(folders: &[PathBuf], of: Option<Owner>) -> Removal {
    let mut removal = Removal::default();
    for _ in 0..ROUNDS {
        let mut found = find(&SearchScope::new(folders.to_vec()));
        found.left.retain(|left| of.is_none_or(|owner| left.owner == owner));
        removal.not_seen = found.not_seen;
        removal.leftovers.clear();
        removal.not_removed.clear();
        let before = removal.removed.len();
        for kind in kinds() {
            for left in found.left.iter().filter(|left| left.kind == kind.name) {
                match (kind.remove)(left) {
                    Ok(()) => removal.removed.push(left.clone()),
                    Err(why) => {
                        removal.leftovers.push(left.clone());
                        removal.not_removed.push(why);
                    }
                }
            }
        }
        if removal.removed.len() == before {
            break;
        }
    }
    removal
}

/// Removes leftovers of earlier runs before a run begins. Returns a line for each.
pub fn clean_up() -> Vec<String> {
    let removal = remove(&[], None);
    let removed = removal.removed.iter().map(|left| {
        format!("cleaned up after process {}: {} {} ({})", left.owner.pid, left.kind, left.name, left.detail)
    });
    let failed = removal.not_removed.iter().map(|why| format!("left over from an earlier run: {why}"));
    removed.chain(failed).collect()
}
