//! Leftovers: everything that a killed run may leave behind. Each crate declares its kinds, and this module collects
//! them. `doctor --leftovers` lists them and `doctor --clean` removes them, as does each command that starts a server
//! before it begins.

use crate::server::guardian;
use record::leftovers::{FoundLeftovers, Leftover, LeftoverKind, SearchScope};
use record::owner::Owner;
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

#[derive(Debug, Default)]
pub struct Removal {
    pub removed: Vec<Leftover>,
    /// Leftovers that could not be removed, and why.
    pub failed: Vec<(Leftover, String)>,
    /// Places that could not be checked.
    pub not_seen: Vec<String>,
}

/// Removes leftovers until no removable one is found: all, or those of one owner. `folders` are folders of runs.
pub fn remove(folders: &[PathBuf], of: Option<Owner>) -> Removal {
    let mut removal = Removal::default();
    for _ in 0..ROUNDS {
        let mut found = find(&SearchScope::new(folders.to_vec()));
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

/// Removes leftovers of earlier runs before a run begins. Returns a line for each.
pub fn clean_up() -> Vec<String> {
    let removal = remove(&[], None);
    let removed = removal.removed.iter().map(|left| {
        format!("cleaned up after process {}: {} {} ({})", left.owner.pid, left.kind, left.name, left.detail)
    });
    let failed = removal.failed.iter().map(|(_, why)| format!("left over from an earlier run: {why}"));
    removed.chain(failed).collect()
}

/// Removes the leftovers of one process, for its guardian. The next run tries again if that fails.
pub fn clean_up_after(owner: Owner) {
    remove(&[], Some(owner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_leftover_has_a_unique_name_and_a_naming_rule() {
        let names: std::collections::BTreeSet<&str> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().count());
        assert!(kinds().all(|kind| !kind.named.is_empty()));
    }
}
