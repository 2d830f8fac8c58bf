//! The census: everything that a killed run may leave behind. Each room declares its kinds; this gathers them.
//! `doctor --leftovers` prints what is left, `doctor --clean` removes it, and so does each command that starts a
//! server, before it begins.

use crate::server::guardian;
use record::leftovers::{Found, Leftover, LeftoverKind, Scene};
use record::owner::Owner;
use std::path::PathBuf;

/// Searching and removing is repeated this often: ending one thing may leave another without its owner.
const ROUNDS: usize = 5;

/// Every kind, in the order of removal: a guardian or a server may still be making what follows.
pub fn kinds() -> impl Iterator<Item = LeftoverKind> {
    guardian::LEFTOVERS.into_iter().chain(wan::LEFTOVERS).chain([record::unfinished::KIND])
}

/// Finds leftovers of runs whose process has ended.
pub fn find(scene: &Scene) -> Found {
    let mut found = Found::default();
    kinds().for_each(|kind| found.add((kind.find)(scene)));
    found
}

/// Result of removing leftovers.
#[derive(Debug, Default)]
pub struct Removal {
    /// Removed.
    pub removed: Vec<Leftover>,
    /// Leftovers that could not be removed, and why.
    pub failed: Vec<(Leftover, String)>,
    /// Places that could not be checked.
    pub not_seen: Vec<String>,
}

/// Removes what is left, until nothing is found that can be removed: all of it, or that of one owner. `folders` are
/// folders of runs.
pub fn remove(folders: &[PathBuf], of: Option<Owner>) -> Removal {
    let mut removal = Removal::default();
    for _ in 0..ROUNDS {
        let mut found = find(&Scene::new(folders.to_vec()));
        found.left.retain(|left| of.is_none_or(|owner| left.owner == owner));
        removal.not_seen = found.not_seen;
        removal.failed.clear();
        let before = removal.removed.len();
        for kind in kinds() {
            for left in found.left.iter().filter(|left| left.kind == kind.name) {
                match (kind.remove)(left) {
                    Ok(()) => removal.removed.push(left.clone()),
                    Err(why) => removal.failed.push((left.clone(), why)),
                }
            }
        }
        if removal.removed.len() == before {
            break;
        }
    }
    removal
}

/// Removes what earlier runs left, before a run begins. Returns a line for each thing.
pub fn clean_up() -> Vec<String> {
    let removal = remove(&[], None);
    let removed = removal.removed.iter().map(|left| {
        format!("cleaned up after process {}: {} {} ({})", left.owner.pid, left.kind, left.name, left.detail)
    });
    let failed = removal.failed.iter().map(|(_, why)| format!("left over from an earlier run: {why}"));
    removed.chain(failed).collect()
}

/// Removes what is left of one process, for its guardian. What cannot be removed is left to the next run.
pub fn clean_up_after(owner: Owner) {
    remove(&[], Some(owner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_says_how_its_things_are_named() {
        let names: std::collections::BTreeSet<&str> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().count());
        assert!(kinds().all(|kind| !kind.named.is_empty()));
    }
}
