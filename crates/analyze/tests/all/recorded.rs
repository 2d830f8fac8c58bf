//! Runs that were recorded. Each is one file: its first line is run.json, every other line a point.json.

use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    repository.expect("a test of this repository").join("crates/analyze/tests/recorded")
}

/// The names of all recorded runs.
pub fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("recorded runs").map(|file| file.expect("a file").path());
    let runs = files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    runs.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

/// A recorded run as a run directory, below a folder that goes with the value.
pub struct Unpacked(tempfile::TempDir, String);

impl Unpacked {
    pub fn path(&self) -> PathBuf {
        self.0.path().join(&self.1)
    }
}

pub fn run(name: &str) -> Unpacked {
    let text = std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).expect("a recorded run");
    let unpacked = Unpacked(tempfile::tempdir().expect("a temporary folder"), name.into());
    let write = |file: PathBuf, text: &str| {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
        std::fs::write(file, text).expect("our own folder");
    };
    let (record, points) = text.split_once('\n').expect("a run and its points");
    write(unpacked.path().join("run.json"), record);
    for (index, point) in points.lines().enumerate() {
        write(unpacked.path().join(format!("points/{index:03}/point.json")), point);
    }
    unpacked
}
