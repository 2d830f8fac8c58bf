//! `straingauge predict` on run directories: answers from a recorded run of nginx, and one sentence for questions
//! that cannot be modelled.

use crate::recorded;
use crate::rig::{Said, run, straingauge};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn nginx() -> recorded::Unpacked {
    recorded::run("nginx")
}

/// A copy of the recorded run with changed points; those for which `change` returns false are left out.
fn changed(change: impl Fn(&mut Value) -> bool) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let nginx = nginx();
    std::fs::copy(nginx.path().join("run.json"), dir.path().join("run.json")).expect("our own folder");
    for entry in std::fs::read_dir(nginx.path().join("points")).expect("recorded points") {
        let entry = entry.expect("a point");
        let text = std::fs::read_to_string(entry.path().join("point.json")).expect("a point");
        let mut point: Value = serde_json::from_str(&text).expect("a point is JSON");
        if change(&mut point) {
            let folder = dir.path().join("points").join(entry.file_name());
            std::fs::create_dir_all(&folder).expect("our own folder");
            std::fs::write(folder.join("point.json"), point.to_string()).expect("our own folder");
        }
    }
    dir
}

fn predict(run_directory: &Path, options: &[&str]) -> Said {
    run(straingauge(["predict"]).arg(run_directory).args(options))
}

#[test]
fn what_ifs_about_a_recorded_run_are_answered_with_numbers_and_units() {
    let said = predict(&nginx().path(), &["--connections", "12", "--json"]).exits_with(0).json();
    let numbers = said["prediction"]["answer"]["numbers"].as_array().expect("numbers").clone();
    let throughput = numbers.iter().find(|number| number["name"] == "throughput").expect("a throughput");
    assert_eq!(throughput["unit"], "1/s");
    // Between the measured rates at 8 and 16 connections, within the noise of a busy machine.
    let rate = throughput["estimate"]["value"].as_f64().expect("a value");
    assert!((20e3..70e3).contains(&rate), "{rate}");
    assert!(said["prediction"]["checks"].as_array().expect("checks").len() > 3);
    let text = predict(&nginx().path(), &["--rate", "0.5x"]).exits_with(0).out;
    for word in ["predicted for", "capacity", "yield point", "assumes that", "models on points"] {
        assert!(text.contains(word), "'{word}' is missing:\n{text}");
    }
}

#[test]
fn runs_that_cannot_be_modelled_are_refused_in_one_sentence() {
    let connections = |point: &Value| point["connections"].as_u64().unwrap_or(0);
    let is_sweep = |point: &Value| point["sweep"] == "connections";
    let few = changed(|point| !is_sweep(point) || connections(point) <= 2);
    predict(few.path(), &[]).exits_with(1).complains_of(&["2 closed-loop loads are too few", "at least 3"]);
    let one = changed(|point| !is_sweep(point) || connections(point) == 4);
    predict(one.path(), &[]).exits_with(1).complains_of(&["all points are at one load", "4 connections"]);
    let none = changed(|_| false);
    predict(none.path(), &[]).exits_with(1).complains_of(&["no point"]);
    let unwatched = changed(|point| {
        let figures = point["figures"].as_object_mut().expect("figures by name");
        figures.retain(|name, _| !name.starts_with("server."));
        true
    });
    predict(unwatched.path(), &[]).exits_with(1).complains_of(&["did not watch the server's CPU", "run find"]);
    let negative = changed(|point| {
        if is_sweep(point) && connections(point) == 8 {
            point["figures"]["server.cpu_us_per_request"]["value"] = (-3.0).into();
        }
        true
    });
    predict(negative.path(), &[]).exits_with(1).complains_of(&["server.cpu_us_per_request = -3", "impossible"]);
    predict(Path::new("/nonexistent"), &[]).exits_with(1).complains_of(&["/nonexistent"]);
}

#[test]
fn questions_that_the_run_cannot_answer_are_refused_in_one_sentence() {
    for (options, words) in [
        (["--cold", "2k"], ["--cold needs runs", "find --cold"]),
        (["--scaled-select", "--json"], ["--scaled-select needs runs", "straingauge scale"]),
        (["--class-shares", "1=50%,2=50%"], ["--class-shares needs runs of one workload", "find --mix"]),
    ] {
        predict(&nginx().path(), &options).exits_with(1).complains_of(&words);
    }
    for wrong in [
        ["--connections", "0"],
        ["--rate", "-5"],
        ["--cores", "none"],
        ["--class-shares", "1=90%,2=20%"],
        ["--class-shares", "90%"],
        ["--cheaper", "tcp"],
        ["--cheaper", "tcp=120%"],
    ] {
        assert_eq!(predict(&nginx().path(), &wrong).code, Some(2), "{wrong:?}");
    }
}

fn scenario(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("scenario.toml");
    std::fs::write(&path, text).expect("our own folder");
    (dir, path)
}

#[test]
fn what_ifs_in_a_scenario_file_are_answered_next_to_the_measured_server() {
    let text = "url = 'http://127.0.0.1/'\n[[predict]]\nname = 'twice'\nconnections = 12\ncores = 2\n[[predict]]\nrate \
                = '0.5x'\n";
    let (_dir, path) = scenario(text);
    let path = path.to_str().expect("temporary paths are text");
    let said = predict(&nginx().path(), &["--scenario", path, "--json"]).exits_with(0).json();
    let kept = said["prediction"]["what_ifs"].as_array().expect("the kept questions").clone();
    assert_eq!(kept.len(), 2);
    assert_eq!((kept[0]["name"].as_str(), kept[1]["name"].as_str()), (Some("twice"), Some("")));
    assert!(kept[0]["answer"]["question"].as_str().expect("words").contains("12 connections, 2 CPUs"), "{kept:?}");
    let words = predict(&nginx().path(), &["--scenario", path]).exits_with(0).out;
    assert!(words.contains("predicted for as measured") && words.contains("'twice': predicted for"), "{words}");
    // The same question, kept with the run.
    let run_directory = changed(|_| true);
    let record = run_directory.path().join("run.json");
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&record).expect("run.json")).expect("JSON");
    json["scenario"]["what_ifs"] = serde_json::json!([{ "name": "later", "connections": 12 }]);
    std::fs::write(&record, json.to_string()).expect("our own folder");
    let words = predict(run_directory.path(), &[]).exits_with(0).out;
    assert!(words.contains("'later': predicted for 12 connections"), "{words}");
    let asked = predict(run_directory.path(), &["--connections", "3"]).exits_with(0).out;
    assert!(!asked.contains("later"), "a typed question is answered alone: {asked}");
}

#[test]
fn a_bad_what_if_is_refused_with_file_and_line_before_measuring() {
    for (text, line, word) in [
        ("[load]\nthreads = 1\n[predict]\nconections = 7\n", 4, "conections"),
        ("[[predict]]\nrate = '2x'\n[[predict]]\nrate = -5\n", 4, "a rate is a positive number"),
        ("[predict]\ncores = 0\n", 1, "cores must be at least 1"),
        ("[predict]\nconnections = 4\nrate = 10\n", 1, "two questions"),
        ("[[predict]]\ncores = 2\n[[predict]]\nclass-shares = '1=90%,2=20%'\n", 4, "100 %"),
        ("[load]\nthreads = 1\npredict = 7\n", 3, "predict"),
        ("predict = 7\n", 1, "[predict]"),
    ] {
        let (_dir, path) = scenario(text);
        let name = path.to_str().expect("temporary paths are text");
        let place = format!("{name}:{line}:");
        predict(&nginx().path(), &["--scenario", name]).exits_with(2).complains_of(&[&place, word]);
        run(&mut straingauge(["find", "http://127.0.0.1:9/", "--scenario", name]))
            .exits_with(2)
            .complains_of(&[&place, word]);
    }
    let (_dir, path) = scenario("[load]\nthreads = 1\n");
    predict(&nginx().path(), &["--scenario", path.to_str().expect("text")])
        .exits_with(2)
        .complains_of(&["no section [predict]"]);
}

#[test]
fn an_uncrossable_threshold_is_refused_and_both_runs_are_named() {
    let nginx = nginx();
    let compare = |more: &[&str]| run(straingauge(["compare"]).arg(nginx.path()).arg(nginx.path()).args(more));
    compare(&["--threshold", "5"]).exits_with(2).complains_of(&["--threshold", "500%"]);
    compare(&["--threshold", "1"]).exits_with(2).complains_of(&["--threshold 100%", "5% or 0.05"]);
    // The points of this run vary by more than 5 %, so even a comparison with itself cannot exclude such a regression.
    let said = compare(&["--threshold", "5%"]).exits_with(4).out;
    assert!(said.contains("Could not tell whether B is worse than A by more than 5 %"), "{said}");
    assert!(said.starts_with("A: ") && said.contains("\nB: ") && said.contains("/nginx"), "{said}");
}
