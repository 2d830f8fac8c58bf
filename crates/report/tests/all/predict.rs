//! A prediction as text and JSON.

use crate::fixture;
use analyze::predict::{self, Prediction};
use record::{RunDir, RunRecord, Status, WhatIf};
use report::text;
use std::path::PathBuf;

fn run() -> RunDir {
    let mut record: RunRecord = fixture::record();
    record.status = Status::Complete;
    fixture::loaded(&mut record).server.as_mut().unwrap().cpus = vec![1];
    RunDir { path: PathBuf::from("runs/test"), record, points: fixture::points(), reading_doubts: vec![] }
}

fn prediction() -> Prediction {
    let question = WhatIf { connections: Some(128), delay_ns: Some(5_000_000), cpus: Some(2), ..WhatIf::default() };
    predict::of_runs(&[run()], &question).unwrap()
}

#[test]
fn a_prediction_matches_the_golden_file() {
    let prediction = prediction();
    let words = report::predict::text(&prediction);
    assert!(words.lines().all(|line| line.chars().count() <= text::width()), "{words}");
    expect_test::expect_file!["../goldens/prediction.txt"].assert_eq(&words);
    let json = report::predict::json(&prediction);
    assert_eq!(json["kind"], "prediction");
    assert!(json["prediction"]["answer"]["numbers"].as_array().unwrap().len() >= 5);
}

#[test]
fn answers_to_kept_questions_match_the_golden_file() {
    let mut run = run();
    crate::fixture::found(&mut run.record).what_ifs = vec![
        WhatIf { name: "many <b>".into(), connections: Some(2000), ..WhatIf::default() },
        WhatIf { cold: Some(500), ..WhatIf::default() },
        WhatIf { rate_times: Some(0.5), cpus: Some(2), ..WhatIf::default() },
    ];
    let words = report::predict::what_ifs_text(&predict::kept(&run));
    for part in ["'many <b>': predicted for 2,000 connections", "what-if 2: not predicted: --cold", "2 CPUs"] {
        assert!(words.contains(part), "'{part}' is missing:\n{words}");
    }
}

#[test]
fn a_flat_idle_line_gives_no_prediction() {
    let mut found = prediction();
    let lines = found.measured.iter_mut().flat_map(|measured| &mut measured.regressions);
    for regression in lines.filter(|regression| regression.part == "idle") {
        regression.line.x_intercept.as_mut().expect("it is not flat").value = -4000.0;
        regression.line.slope.high = Some(regression.line.slope.high.expect("three loads and more").abs());
    }
    let words = report::predict::text(&found);
    assert!(words.contains("no capacity is extrapolated") && !words.contains("none left at -"), "{words}");
}
