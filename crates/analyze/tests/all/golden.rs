//! Golden files: what people and programs see of the fixture run. `UPDATE_EXPECT=1 cargo test` blesses a change.

use crate::fixture;
use analyze::{json, report, text, verdict, zones};
use expect_test::expect_file;
use record::{RunDir, Sweep};

/// The text without the temporary folder's name.
fn placeless(text: &str, run: &RunDir) -> String {
    text.replace(&run.path.parent().unwrap().display().to_string(), "runs")
}

#[test]
fn the_summary_of_a_run_reads_like_this() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    let summary = text::run(&run, &findings, &verdict);
    let summary = placeless(&summary, &run);
    for line in summary.lines().filter(|line| !line.starts_with("repeat")) {
        assert!(line.chars().count() <= text::WIDTH, "{line}");
    }
    expect_file!["../goldens/run.txt"].assert_eq(&summary);
}

#[test]
fn the_table_of_a_point_reads_like_this() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let closed = run.points.iter().find(|point| !point.doubts.is_empty()).unwrap();
    let open = run.points.iter().rfind(|point| point.sweep == Sweep::Rate).unwrap();
    let mut tables = String::new();
    for point in [closed, open] {
        tables.push_str(&text::point(point, &run.latencies(point.index).unwrap()));
        tables.push_str("\n----\n\n");
        tables.push_str(&format!("{}\n\n----\n\n", text::progress_line(point, 12_300_000_000, 90_000_000_000)));
    }
    assert!(tables.lines().all(|line| line.chars().count() <= 100));
    expect_file!["../goldens/point.txt"].assert_eq(&tables);
}

#[test]
fn the_findings_as_json_look_like_this() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points()[..11]);
    let findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    let mut value = json::run(&run, &findings, &verdict);
    assert_eq!(value["points"].as_array().unwrap().len(), 11);
    value["points"] = "left out here".into();
    value["record"] = "left out here".into();
    expect_file!["../goldens/findings.json"]
        .assert_eq(&placeless(&serde_json::to_string_pretty(&value).unwrap(), &run));
}

#[test]
fn the_report_of_a_run_is_this_page() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    // One element a line, so that a change can be read.
    let page = placeless(&report::html(&run), &run).replace("><", ">\n<");
    expect_file!["../goldens/report.html"].assert_eq(&page);
}
