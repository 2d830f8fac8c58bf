//! Locations of the tests' inputs.

use std::path::{Path, PathBuf};

/// A file of tests/data.
pub fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A public data set that is too large for the repository, in the directory that `STRAINGAUGE_DATA` names or in a
/// directory `data` next to the checkout. When it is absent, prints why the caller does not run.
pub fn public(name: &str) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = match std::env::var_os("STRAINGAUGE_DATA") {
        Some(directory) => vec![directory.into()],
        None => std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
            .map(|neighbours| neighbours.flatten().map(|entry| entry.path().join("data")).collect())
            .unwrap_or_default(),
    };
    let found = directories.into_iter().map(|directory| directory.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("not run: {name} is not there; put it into a directory and name that in STRAINGAUGE_DATA");
    }
    found
}

/// Whether Python is installed for the independent counts. When it is not, prints why the caller does not run.
pub fn has_python() -> bool {
    let found =
        std::process::Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("not run: the independent count needs python3");
    }
    found
}
