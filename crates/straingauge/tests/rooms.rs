//! The dependency rule between the rooms, and the licences of what is built in.

use crate::rig::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn cargo_metadata(arguments: &[&str]) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(arguments)
        .current_dir(repository())
        .output()
        .expect("cargo runs these tests, so it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Each room and the rooms that it uses, in whatever kind of dependency.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo_metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |package: &Value| package["name"].as_str().expect("a package has a name").to_string();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let uses = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        dependencies.map(name).filter(|used| members.contains(used)).collect()
    };
    let room = |name: &str| name.trim_start_matches("straingauge-").to_string();
    packages
        .iter()
        .map(|package| {
            let used: BTreeSet<String> = uses(package);
            (room(&name(package)), used.iter().map(|name| room(name)).collect())
        })
        .collect()
}

/// What a room may use: record uses no room, remote adds load and observe, report adds analyze, every other room uses record alone.
fn may_use(room: &str) -> &'static [&'static str] {
    match room {
        "record" => &[],
        "remote" => &["record", "load", "observe"],
        "report" => &["record", "analyze"],
        _ => &["record"],
    }
}

/// What breaks the rule; the binary and the fuzz targets may use all.
fn violations(rooms: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (room, uses) in rooms.iter().filter(|(room, _)| !matches!(room.as_str(), "straingauge" | "fuzz")) {
        for used in uses {
            if !may_use(room).contains(&used.as_str()) {
                found.push(format!("{room} uses {used}"));
            }
        }
    }
    found
}

#[test]
fn rooms_see_only_what_they_may_and_the_binary_sees_all() {
    let rooms = rooms();
    for room in ["record", "load", "wan", "observe", "analyze", "remote", "report", "straingauge"] {
        assert!(rooms.contains_key(room), "{room} is missing: {rooms:?}");
    }
    assert_eq!(violations(&rooms), Vec::<String>::new());
}

#[test]
fn a_forbidden_dependency_would_be_seen() {
    let mut rooms = rooms();
    rooms.get_mut("analyze").expect("analyze is a room").insert("load".into());
    rooms.get_mut("record").expect("record is a room").insert("observe".into());
    rooms.get_mut("analyze").expect("analyze is a room").insert("report".into());
    rooms.get_mut("remote").expect("remote is a room").insert("analyze".into());
    rooms.get_mut("report").expect("report is a room").insert("observe".into());
    let found = [
        "analyze uses load",
        "analyze uses report",
        "record uses observe",
        "remote uses analyze",
        "report uses observe",
    ];
    assert_eq!(violations(&rooms), found);
}

/// Whether the documentation of these files has an example that rustdoc would run.
fn has_examples(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder of sources").flatten().map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return has_examples(&path);
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let marks = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("//!").or(line.strip_prefix("///"))?.trim_start().strip_prefix("```")
        });
        // Every second one is an end.
        marks.step_by(2).any(|language| language.is_empty() || language.starts_with("rust") || language == "no_run")
    })
}

#[test]
fn rustdoc_looks_for_examples_where_there_are_any() {
    let metadata = cargo_metadata(&["--no-deps"]);
    for package in metadata["packages"].as_array().expect("packages") {
        let mut targets = package["targets"].as_array().expect("targets").iter();
        let Some(library) = targets.find(|target| target["kind"][0] == "lib") else { continue };
        let root = Path::new(library["src_path"].as_str().expect("a path")).parent().expect("it lies in a folder");
        assert_eq!(
            library["doctest"].as_bool(),
            Some(has_examples(root)),
            "{}: `doctest` in its Cargo.toml says whether there are examples",
            package["name"]
        );
    }
}

#[test]
fn everything_built_in_has_a_permissive_licence() {
    // Licences that ask for attribution and nothing of the code that links them.
    let accepted = [
        "Apache-2.0",
        "MIT",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
        "0BSD",
        "CC0-1.0",
        "MIT-0",
        "BSL-1.0",
    ];
    // What other systems would need was never downloaded.
    let version = Command::new("rustc").arg("-vV").output().expect("rustc is beside cargo");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let metadata = cargo_metadata(&["--filter-platform", host]);
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 20, "the dependencies are listed");
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("");
        let words = licence.split(['(', ')', '/']).flat_map(|part| part.split(" OR "));
        let is_accepted = words.map(str::trim).filter(|part| !part.is_empty()).any(|choice| {
            // `A AND B` binds to both; `A WITH exception` grants more than A.
            choice.split(" AND ").all(|one| accepted.contains(&one.split(" WITH ").next().unwrap_or("").trim()))
        });
        assert!(is_accepted, "{} {}: licence '{licence}'", package["name"], package["version"]);
    }
}
