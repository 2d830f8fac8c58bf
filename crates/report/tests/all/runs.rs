//! The index of a folder of runs as text, JSON and page.

use crate::fixture;
use analyze::index::{self, Filter, Index};
use expect_test::expect_file;
use record::{RunRecord, Status, names};
use report::runs::{json, page, text};
use std::path::Path;

const HOSTILE: &str = "</script><script>alert(1)</script>\u{1b}[31m'\"{{ 123457*3 }}";
const HOUR_MS: u64 = 3_600_000;

/// A run that began so many hours after the first, `speed` times as fast.
fn write(parent: &Path, hours: u64, speed: f64, change: impl FnOnce(&mut RunRecord)) -> record::RunDir {
    let mut record = fixture::record();
    record.started_unix_ms += hours * HOUR_MS;
    record.server_facts.insert("program".into(), "nginx".into());
    change(&mut record);
    let mut points = fixture::points();
    // The first repeats of the closed loop are enough here.
    points.truncate(33);
    for point in &mut points {
        for (name, factor) in [(names::THROUGHPUT, speed), (names::SERVER_CPU, 1.0 / speed)] {
            if let Some(figure) = point.figures.get(name).cloned() {
                let value = figure.value.map(|value| value * factor);
                point.figures.set(name, record::Figure { value, ..figure });
            }
        }
    }
    fixture::write(parent, record, &points)
}

/// Three runs of a scenario, the second worse; another scenario; one that was interrupted at once; two that cannot be read.
pub fn folder(place: &Path) -> Index {
    let first = write(place, 0, 1.0, |_| ());
    std::fs::write(first.path.join("report.html"), report::page::html(&first)).unwrap();
    write(place, 26, 0.6, |_| ());
    write(place, 49, 0.6, |record| {
        record.server_facts.insert("version".into(), "nginx/1.26.0".into());
        record.scenario.name = "other name".into();
    });
    write(place, 50, 1.0, |record| {
        fixture::loaded(record).load.targets[0].path = "/a-path-that-is-long-enough-to-be-cut".into()
    });
    let empty = RunRecord {
        status: Status::Interrupted,
        started_unix_ms: fixture::record().started_unix_ms + 1,
        ..fixture::record()
    };
    fixture::write(place, empty, &[]);
    for (name, text) in [("broken", "{ half"), ("new\u{1b}[31mer", "{}")] {
        std::fs::create_dir(place.join(name)).unwrap();
        std::fs::write(place.join(name).join("run.json"), text).unwrap();
    }
    index::of(place, &record::runs::find(place).unwrap(), &Filter::default())
}

#[test]
fn the_index_is_a_table_of_80_columns_that_names_what_is_worse_and_what_was_not_read() {
    let place = tempfile::tempdir().unwrap();
    let index = folder(place.path());
    let said = text(&index).replace(&place.path().display().to_string(), "runs");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    expect_file!["../goldens/runs.txt"].assert_eq(&said);
    let json = json(&index);
    assert_eq!((&json["kind"], json["runs"].as_array().map(Vec::len)), (&serde_json::json!("runs"), Some(5)));
    assert_eq!(json["unreadable"].as_array().map(Vec::len), Some(2));
    assert_eq!(text(&Index { folder: "runs".into(), ..Index::default() }), "No run in runs.\n");
}

#[test]
fn the_page_links_reports_draws_trends_and_runs_nothing_from_outside() {
    let place = tempfile::tempdir().unwrap();
    let mut index = folder(place.path());
    let html = page::html(&index, place.path());
    assert_eq!(html.matches("/report.html\"").count(), 1, "one run has a report");
    assert!(html.contains("aria-label=\"report of the run of 2025-11-21 20:36\""), "{html}");
    // Four figures of the one scenario with several runs, in two sizes each.
    assert_eq!(html.matches("<svg").count(), 8);
    assert!(html.contains("id=\"scenario-2\"") && html.contains("straingauge compare "));
    assert!(!html.contains("NaN") && !html.contains("none\""));
    let scripts = html.matches("<script").count();
    for row in &mut index.runs {
        (row.name, row.url, row.request) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
        row.server = Some(HOSTILE.into());
        row.versions = vec![("server", HOSTILE.into())];
        row.path = place.path().join(HOSTILE);
        row.before.iter_mut().for_each(|before| before.doubts = vec![HOSTILE.into()]);
    }
    index.unreadable[0].why = HOSTILE.into();
    let html = page::html(&index, place.path());
    assert_eq!(html.matches("<script").count(), scripts);
    assert!(!html.contains("370371") && html.contains("&lt;script&gt;"), "{html}");
    assert!(html.contains("default-src 'none'") && !html.contains("unsafe-inline"));
    for external in ["http-equiv=\"refresh", "src=", "<link", "@import", "url(", "javascript:", "<iframe"] {
        assert!(!html.contains(external), "{external}");
    }
}
