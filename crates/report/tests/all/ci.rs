//! The output for CI systems: Markdown and JUnit XML of the same checks.

use crate::fixture;
use analyze::zones;
use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use record::{Point, RunDir};
use report::check::{self, Case, CaseResult};
use report::{junit, markdown};
use verdict::limit;

fn written(folder: &std::path::Path) -> RunDir {
    fixture::write(folder, fixture::record(), &fixture::points())
}

fn of_run(run: &RunDir, checks: &[Case]) -> String {
    let findings = zones::of_run(run);
    markdown::run(run, &findings, &verdict::sentences(run, &findings), checks)
}

fn case(name: &str, result: CaseResult, words: &str) -> Case {
    Case { group: "limits", name: name.into(), result, words: words.into() }
}

/// The page as a reader sees it: the text, and the kinds of elements around it.
fn shown(text: &str) -> (String, Vec<String>) {
    let (mut words, mut kinds) = (String::new(), Vec::new());
    // The dialect of GitHub and GitLab.
    let dialect = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_MATH
        | Options::ENABLE_GFM;
    for event in Parser::new_ext(text, dialect) {
        match event {
            Event::Text(part) => words.push_str(&part),
            Event::Start(tag) => kinds.push(match tag {
                Tag::Heading { level, .. } => format!("{level}"),
                other => format!("{other:?}"),
            }),
            Event::End(_) => words.push('\n'),
            other => kinds.push(format!("{other:?}")),
        }
    }
    (words, kinds)
}

#[test]
fn a_run_is_summarised_on_one_screen() {
    let folder = tempfile::tempdir().unwrap();
    let run = written(folder.path());
    let findings = zones::of_run(&run);
    let said = verdict::sentences(&run, &findings);
    let peak = limit::parse("peak < 1").unwrap();
    let checks = [
        check::limit("", &peak, &peak.check_figures(&verdict::answer::figures(&findings, said.answer.as_ref()))),
        check::end(Some("the server ended")),
    ];
    let text = of_run(&run, &checks);
    assert!(text.lines().count() <= 40, "{text}");
    let (words, kinds) = shown(&text);
    assert_eq!(kinds[0], "h3");
    for wanted in [
        said.headline.as_str(),
        "plan for",
        "breaks at",
        "a request",
        "sure",
        "find.peak_throughput_per_sec < 1/s",
        "passed",
        "the server ended",
        "report.html",
        "straingauge find",
        said.doubts[0].what.as_str(),
    ] {
        assert!(words.contains(wanted), "'{wanted}' is not in\n{words}");
    }
    assert_eq!(kinds.iter().filter(|kind| kind.starts_with("Table(")).count(), 2, "{kinds:?}");
}

#[test]
fn a_comparison_shows_the_ratio_of_each_figure_with_its_interval() {
    let folder = tempfile::tempdir().unwrap();
    let (a, mut b) = (written(folder.path()), written(folder.path()));
    for point in &mut b.points {
        if let Some(p99) = point.figures.0.get_mut(record::names::RESPONSE_P99) {
            p99.value = p99.value.map(|us| us * 5.0);
        }
    }
    let found = analyze::compare::runs(&a, &b, 0.05).unwrap();
    assert!(found.regressions().count() > 0);
    let text = markdown::comparison(["old", "new"], &found);
    assert!(text.lines().count() <= 40, "{text}");
    let (words, _) = shown(&text);
    assert!(words.contains(&analyze::compare::headline(&found)), "{words}");
    let row = text.lines().find(|line| line.starts_with("| p99 ")).expect("a row");
    assert!(row.contains("worse") && row.contains(" to "), "{row}");

    let answer = verdict::answer::derive(&a, &analyze::zones::of_run(&a), &[]).expect("it has sweeps");
    let plan = found.figure(record::names::FIND_PLAN).expect("both have an open loop");
    assert_eq!((Some(plan.a), plan.ratio.value), (answer.plan_per_sec.map(|plan| plan.value), 1.0));

    let checks = check::comparison(Ok(&found), ["A", "B"]);
    assert_eq!(checks.len(), found.figures.len());
    let count = |result| checks.iter().filter(|one| one.result == result).count();
    assert_eq!(count(CaseResult::Failed), found.regressions().count());
    let xml = junit::xml(&checks);
    assert!(xml.contains(&format!("failures=\"{}\"", found.regressions().count())), "{xml}");
    let worse = checks.iter().find(|one| one.result == CaseResult::Failed).expect("one");
    assert!(worse.name == "p99" && worse.words.starts_with("worse; the threshold is 5 %; A "), "{worse:?}");
}

#[test]
fn each_figure_is_checked_against_its_own_limit() {
    let folder = tempfile::tempdir().unwrap();
    let (a, mut b) = (written(folder.path()), written(folder.path()));
    for point in &mut b.points {
        point.outcomes.non_2xx = point.outcomes.ok / 100;
        point.outcomes.ok -= point.outcomes.non_2xx;
    }
    let found = analyze::compare::runs(&a, &b, 0.025).unwrap();
    let checks = check::comparison(Ok(&found), ["A", "B"]);
    let of = |word: &str| checks.iter().find(|one| one.name == word).expect("it is compared").words.as_str();
    let good = of("good answers");
    assert!(good.starts_with("worse; the threshold is 0.1 %; A 100.0 %, B 99.0 %"), "{good}");
    assert!(of("throughput").contains("worse by more than 2.5 %"), "{}", of("throughput"));
}

#[test]
fn an_empty_comparison_is_an_error_instead_of_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = written(folder.path());
    run.points.iter_mut().for_each(|point| point.figures = record::Figures::default());
    let found = analyze::compare::runs(&run, &run, 0.05).unwrap();
    assert_eq!(found.conclusion, analyze::compare::Conclusion::CouldNotTell);
    let xml = junit::xml(&check::comparison(Ok(&found), ["A", "B"]));
    assert!(xml.contains("tests=\"1\" failures=\"0\" errors=\"1\"") && xml.contains("nothing could be"), "{xml}");
}

/// One point per load allows no test, and a CI system must show that, not a pass.
#[test]
fn undecided_checks_are_skipped_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = written(folder.path());
    run.points.retain(|point| point.repeat == 1);
    let found = analyze::compare::runs(&run, &run, 0.05).unwrap();
    let checks = check::comparison(Ok(&found), ["A", "B"]);
    assert!(!checks.is_empty() && checks.iter().all(|one| one.result == CaseResult::Skipped), "{checks:?}");
    let xml = junit::xml(&checks);
    assert!(xml.contains("<skipped message=\"not tested: a run has fewer than two repeats; A "), "{xml}");
    assert!(xml.contains("failures=\"0\""), "{xml}");
}

#[test]
fn an_unmeasured_figure_fails_its_limit_in_both_formats() {
    let limit = limit::parse("p99 > 50ms").unwrap();
    let point = Point::new(record::Sweep::Single, 0, 8, record::Pace::Closed);
    let checks = [check::limit("B: ", &limit, &limit.check(&point))];
    assert_eq!(checks[0].result, CaseResult::Failed);
    let xml = junit::xml(&checks);
    assert!(xml.contains("name=\"B: client.response_p99_us &gt; 50.0 ms\""), "{xml}");
    assert!(xml.contains("<failure message=") && xml.contains("was not measured"), "{xml}");
    let text = markdown::point("http://127.0.0.1/", &point, &checks);
    assert!(text.contains("| failed |") && text.contains("not measured"), "{text}");
}

#[test]
fn the_xml_has_the_form_that_jenkins_reads() {
    let checks = [
        check::end(None),
        case("a < b & \"c\"", CaseResult::Passed, "it was <1 & 'more'"),
        case("x\u{1}\u{fffe}", CaseResult::Failed, "bad\u{1b}[31m\u{ffff}\nline"),
        case("y", CaseResult::Skipped, "why"),
        case("z", CaseResult::Error, "gone"),
    ];
    // The structure that the schema junit-10.xsd requires.
    expect_test::expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="straingauge" tests="5" failures="1" errors="1">
          <testsuite name="run" tests="1" failures="0" errors="0" skipped="0">
            <testcase classname="straingauge.run" name="the run reached its end"/>
          </testsuite>
          <testsuite name="limits" tests="4" failures="1" errors="1" skipped="1">
            <testcase classname="straingauge.limits" name="a &lt; b &amp; &quot;c&quot;">
              <system-out>it was &lt;1 &amp; &apos;more&apos;</system-out>
            </testcase>
            <testcase classname="straingauge.limits" name="x??">
              <failure message="bad?[31m??line"/>
            </testcase>
            <testcase classname="straingauge.limits" name="y">
              <skipped message="why"/>
            </testcase>
            <testcase classname="straingauge.limits" name="z">
              <error message="gone"/>
            </testcase>
          </testsuite>
        </testsuites>
    "#]]
    .assert_eq(&junit::xml(&checks));
}

proptest! {
    #[test]
    fn untrusted_text_is_plain_text_in_markdown(text in hostile()) {
        let checks = [case(&text, CaseResult::Failed, &text)];
        let point = Point::new(record::Sweep::Single, 0, 8, record::Pace::Closed);
        let (words, kinds) = shown(&markdown::point(&text, &point, &checks));
        let (_, of_nothing) = shown(&markdown::point("x", &point, &[case("x", CaseResult::Failed, "x")]));
        prop_assert_eq!(kinds, of_nothing, "{}", text);
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = flat(&record::text::plain(&text, 600));
        prop_assert!(flat(&words).matches(&wanted).count() >= 3, "{:?} is not in {:?}", wanted, words);
    }

    #[test]
    fn untrusted_text_is_plain_text_in_xml(text in hostile()) {
        let xml = junit::xml(&[case(&text, CaseResult::Failed, &text), case(&text, CaseResult::Passed, &text)]);
        let mut reader = quick_xml::Reader::from_str(&xml);
        let mut failures = 0;
        loop {
            match reader.read_event().expect("well-formed") {
                quick_xml::events::Event::Eof => break,
                quick_xml::events::Event::Empty(one) if one.name().as_ref() == b"failure" => {
                    let message = one.try_get_attribute("message").unwrap().expect("a message");
                    let wanted = text.replace(['\u{fffe}', '\u{ffff}'], "?");
                    prop_assert_eq!(message.unescape_value().unwrap(), wanted);
                    failures += 1;
                }
                _ => {}
            }
        }
        prop_assert_eq!(failures, 1);
        let is_control = |c: char| matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}');
        let is_legal = |c: char| !is_control(c) && !matches!(c, '\u{fffe}' | '\u{ffff}');
        prop_assert!(xml.chars().all(is_legal));
    }
}

/// Markdown, HTML and XML markup within other text, as it is after being made safe to print.
fn hostile() -> impl Strategy<Value = String> {
    let marks =
        "[-+=#>*_`~|$&<!\\[\\]()\\\\.:^\"'1a @\u{fffe}\u{ffff}]{1,24}|\\PC{1,24}|<b>x</b>|&lt;|- \\[x\\] a|1\\) a|```a";
    marks
        .prop_map(|text| record::text::plain(text.trim(), 100))
        .prop_filter("something", |text| !text.trim().is_empty())
}
