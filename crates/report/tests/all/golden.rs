//! Golden files: all outputs for the fixture run. `UPDATE_EXPECT=1 cargo test` accepts a change.

use crate::fixture;
use analyze::zones;
use expect_test::expect_file;
use record::{RunDir, Sweep};
use report::json::{self, Content, Output};
use report::{page, run, text};

/// The text without the path of the temporary folder.
fn placeless(text: &str, run: &RunDir) -> String {
    text.replace(&run.path.parent().unwrap().display().to_string(), "runs")
}

#[test]
fn the_summary_of_a_run_matches_the_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    text::fit(80);
    let first = placeless(&run::text(&run, &findings, &verdict), &run);
    assert!(first.lines().count() <= run::MOST_LINES, "{first}");
    let is_path = |line: &&str| line.starts_with("all tables") || line.starts_with("page:");
    assert!(first.lines().filter(|line| !is_path(line)).all(|line| line.chars().count() <= 80), "{first}");
    let full = placeless(&run::full(&run, &findings, &verdict), &run);
    expect_file!["../goldens/run.txt"].assert_eq(&format!("{first}\n----\n\n{full}"));
}

#[test]
fn causes_come_first_and_only_the_most_severe_doubts_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let mut points = fixture::points();
    for point in &mut points {
        point.figures.set(
            record::names::TCP_LISTEN_OVERFLOWS,
            record::Figure::new(if point.connections >= 16 { 50.0 } else { 0.0 }, "1/s", 50, record::Origin::Counted),
        );
    }
    let run = fixture::write(folder.path(), fixture::record(), &points);
    let findings = zones::of_run(&run);
    let mut verdict = verdict::sentences(&run, &findings);
    assert_eq!(verdict.causes.len(), 1, "{:?}", verdict.sentences);
    let doubt = |severity, number: u32| {
        record::Doubt::new(record::DoubtKind::Steal, severity, format!("number {number}"), "repeat it")
    };
    verdict.doubts = (0..6).map(|number| doubt(record::Severity::Note, number)).collect();
    verdict.doubts.push(doubt(record::Severity::Invalid, 6));
    verdict.doubts.push(doubt(record::Severity::Warning, 7));
    let said = run::full(&run, &findings, &verdict);
    let place = |words: &str| said.find(words).unwrap_or_else(|| panic!("'{words}' is not in\n{said}"));
    assert!(place("The accept queue overflowed") < place("Throughput peaked"), "{said}");
    assert!(place("number 6") < place("number 7") && place("number 7") < place("number 0"), "{said}");
    assert!(!said.contains("number 3") && said.contains("and 3 more (3 notes)"), "{said}");
    // Even with long texts, the first screen has the first cause and its remedy.
    verdict.causes[0].because = "a place where threads wait ".repeat(20);
    verdict.causes[0].remedy = "something that may help ".repeat(20);
    let first = run::text(&run, &findings, &verdict);
    assert!(first.contains("\nwhy  a place") && first.contains("\ndo   something"), "{first}");
    assert!(first.lines().count() <= run::MOST_LINES, "{first}");
    verdict.causes[0].remedy = format!("To try: `{}--last`.", "--option with-a-value ".repeat(14));
    let first = run::text(&run, &findings, &verdict);
    assert!(first.contains("--last`.\n") && first.lines().count() <= run::MOST_LINES, "the command is whole:\n{first}");
}

#[test]
fn the_table_of_a_point_matches_the_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write_whole(folder.path(), fixture::record(), &fixture::points());
    let closed = run.points.iter().find(|point| !point.doubts.is_empty()).unwrap();
    let open = run.points.iter().rfind(|point| point.sweep == Sweep::Rate).unwrap();
    let mut tables = String::new();
    let statuses = std::collections::BTreeMap::from([(200, 46_351), (503, 17)]);
    let answers = run::Answers { statuses, ..Default::default() };
    for point in [closed, open] {
        let summary = run::summary(point, &run.latencies(point.index).unwrap(), &answers);
        assert!(summary.lines().count() <= run::MAX_LINES, "{summary}");
        tables.push_str(&summary);
        tables.push_str("\n----\n\n");
        tables.push_str(&run::point(point, &run.latencies(point.index).unwrap()));
        tables.push_str("\n----\n\n");
        tables.push_str(&format!("{}\n\n----\n\n", run::progress_line(point, 12_300_000_000, 90_000_000_000)));
    }
    assert!(tables.lines().all(|line| line.chars().count() <= 100));
    expect_file!["../goldens/point.txt"].assert_eq(&tables);
}

#[test]
fn the_findings_in_json_match_the_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points()[..11]);
    let findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    let mut value = Output::from(Content::Run(Box::new(json::Run::new(&run, findings, verdict)))).value();
    assert_eq!(value["points"].as_array().unwrap().len(), 11);
    value["points"] = "left out here".into();
    value["record"] = "left out here".into();
    expect_file!["../goldens/findings.json"]
        .assert_eq(&placeless(&serde_json::to_string_pretty(&value).unwrap(), &run));
}

/// The page from one text to the end of the next other one, with one element per line but a table's row in one.
#[track_caller]
fn part(page: &str, from: &str, to: &str) -> String {
    let begin = page.find(from).unwrap_or_else(|| panic!("no {from} in the page"));
    let length = page[begin..].find(to).unwrap_or_else(|| panic!("no {to} after {from}")) + to.len();
    let mut text = page[begin..begin + length].replace("><", ">\n<");
    for cell in ["th>", "th ", "td>", "td ", "span"] {
        text = text.replace(&format!(">\n<{cell}"), &format!("><{cell}"));
    }
    for end in ["th", "td", "tr"] {
        text = text.replace(&format!("\n</{end}>"), &format!("</{end}>"));
    }
    text + "\n"
}

/// The page without the hashes of its style and script, which change with every edit of these.
fn hashless(page: &str) -> String {
    let mut parts = page.split("'sha256-");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + "'sha256-HASH" + &part[part.find('\'').expect("the hash ends")..])
}

/// The words in each of these elements, in the order of the page.
fn outline(page: &str) -> String {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (tag, indent) in [("h2", ""), ("h3", "  "), ("summary", "  "), ("figcaption", "    ")] {
        let open = format!("<{tag}>");
        for (at, _) in page.match_indices(&open) {
            let words = &page[at + open.len()..];
            let end = words.find("</").expect("each element ends");
            found.push((at, format!("{indent}{}\n", &words[..end])));
        }
    }
    found.sort();
    found.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn the_parts_of_a_report_match_the_golden_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write_whole(folder.path(), fixture::record(), &fixture::points());
    let page = hashless(&placeless(&page::html(&run), &run));
    expect_file!["../goldens/report/outline.txt"].assert_eq(&outline(&page));
    let is = |golden: expect_test::ExpectFile, from: &str, to: &str| golden.assert_eq(&part(&page, from, to));
    is(expect_file!["../goldens/report/head.html"], "<!doctype html>", "<style>");
    is(expect_file!["../goldens/report/header.html"], "<header>", "</header>");
    is(expect_file!["../goldens/report/numbers.html"], "<dl class=\"numbers\">", "</dl>");
    is(expect_file!["../goldens/report/said.html"], "<div class=\"said\">", "<section class");
    // Zones, dots of the points, a line of medians, an interval, areas, a distribution.
    is(
        expect_file!["../goldens/report/throughput.svg"],
        "<svg viewBox=\"0 0 540 300\" role=\"img\" aria-labelledby=\"c1w",
        "</svg>",
    );
    is(
        expect_file!["../goldens/report/states.svg"],
        "<svg viewBox=\"0 0 358 270\" role=\"img\" aria-labelledby=\"c4n",
        "</svg>",
    );
    is(
        expect_file!["../goldens/report/distribution.svg"],
        "<svg viewBox=\"0 0 540 300\" role=\"img\" aria-labelledby=\"c5w",
        "</svg>",
    );
    is(expect_file!["../goldens/report/loads.html"], "<table>", "</table>");
    is(expect_file!["../goldens/report/model.html"], "<th>model</th>", "</table>");
    is(expect_file!["../goldens/report/points.html"], "<table class=\"points\">", "<th>001");
    is(expect_file!["../goldens/report/point.html"], "<details class=\"point\"><summary>017", "</details>");
    is(expect_file!["../goldens/report/criteria-and-place.html"], "<section>\n<h2>Criteria</h2>", "</footer>");
}
