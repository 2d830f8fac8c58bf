//! The state file of a pair, from which a later run can clean up after a killed one. One small file per pair in
//! /run/straingauge, a folder that only root may enter.

use crate::error::{DuringStep, WanError};
use record::owner::{Life, Owner};
use record::{fault, unfinished};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// /run is emptied at boot, when namespaces and processes are gone.
pub(crate) const FOLDER: &str = "/run/straingauge";
const MAX_FILE_BYTES: u64 = 16 << 10;
const MAX_FILES: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairState {
    pub owner: Owner,
    pub token: String,
    /// Number of the server's namespace.
    pub server_namespace: u64,
    /// A pair of this process, with nothing in it yet.
    pub client_namespace: Option<u64>,
}

impl PairState {
    /// Part of the names of its links and of its control group.
    pub(crate) fn of_this_process(token: &str) -> Self {
        PairState { owner: Owner::of_this_process(), token: token.into(), server_namespace: 0, client_namespace: None }
    }

    pub(crate) fn is_left_over(&self) -> bool {
        self.owner.life() == Life::Ended
    }
}

#[derive(Debug, Clone)]
pub(crate) struct StateFolder {
    path: PathBuf,
}

impl StateFolder {
    /// Opens the folder, creating it if necessary. Refuses one that others may access.
    pub(crate) fn open(path: &Path) -> Result<Self, WanError> {
        match fault::step().and_then(|()| DirBuilder::new().mode(0o700).create(path)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).during(format!("make the folder {}", path.display())),
        }
        Self::existing(path)
    }

    /// Opens the folder if it is there.
    pub(crate) fn existing(path: &Path) -> Result<Self, WanError> {
        let facts = fs::symlink_metadata(path).during(format!("read {}", path.display()))?;
        let unsafe_because = |why| WanError::UnsafeState { path: path.into(), why };
        if !facts.file_type().is_dir() {
            return Err(unsafe_because("is not a folder"));
        }
        if facts.uid() != rustix::process::geteuid().as_raw() {
            return Err(unsafe_because("belongs to another user"));
        }
        if facts.mode() & 0o077 != 0 {
            return Err(unsafe_because("is open to other users"));
        }
        Ok(StateFolder { path: path.into() })
    }

    pub(crate) fn write(&self, state: &PairState) -> Result<PathBuf, WanError> {
        let path = self.path.join(format!("{}.json", state.token));
        let text = serde_json::to_vec(state).expect("a state has only string keys");
        // Readers skip a file that does not parse, so it must appear complete.
        let partial = self.path.join(unfinished::name_of(&state.token));
        let write = || {
            fault::step()?;
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&partial)?;
            fault::step()?;
            file.write_all(&text)?;
            fault::step()?;
            fs::rename(&partial, &path)
        };
        let written = write();
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written.during(format!("write {}", path.display()))?;
        Ok(path)
    }

    pub(crate) fn all(&self) -> Vec<(PathBuf, PairState)> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries
            .flatten()
            .take(MAX_FILES)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .filter_map(|path| Some((path.clone(), read(&path)?)))
            .collect()
    }
}

pub(crate) fn read(path: &Path) -> Option<PairState> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    let state: PairState = serde_json::from_slice(&bytes).ok()?;
    is_token(&state.token).then_some(state)
}

/// Tokens become parts of file and link names: only ten hexadecimal digits are accepted.
pub(crate) fn is_token(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A token that no other pair has.
pub(crate) fn new_token() -> Result<String, WanError> {
    let mut bytes = [0u8; 5];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).during("read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(token: &str) -> PairState {
        PairState { server_namespace: 1, client_namespace: Some(2), ..PairState::of_this_process(token) }
    }

    #[test]
    fn a_state_survives_the_disk_and_damaged_files_are_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(&base.path().join("s")).unwrap();
        let path = folder.write(&state("00ff00ff00")).unwrap();
        fs::write(base.path().join("s/damaged.json"), "{").unwrap();
        fs::write(base.path().join("s/evil.json"), serde_json::to_vec(&state("../../etc/")).unwrap()).unwrap();
        assert_eq!(folder.all(), [(path, state("00ff00ff00"))]);
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("s");
        DirBuilder::new().mode(0o755).create(&path).unwrap();
        let message = StateFolder::open(&path).unwrap_err().to_string();
        assert!(message.contains("is open to other users"), "{message}");
        let link = base.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(StateFolder::open(&link).unwrap_err().to_string().contains("is not a folder"));
    }

    #[test]
    fn an_owner_lives_only_with_its_own_start_time() {
        let mut of_me = state("0123456789");
        assert!(!of_me.is_left_over());
        of_me.owner.start_ticks += 1;
        assert!(of_me.is_left_over(), "the same number given to a later process");
        of_me.owner.place = !of_me.owner.place;
        assert!(!of_me.is_left_over(), "of a container whose processes have other numbers here");
    }
}
