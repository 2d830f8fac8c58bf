//! Keeps every output of every run in these tests: standard output with `--json`, and the run directory of `--out`.
//! `.ci/schemas` validates them against the program's schemas (`straingauge --generate schema`). `rig` calls this
//! module when a command has ended. `STRAINGAUGE_OUTPUTS`, which `.ci/suites.mk` sets, names the folder.

use crate::rig::Said;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Keeps one document of this test.
fn keep(schema: &str, what: &str, value: &Value) {
    let Some(folder) = std::env::var_os("STRAINGAUGE_OUTPUTS") else { return };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread");
    let line = serde_json::json!({ "schema": schema, "test": test, "what": what, "value": value });
    std::fs::create_dir_all(&folder).expect("a folder for outputs");
    let file = Path::new(&folder).join(format!("{}.jsonl", std::process::id()));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file for outputs");
    file.write_all(format!("{line}\n").as_bytes()).expect("room for outputs");
}

/// The schema of a JSON object on standard output, by the words of the command.
fn of_output(words: &[&str], value: &Value) -> &'static str {
    let has = |word: &str| words.contains(&word);
    match words[0] {
        _ if value["kind"] == "reading" || value["kind"] == "watch" => "watch-line",
        _ if value["kind"].is_string() => "output",
        "report" => "watch-report",
        "profile" if has("--diff") => "profile-changes",
        "profile" if value.get("method").is_some_and(|method| method == "exact") => "profile-exact",
        "profile" => "profile",
        "files" => "files",
        "doctor" if has("--leftovers") || has("--clean") => "leftovers",
        "doctor" => "doctor",
        other => panic!("no schema is that of {other} --json"),
    }
}

/// Keeps a command's output and run directory. `words` are its arguments.
#[track_caller]
pub fn keep_outputs(words: &[&str], said: &Said) {
    let (out, err) = (&said.out, &said.err);
    let words = words.split(|word| *word == "--").next().unwrap_or_default();
    let Some(command) = words.first() else { return };
    if words.contains(&"--json") && *command == "wan" {
        let is_report = |value: &Value| value.get("self_test").is_some();
        let lines = err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(is_report).for_each(|value| keep("wan", "what wan printed", &value));
    } else if words.contains(&"--json") && !words.contains(&"--worker") {
        // A killed command may leave its last object incomplete.
        let values = serde_json::Deserializer::from_str(out).into_iter::<Value>().map_while(Result::ok);
        for value in values {
            keep(of_output(words, &value), &format!("what {command} printed"), &value);
        }
    }
    // If a command was refused, the files in the folder are not its own.
    let is_refused = matches!(said.code, Some(1 | 2));
    let out = words.iter().skip_while(|word| **word != "--out" || is_refused).nth(1);
    if let Some(folder) = out {
        keep_run(Path::new(folder));
    }
}

/// Keeps the files of a run directory and of the second run next to it.
fn keep_run(run: &Path) {
    let keep_file = |schema: &str, file: &Path| {
        let Ok(text) = std::fs::read_to_string(file) else { return };
        // A test may have damaged the file on purpose.
        if let Ok(value) = serde_json::from_str(&text) {
            keep(schema, &file.display().to_string(), &value);
        }
    };
    keep_file("run", &run.join("run.json"));
    let lines = std::fs::read_to_string(run.join("watch.jsonl")).unwrap_or_default();
    for value in lines.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        keep("watch-line", "a line of watch.jsonl", &value);
    }
    for point in std::fs::read_dir(run.join("points")).into_iter().flatten().flatten() {
        keep_file("point", &point.path().join("point.json"));
        keep_file("stacks", &point.path().join("stacks.json"));
    }
    if run.join("with").is_dir() {
        keep_run(&run.join("with"));
    }
}
