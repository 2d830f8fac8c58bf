//! Recorded runs, each in one file: the first line is run.json, the second names the figures of its points with units
//! and origins, and each other line is a point.json. Figures of points are values and sample counts in that order, or
//! the reason why they were not measured.

use serde_json::{Map, Value, json};
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

/// A recorded run as a run directory in a folder that is removed with it.
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
    let mut lines = text.lines();
    let mut line = || lines.next().expect("a run, its figures and its points");
    write(unpacked.path().join("run.json"), line());
    let named: Map<String, Value> = serde_json::from_str(line()).expect("figures");
    for (index, line) in lines.enumerate() {
        let mut point: Value = serde_json::from_str(line).expect("a point");
        let cells = point["figures"].take();
        let mut figures = Map::new();
        for ((name, of_all), cell) in named.iter().zip(cells.as_array().expect("figures")) {
            let (unit, origin) = (&of_all[0], &of_all[1]);
            let figure = match cell {
                Value::Null => continue,
                Value::String(why) => json!({ "unit": unit, "not_measured": why }),
                cell => json!({ "value": cell[0], "unit": unit, "n": cell[1], "origin": origin }),
            };
            figures.insert(name.clone(), figure);
        }
        for (member, value) in [("figures", figures.into()), ("schema", json!(1)), ("index", json!(index))] {
            point[member] = value;
        }
        write(unpacked.path().join(format!("points/{index:03}/point.json")), &point.to_string());
    }
    unpacked
}
