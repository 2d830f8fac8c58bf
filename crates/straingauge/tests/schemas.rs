//! Every output of every run in these tests is held against the published schemas (`docs/schemas`): standard output with
//! `--json`, and the run directory of `--out`. `rig` calls it when a command has ended.

use crate::rig::{Said, repository};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

thread_local! {
    /// Each is made once: it takes longer than what it checks.
    static VALIDATORS: RefCell<HashMap<String, Rc<Validator>>> = RefCell::default();
}

fn validator(name: &str) -> Rc<Validator> {
    VALIDATORS.with_borrow_mut(|made| made.entry(name.to_string()).or_insert_with(|| Rc::new(read(name))).clone())
}

fn read(name: &str) -> Validator {
    let file = repository().join(format!("docs/schemas/{name}.schema.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    jsonschema::validator_for(&schema).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// Where a value breaks a schema; empty: nowhere.
fn faults(name: &str, value: &Value) -> String {
    let validator = validator(name);
    validator.iter_errors(value).take(5).map(|fault| told(&fault)).collect()
}

/// Of alternatives, the one whose faults lie deepest was meant: the others fail at their `kind`.
fn told(fault: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::OneOfNotValid { context } | ValidationErrorKind::AnyOf { context } = fault.kind() {
        let depth = |faults: &&Vec<ValidationError<'_>>| {
            faults.iter().map(|fault| fault.instance_path().as_str().len()).max().unwrap_or_default()
        };
        if let Some(meant) = context.iter().max_by_key(depth).filter(|faults| depth(faults) > 0) {
            return meant.iter().take(5).map(told).collect();
        }
    }
    format!("\n  at '{}': {fault}", fault.instance_path())
}

#[track_caller]
fn check(name: &str, what: &str, value: &Value) {
    let faults = faults(name, value);
    assert!(faults.is_empty(), "{what} does not fit docs/schemas/{name}.schema.json:{faults}");
}

/// The schema of an object on standard output, by the words of the command.
fn of_output(words: &[&str], value: &Value) -> &'static str {
    let has = |word: &str| words.contains(&word);
    match words[0] {
        _ if value["kind"] == "reading" || value["kind"] == "watch" => "watch-line",
        _ if value["kind"].is_string() => "output",
        "simulate" => "simulation",
        "report" => "watch-report",
        "profile" if has("--diff") => "profile-changes",
        "profile" if has("--kernel-scaling") => "profile-scaling",
        "profile" if value.get("method").is_some_and(|method| method == "exact") => "profile-exact",
        "profile" => "profile",
        "files" => "files",
        "doctor" if has("--leftovers") || has("--clean") => "leftovers",
        "doctor" => "doctor",
        other => panic!("no schema in docs/schemas is that of {other} --json"),
    }
}

/// Holds what a command has printed and kept against the schemas. `words` are its arguments.
#[track_caller]
pub fn check_outputs(words: &[&str], said: &Said) {
    let (out, err) = (&said.out, &said.err);
    let words = words.split(|word| *word == "--").next().unwrap_or_default();
    let Some(command) = words.first() else { return };
    if words.contains(&"--json") && *command == "wan" {
        let is_report = |value: &Value| value.get("self_test").is_some();
        let lines = err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(is_report).for_each(|value| check("wan", "what wan printed", &value));
    } else if words.contains(&"--json") && !words.contains(&"--worker") {
        // A killed command may leave its last object unfinished.
        let values = serde_json::Deserializer::from_str(out).into_iter::<Value>().map_while(Result::ok);
        for value in values {
            check(of_output(words, &value), &format!("what {command} printed"), &value);
        }
    }
    // Where a command was refused, what lies in the folder is not its own.
    let is_refused = matches!(said.code, Some(1 | 2));
    let out = words.iter().skip_while(|word| **word != "--out" || is_refused).nth(1);
    if let Some(folder) = out {
        check_run(Path::new(folder));
    }
}

/// Holds the files of a run directory against the schemas, and those of the run beside it.
#[track_caller]
pub fn check_run(run: &Path) {
    let check_file = |name: &str, file: &Path| {
        let Ok(text) = std::fs::read_to_string(file) else { return };
        // A test may have damaged it on purpose.
        if let Ok(value) = serde_json::from_str(&text) {
            check(name, &file.display().to_string(), &value);
        }
    };
    check_file("run", &run.join("run.json"));
    check_file("simulation", &run.join("simulation.json"));
    let lines = std::fs::read_to_string(run.join("watch.jsonl")).unwrap_or_default();
    for value in lines.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        check("watch-line", "a line of watch.jsonl", &value);
    }
    for point in std::fs::read_dir(run.join("points")).into_iter().flatten().flatten() {
        check_file("point", &point.path().join("point.json"));
        check_file("stacks", &point.path().join("stacks.json"));
    }
    if run.join("with").is_dir() {
        check_run(&run.join("with"));
    }
}

#[test]
fn what_does_not_fit_a_schema_is_found_and_what_a_later_version_adds_is_not() {
    let figure = |value: Value| serde_json::json!({ "value": value, "unit": "us", "n": 3, "origin": "timed" });
    let point = std::fs::read_to_string(repository().join("crates/record/fuzz/valid/point.json")).expect("a point");
    // As this version writes it: the file is older than some counts.
    let point: record::Point = serde_json::from_str(&point).expect("a point");
    let mut point = serde_json::to_value(point).expect("only string keys");
    point["figures"]["later.figure_us"] = figure(2.5.into());
    point["later"] = "unknown".into();
    assert_eq!(faults("point", &point), "");
    point["figures"]["later.figure_us"] = figure("2.5".into());
    assert!(faults("point", &point).contains("later.figure_us/value"), "{}", faults("point", &point));
    point["figures"]["later.figure_us"] = figure(2.5.into());
    point.as_object_mut().expect("an object").remove("outcomes");
    assert!(faults("point", &point).contains("outcomes"), "{}", faults("point", &point));
}
