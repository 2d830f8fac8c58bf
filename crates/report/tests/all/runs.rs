//! The index of a folder of runs as text, JSON and page.

use crate::browser::chromium;
use crate::fixture;
use crate::person::{DESK, Desk, Person};
use expect_test::expect_file;
use record::{RunRecord, Status, names};
use report::runs::{json, page, text};
use std::path::Path;
use verdict::index::{self, Filter, Index, RunRow};

const HOSTILE: &str = "</script><script>alert(1)</script>\u{1b}[31m'\"{{ 123457*3 }}";
const HOUR_MS: u64 = 3_600_000;

/// A run that began this many hours after the first one, `speed` times as fast.
fn write(parent: &Path, hours: u64, speed: f64, change: impl FnOnce(&mut RunRecord)) -> record::RunDir {
    let mut record = fixture::record();
    record.started_unix_ms += hours * HOUR_MS;
    record.server_facts.insert("program".into(), "nginx".into());
    change(&mut record);
    let mut points = fixture::points();
    // The first repeats of the closed loop suffice here.
    points.truncate(33);
    for point in &mut points {
        for (name, factor) in [(names::THROUGHPUT, speed), (names::GOODPUT, speed), (names::SERVER_CPU, 1.0 / speed)] {
            if let Some(figure) = point.figures.get(name).cloned() {
                let value = figure.value.map(|value| value * factor);
                point.figures.set(name, record::Figure { value, ..figure });
            }
        }
    }
    fixture::write(parent, record, &points)
}

/// Three runs of a scenario, of which the second is worse; another scenario; a run interrupted at once; two
/// unreadable runs.
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
    index::index(place, &record::runs::find(place).unwrap(), &Filter::default())
}

#[test]
fn the_index_fits_80_columns_and_names_worse_and_unreadable_runs() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
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

/// The page without its own scripts.
fn markup(html: &str) -> String {
    html.split("<script>").map(|part| part.split_once("</script>").map_or(part, |(_, after)| after)).collect()
}

#[test]
fn the_page_links_reports_and_draws_trends_without_running_untrusted_text() {
    let place = tempfile::tempdir().unwrap();
    let mut index = folder(place.path());
    let html = page::html(&index, place.path());
    assert_eq!(html.matches("/report.html\"").count(), 1, "one run has a report");
    assert!(html.contains("aria-label=\"report of the run of 2025-11-21 20:36\""), "{html}");
    // Three figures in two sizes, for the only scenario with several runs.
    assert_eq!(html.matches("<svg").count(), 6);
    assert!(html.contains("id=\"scenario-2\"") && html.contains("straingauge compare "));
    assert!(!markup(&html).contains("NaN"));
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
        assert!(!markup(&html).contains(external), "{external}");
    }
}

#[test]
fn links_lead_from_the_page_to_the_report_for_any_names() {
    let link = |folder: &str, run: &str| {
        let row = RunRow { path: run.into(), has_report: true, ..RunRow::default() };
        let html = page::html(&Index { runs: vec![row], ..Index::default() }, Path::new(folder));
        html.split("<a href=\"").nth(1).expect("a link").split('"').next().unwrap().to_string()
    };
    assert_eq!(link("/srv/runs", "/srv/runs/a"), "./a/report.html");
    assert_eq!(link("/srv/pages/x", "/srv/runs/a"), "./../../runs/a/report.html");
    assert_eq!(
        link("/", "/javascript:alert(1)/a b?#%\u{1b}"),
        "./javascript%3Aalert%281%29/a%20b%3F%23%25%1B/report.html"
    );
}

/// The visible rows.
const SHOWN: &str =
    "[...document.querySelectorAll('table.runs tbody tr')].filter((row) => row.checkVisibility()).length";

/// The accessibility tree: role and name of each part.
fn parts(person: &mut Person) -> Vec<(String, String)> {
    let tree = person.call("Accessibility.getFullAXTree", serde_json::json!({}));
    let word = |node: &serde_json::Value, of: &str| node[of]["value"].as_str().unwrap_or_default().to_string();
    tree["nodes"].as_array().unwrap().iter().map(|node| (word(node, "role"), word(node, "name"))).collect()
}

#[test]
fn the_index_supports_keyboard_filters_and_screen_readers() {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let html = page::html(&folder(place.path()), place.path());
    let file = place.path().join("index.html");
    std::fs::write(&file, html).unwrap();
    let artefacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../artefacts");
    std::fs::create_dir_all(&artefacts).unwrap();

    let mut person = Person::opens(&browser, &file, &DESK);
    let parts = parts(&mut person);
    let count = |role: &str| parts.iter().filter(|(of, _)| of == role).count();
    let is_there = |role: &str, name: &str| parts.iter().any(|(of, named)| of == role && named.contains(name));
    assert_eq!((count("columnheader"), count("rowheader"), count("searchbox")), (12, 5, 1), "{parts:?}");
    assert!(is_there("searchbox", "Show only runs with these words") && is_there("region", "All runs"), "{parts:?}");
    assert!(
        is_there("status", "") && is_there("application", "Peak throughput over time. 2025-11-21 20:36 82.3k; "),
        "{parts:?}"
    );
    person.keeps(&artefacts.join("runs.png"), 4000.0);

    person.presses("Tab");
    assert_eq!(person.reads("document.activeElement.id"), "filter", "the first stop of the keyboard");
    "worse ngin".chars().for_each(|letter| person.presses(&letter.to_string()));
    assert_eq!(person.reads("document.getElementById('shown').textContent"), "1 of 5 runs");
    assert_eq!(person.sees(SHOWN), 1);
    person.presses("Escape");
    assert_eq!(person.sees(SHOWN), 5, "an empty field shows all");
    "path-that-is-long".chars().for_each(|letter| person.presses(&letter.to_string()));
    let trends = "[...document.querySelectorAll('section.sweep')].filter((one) => one.checkVisibility()).length";
    assert_eq!((person.sees(SHOWN), person.sees(trends)), (1.into(), 0.into()), "trends of what is shown alone");
    person.presses("Escape");
    for _ in 0..60 {
        person.presses("Tab");
        if person.reads("document.activeElement.getAttribute('aria-label') ?? ''").starts_with("report of the run of") {
            break;
        }
    }
    let outline = person.reads("getComputedStyle(document.activeElement).outlineStyle");
    assert_ne!(outline, "none", "the focus can be seen");
    person.presses("Enter");
    person.waits_for("location.pathname.endsWith('/report.html')");
    assert_eq!(person.complaints(), Vec::<String>::new());

    // The width of a phone, in dark mode.
    let mut person = Person::opens(&browser, &file, &Desk { width: 400, height: 800, is_dark: true, has_script: true });
    assert_eq!(person.sees("document.documentElement.scrollWidth"), 400, "nothing but the table scrolls sideways");
    assert_eq!(person.reads("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 26)");
    person.keeps(&artefacts.join("runs-phone.png"), 4000.0);
    assert_eq!(person.complaints(), Vec::<String>::new());

    // Without script, everything except the filter works.
    let mut person = Person::opens(&browser, &file, &Desk { has_script: false, ..DESK });
    assert_eq!(person.sees("document.querySelector('.filter').checkVisibility()"), false);
    assert_eq!(person.sees(SHOWN), 5);
}
