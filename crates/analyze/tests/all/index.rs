//! The index of a folder of runs.

use crate::fixture;
use analyze::compare::{self, Conclusion};
use record::{RunRecord, Status, names};
use std::path::Path;
use verdict::index::{self, Filter, Index, RunRow};

const HOUR_MS: u64 = 3_600_000;

/// A run that began this many hours after the first one, `speed` times as fast.
fn write(parent: &Path, hours: u64, speed: f64, change: impl FnOnce(&mut RunRecord)) {
    let mut record = fixture::record();
    record.started_unix_ms += hours * HOUR_MS;
    record.server_facts.insert("program".into(), "nginx".into());
    change(&mut record);
    let mut points = fixture::points();
    for point in &mut points {
        for (name, factor) in [(names::THROUGHPUT, speed), (names::GOODPUT, speed), (names::SERVER_CPU, 1.0 / speed)] {
            if let Some(figure) = point.figures.get(name).cloned() {
                let value = figure.value.map(|value| value * factor);
                point.figures.set(name, record::Figure { value, ..figure });
            }
        }
    }
    fixture::write(parent, record, &points);
}

fn read(folder: &Path, filter: &Filter) -> Index {
    index::index(folder, &record::runs::find(folder).unwrap(), filter)
}

#[test]
fn each_run_is_compared_with_the_previous_one_of_its_scenario() {
    let folder = tempfile::tempdir().unwrap();
    // Written in another order than measured, and with other names.
    write(folder.path(), 5, 0.6, |record| {
        record.scenario.name = "a".into();
        fixture::loaded(record).url = "http://127.0.0.1:9999/1k.bin".into();
        record.server_facts.insert("version".into(), "nginx/1.26.0".into());
    });
    write(folder.path(), 0, 1.0, |_| ());
    write(folder.path(), 2, 1.0, |record| record.scenario.name = "b".into());
    write(folder.path(), 6, 1.0, |record| fixture::loaded(record).load.targets[0].path = "/other".into());
    write(folder.path(), 7, 1.0, |record| {
        record.server_facts.insert("program".into(), "haproxy".into());
    });
    let found = read(folder.path(), &Filter::default());
    let rows: Vec<(u64, usize)> = found
        .runs
        .iter()
        .map(|row| ((row.started_unix_ms - fixture::record().started_unix_ms) / HOUR_MS, row.scenario))
        .collect();
    assert_eq!(rows, [(7, 1), (6, 2), (5, 3), (2, 3), (0, 3)], "the newest first, numbered by their newest run");
    let [slow, same, first] = [2, 3, 4].map(|at: usize| &found.runs[at]);
    assert_eq!(first.before, None);
    let before = same.before.as_ref().unwrap();
    assert_eq!((&before.path, before.is_worse()), (&first.path, false), "{before:?}");
    let before = slow.before.as_ref().unwrap();
    assert_eq!(before.path, same.path);
    let open = |row: &RunRow| record::RunDir::open(&row.path).unwrap();
    let compared = compare::runs(&open(same), &open(slow), compare::THRESHOLD_RATIO).unwrap();
    assert_eq!(before.conclusion, Some(Conclusion::Regression));
    assert_eq!(before.worse.len(), compared.regressions().count());
    assert_eq!(before.doubts, compared.doubts);
    let words = before.summary();
    assert!(words.starts_with("worse: ") && words.ends_with(" of the previous run"), "{words}");
    let ratio = before.worse[0].ratio.value;
    assert!(
        before.worse.iter().all(|one| one.ratio.value.ln().abs() <= ratio.ln().abs()),
        "the largest change is first"
    );
    assert_eq!(slow.versions[0], ("server", "nginx/1.26.0".to_string()));
    assert!(slow.answer.as_ref().unwrap().peak.is_some() && slow.peak.unwrap().per_sec < same.peak.unwrap().per_sec);
    let at = same.load.unwrap();
    assert!(
        at <= same.answer.as_ref().unwrap().plan_per_sec.unwrap().value,
        "the load of p99 and CPU is not above the plan"
    );
    assert!(same.response_p99_us.is_some() && same.cpu_us_per_request.is_some());
}

#[test]
fn a_filter_does_not_change_comparisons() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 1.0, |_| ());
    write(folder.path(), 2, 0.6, |_| ());
    write(folder.path(), 3, 1.0, |record| record.scenario.name = "Other".into());
    let all = read(folder.path(), &Filter::default());
    let only = |words: &[&str]| {
        let found = read(
            folder.path(),
            &Filter { only: words.iter().map(|word| word.to_string()).collect(), ..Filter::default() },
        );
        assert_eq!(found.runs.len() + found.filtered_out, 3);
        found.runs
    };
    assert_eq!(only(&["worse:"]), all.runs[1..2]);
    assert_eq!(only(&["OTHER", "find", "nginx"]), all.runs[..1]);
    assert_eq!(only(&["watch"]), []);
    let since = Some(all.runs[1].started_unix_ms);
    let found = read(folder.path(), &Filter { since_unix_ms: since, ..Filter::default() });
    assert_eq!((found.runs, found.filtered_out), (all.runs[..2].to_vec(), 1), "the run before may lie outside");
}

#[test]
fn empty_and_unreadable_runs_do_not_end_the_index() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 1.0, |_| ());
    let mut empty = fixture::record();
    empty.server_facts.insert("program".into(), "nginx".into());
    (empty.started_unix_ms, empty.status) = (empty.started_unix_ms + HOUR_MS, Status::Interrupted);
    fixture::write(folder.path(), empty, &[]);
    write(folder.path(), 2, 1.0, |_| ());
    for (name, text) in [("broken", "{ half".to_string()), ("newer", newer())] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("run.json"), text).unwrap();
    }
    let found = read(folder.path(), &Filter::default());
    assert_eq!(found.runs.len(), 3);
    assert_eq!((&found.runs[1].before, &found.runs[1].peak), (&None, &None));
    assert_eq!(found.runs[0].before.as_ref().unwrap().path, found.runs[2].path, "the empty run between is passed over");
    let why: Vec<&str> = found.unreadable.iter().map(|one| one.why.as_str()).collect();
    assert!(why.len() == 2 && why[0].contains("schema 99") && why[1].starts_with("run.json: "), "{why:?}");
}

fn newer() -> String {
    let record = RunRecord { schema: 99, ..fixture::record() };
    serde_json::to_string(&record).unwrap()
}
