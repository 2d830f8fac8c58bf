//! Checks that all outputs for a run show the same numbers: terminal, page, Markdown, JSON, index and figures.

use crate::server::{Bench, Server};
use crate::{fixture, recorded};
use analyze::zones::{Findings, Level, Spread};
use analyze::{compare, zones};
use record::units::format_si;
use record::{RunDir, names};
use report::json::{self, Content, Output};
use report::{markdown, page, run};
use verdict::answer;

/// Words of HTML and Markdown without their marks and escapes.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut is_tag = false;
    for c in text.chars() {
        match c {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            '\u{a0}' => out.push(' '),
            '\\' => {}
            c if !is_tag => out.push(c),
            _ => {}
        }
    }
    let out = out.replace("&#x2f;", "/").replace("&amp;", "&");
    out.replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&quot;", "\"")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[track_caller]
fn check(of: &RunDir) -> bool {
    let findings = zones::of_run(of);
    let verdict = verdict::sentences(of, &findings);
    let Some(answer) = &verdict.answer else { return false };
    let outputs = [
        ("terminal", plain(&run::text(of, &findings, &verdict))),
        ("terminal --full", plain(&run::full(of, &findings, &verdict))),
        ("page", plain(&page::html(of))),
        ("Markdown", plain(&markdown::run(of, &findings, &verdict, &[]))),
    ];
    let numbers = [answer.plan_per_sec, answer.breaks_per_sec, answer.capacity_per_sec].into_iter().flatten();
    let mut wanted: Vec<String> = numbers.map(|number| format!("{}/s", format_si(number.value))).collect();
    wanted.push(answer.sentence.clone());
    for (name, words) in &outputs {
        for number in &wanted {
            let words = words.replace(" /s", "/s");
            assert!(words.contains(number.as_str()), "'{number}' is not in the {name}:\n{words}");
        }
    }
    // A row of the table shows the level: the same in the terminal and on the page, where the charts draw it.
    for level in findings.rate.iter().flat_map(|sweep| &sweep.levels) {
        let Some(answered) = level.throughput_per_sec else { continue };
        let page = &outputs[2].1;
        assert!(page.contains(&format_si(answered.median)), "{} is not on the page", format_si(answered.median));
    }
    compared_with_itself(of, &findings);
    let output = Output::from(Content::Run(Box::new(json::Run::new(of, findings.clone(), verdict.clone())))).value();
    assert_eq!(output["answer"]["sentence"], answer.sentence.as_str());
    let plan = answer.plan_per_sec.map(|plan| plan.value);
    assert_eq!(output["answer"]["plan_per_sec"]["value"].as_f64(), plan);
    assert_eq!(answer::figures(&findings, Some(answer)).value(names::FIND_PLAN), plan);
    true
}

/// The columns of a comparison show the levels.
#[track_caller]
fn compared_with_itself(of: &RunDir, findings: &Findings) {
    let Ok(found) = compare::runs(of, of, 0.05) else { return };
    let mut checked = 0;
    for (name, value) in [
        (names::THROUGHPUT, (|level| level.throughput_per_sec) as fn(&Level) -> Option<Spread>),
        (names::SERVER_CPU, |level| level.cpu_us_per_request),
        (names::RESPONSE_P50, |level| level.response_p50_us),
        (names::RESPONSE_P99, |level| level.response_p99_us),
    ] {
        for at in found.figure(name).iter().flat_map(|figure| &figure.loads) {
            let sweep = findings.sweeps().find(|sweep| sweep.sweep == at.sweep).expect("its sweep");
            let level = sweep.levels.iter().find(|level| level.load == at.load).expect("its load");
            let Some(value) = value(level) else { continue };
            assert!(
                (at.a / value.median - 1.0).abs() < 1e-9 && at.a == at.b,
                "{name} at {}: {at:?}, {value:?}",
                at.load
            );
            checked += 1;
        }
    }
    assert!(checked > 0, "{found:?}");
}

#[test]
fn every_output_shows_the_same_numbers() {
    let checked =
        recorded::names().iter().filter(|name| check(&RunDir::open(&recorded::run(name).path()).unwrap())).count();
    assert!(checked > 3, "{checked}");
    for (seed, disturbed) in [(1, 0.0), (2, 0.6), (3, 0.9)] {
        let mut bench = Bench::new(Server { disturbed, is_poisson: true, ..Server::default() }, seed);
        for repeat in 0..3 {
            [2, 8, 64, 512].iter().for_each(|load| bench.closed(*load, repeat, 500_000_000));
            for share in [0.3, 0.8, 0.97, 1.1, 1.5] {
                bench.open(share * bench.server.capacity(), repeat, 1_000_000_000);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(check(&fixture::write(folder.path(), fixture::record(), &bench.points)));
    }
}
