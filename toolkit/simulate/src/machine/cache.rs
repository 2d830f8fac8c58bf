//! Booted guests, kept in the user's cache directory, so that each is booted once on a machine.
//!
//! A guest is a directory whose name is a hash of all inputs of its boot. It appears under its name when it is
//! complete.

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of kept guests. Each needs about a hundred megabytes.
const MOST_KEPT: usize = 6;
const LOCK: &str = "lock";
const UNFINISHED: &str = "unfinished-";

/// The name of a guest: a hash of the inputs of its boot.
pub(super) fn name_of(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory, which other processes leave alone while this value lives.
pub(super) struct Cache {
    folder: PathBuf,
    _lock: File,
}

impl Cache {
    /// The user's directory. Waits for other processes that boot. `None` if there is no directory that only the user
    /// can write.
    pub fn open() -> Option<Cache> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        Cache::at(&caches.or_else(home)?.join("straingauge/guests"))
    }

    fn at(folder: &Path) -> Option<Cache> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        if !is_ours(folder) {
            return None;
        }
        let lock = File::options().write(true).create(true).truncate(false).open(folder.join(LOCK)).ok()?;
        flock(&lock, FlockOperation::LockExclusive).ok()?;
        Some(Cache { folder: folder.into(), _lock: lock })
    }

    /// The files of a guest, opened.
    pub fn get<const N: usize>(&self, name: &str, files: [&str; N]) -> Option<[File; N]> {
        let folder = self.folder.join(name);
        if !is_ours(&folder) {
            return None;
        }
        let opened = files.map(|file| File::open(folder.join(file)).ok());
        // The least recently used one is removed first.
        let _ = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        opened.iter().all(Option::is_some).then(|| opened.map(|file| file.expect("just looked at")))
    }

    /// Keeps a guest, and removes others beyond the maximum.
    pub fn put<const N: usize>(&self, name: &str, files: [(&str, &mut dyn io::Read); N]) -> io::Result<()> {
        let new = self.folder.join(format!("{UNFINISHED}{name}"));
        let _ = fs::remove_dir_all(&new);
        DirBuilder::new().mode(0o700).create(&new)?;
        for (file, bytes) in files {
            let mut file = File::create(new.join(file))?;
            io::copy(bytes, &mut file)?;
            file.sync_all()?;
        }
        let place = self.folder.join(name);
        let _ = fs::remove_dir_all(&place);
        fs::rename(&new, &place)?;
        self.remove_the_oldest();
        Ok(())
    }

    fn remove_the_oldest(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folder = |entry: fs::DirEntry| {
            let facts = entry.metadata().ok().filter(fs::Metadata::is_dir)?;
            // Files that a killed process left have no time of use.
            let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            Some((if is_unfinished { SystemTime::UNIX_EPOCH } else { facts.modified().ok()? }, entry.path()))
        };
        let mut kept: Vec<(SystemTime, PathBuf)> = entries.filter_map(folder).collect();
        kept.sort();
        let (most, oldest) = (kept.len().saturating_sub(MOST_KEPT), SystemTime::UNIX_EPOCH);
        for (number, (used, path)) in kept.into_iter().enumerate() {
            if number < most || used == oldest {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

/// Whether a directory belongs to this user, and no other user can write to it.
fn is_ours(folder: &Path) -> bool {
    let facts = fs::symlink_metadata(folder);
    facts.is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::geteuid().as_raw() && it.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn put(cache: &Cache, name: &str) {
        cache.put(name, [("state", &mut name.as_bytes()), ("symbols", &mut &b"s"[..])]).unwrap();
    }

    fn text(cache: &Cache, name: &str) -> Option<String> {
        let [mut state, _] = cache.get(name, ["state", "symbols"])?;
        let mut text = String::new();
        state.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn the_least_recently_used_guest_is_removed_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("new/guests")).unwrap();
        fs::create_dir(cache.folder.join("unfinished-of-a-killed-process")).unwrap();
        let age = |name: &str, seconds: u64| {
            let then = SystemTime::now() - std::time::Duration::from_secs(seconds);
            File::open(cache.folder.join(name)).unwrap().set_modified(then).unwrap();
        };
        for number in 0..MOST_KEPT as u64 {
            put(&cache, &number.to_string());
            age(&number.to_string(), 1000 - number);
        }
        assert_eq!(text(&cache, "0").as_deref(), Some("0"), "and it is used now");
        put(&cache, "new");
        assert_eq!((text(&cache, "0").is_some(), text(&cache, "1")), (true, None));
        assert_eq!(text(&cache, "new").as_deref(), Some("new"));
        assert!(!cache.folder.join("unfinished-of-a-killed-process").exists());
        fs::remove_file(cache.folder.join("new/symbols")).unwrap();
        assert_eq!(text(&cache, "new"), None, "a part is missing");
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("guests");
        drop(Cache::at(&place).unwrap());
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cache::at(&place).is_none());
        fs::remove_dir_all(&place).unwrap();
        std::os::unix::fs::symlink(folder.path(), &place).unwrap();
        assert!(Cache::at(&place).is_none(), "a link");
    }

    #[test]
    fn names_depend_on_the_boundaries_of_their_parts() {
        assert_ne!(name_of(&[b"ab", b"c"]), name_of(&[b"a", b"bc"]));
        assert_eq!(name_of(&[b"ab"]).len(), 64);
    }
}
