//! The dependency rules between the crates, and the licences of linked code.

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

/// The packages of a folder of the repository.
fn packages(folder: &str) -> Vec<Value> {
    let mut metadata = cargo_metadata(&["--no-deps"]);
    let Value::Array(mut packages) = metadata["packages"].take() else { panic!("no packages") };
    packages.retain(|package| place(package).starts_with(folder));
    packages
}

/// A package's folder in the repository.
fn place(package: &Value) -> &Path {
    let manifest = Path::new(package["manifest_path"].as_str().expect("a package has a manifest"));
    manifest.parent().and_then(|folder| folder.strip_prefix(repository()).ok()).expect("it lies in the repository")
}

fn name(package: &Value) -> String {
    package["name"].as_str().expect("a package has a name").trim_start_matches("straingauge-").to_string()
}

/// Each crate with those of these names that it uses, by any kind of dependency.
fn uses(names: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let used = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        dependencies.map(name).filter(|used| names.contains(used)).collect()
    };
    packages("crates").iter().map(|package| (name(package), used(package))).collect()
}

/// The crates that a crate and its tests may use: record uses none, remote adds load and observe, those that make
/// findings add the ones before them, all others use only record. The tests of analyze are those of verdict and
/// statistics, too.
fn may_use(room: &str) -> &'static [&'static str] {
    match room {
        "record" => &[],
        "remote" => &["record", "load", "observe"],
        "analyze" => &["record", "statistics"],
        "verdict" => &["record", "statistics", "analyze"],
        "report" => &["record", "statistics", "analyze", "verdict"],
        _ => &["record"],
    }
}

#[test]
fn crates_depend_only_on_permitted_crates() {
    let rooms: Vec<String> = packages("crates").iter().map(name).collect();
    for room in
        ["record", "load", "wan", "observe", "statistics", "analyze", "verdict", "remote", "report", "straingauge"]
    {
        assert!(rooms.iter().any(|name| name == room), "{room} is missing: {rooms:?}");
    }
    for (room, used) in uses(&rooms).iter().filter(|(room, _)| *room != "straingauge") {
        // The tests of a crate may be a package of their own, which uses that crate.
        let of = room.strip_suffix("-tests").unwrap_or(room);
        let is_tested = |used: &str| room != of && (used == of || (of, used) == ("analyze", "verdict"));
        let may = |used: &str| may_use(of).contains(&used) || is_tested(used);
        let forbidden: Vec<_> = used.iter().filter(|used| !may(used)).collect();
        assert!(forbidden.is_empty(), "{room} uses {forbidden:?}");
    }
}

#[test]
fn the_product_contains_no_tool() {
    let tools = packages("toolkit");
    assert!(tools.len() > 1, "{tools:?}");
    for (room, used) in uses(&tools.iter().map(name).collect::<Vec<_>>()) {
        assert!(used.is_empty(), "{room} uses {used:?}");
    }
    // Code that can panic contains the path of its source.
    let program = std::fs::read(env!("CARGO_BIN_EXE_straingauge")).expect("the program");
    let program = String::from_utf8_lossy(&program);
    assert!(program.contains("crates/straingauge/src/"), "the program has no paths of sources");
    let sources: Vec<String> = tools.iter().map(|tool| format!("{}/src/", place(tool).display())).collect();
    for (at, _) in program.match_indices("toolkit/") {
        let found = sources.iter().find(|sources| program[at..].starts_with(*sources));
        assert!(found.is_none(), "{found:?} is in the program");
    }
}

/// Whether the documentation of these files has examples that rustdoc would run.
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
        // Every second mark ends a block.
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
fn all_linked_code_has_a_permissive_licence() {
    // Licences that ask only for attribution.
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
    // Dependencies of other systems were never downloaded.
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
            // `A AND B` requires both; `A WITH exception` grants more than A.
            choice.split(" AND ").all(|one| accepted.contains(&one.split(" WITH ").next().unwrap_or("").trim()))
        });
        assert!(is_accepted, "{} {}: licence '{licence}'", package["name"], package["version"]);
    }
}
