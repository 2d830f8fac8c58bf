//! The report of hostile, broken, empty and partial runs.

use crate::fixture;
use analyze::zones;
use base64::Engine as _;
use proptest::prelude::*;
use record::watched::{Watched, WatchedClass};
use record::workload::{ClassResult, Grouping};
use record::{
    Arrival, Axis, Criteria, DoubtKind, Figure, Latency, Origin, Pace, Point, RunDir, RunRecord, Status, Sweep, names,
};
use report::{json, live, markdown, page, run, text};
use sha2::{Digest as _, Sha256};
use std::fs;

const HOSTILE: &str = "</title></style></pre><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{ 123457*3 }}";

fn written(record: RunRecord, points: &[record::Point]) -> (tempfile::TempDir, RunDir) {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), record, points);
    (folder, run)
}

fn summary(run: &RunDir) -> String {
    let findings = zones::of_run(run);
    run::full(run, &findings, &verdict::sentences(run, &findings))
}

#[test]
fn untrusted_scripts_are_shown_as_text() {
    let mut record = fixture::record();
    let hostile = || HOSTILE.to_string();
    (record.scenario.name, record.scenario.repeat_command) = (hostile(), hostile());
    let loaded = fixture::loaded(&mut record);
    loaded.url = hostile();
    loaded.load.headers = vec![(hostile(), hostile())];
    loaded.load.method = hostile();
    loaded.load.targets[0].path = hostile();
    loaded.server.as_mut().unwrap().argv = vec![hostile()];
    let machine = &mut record.machine;
    for text in [&mut machine.kernel, &mut machine.distribution, &mut machine.cpu_model, &mut machine.straingauge] {
        *text = hostile();
    }
    machine.governor = Some(hostile());
    machine.sysctls.insert(hostile(), hostile());
    record.server_facts.insert(hostile(), hostile());
    record.ended_by = Some(hostile());
    record.status = Status::Interrupted;
    record.doubts = vec![DoubtKind::Other.invalid(hostile(), hostile())];
    let mut points = fixture::points();
    for point in &mut points {
        point.figures.set(HOSTILE, Figure { unit: hostile(), ..Figure::new(1.0, "us", 1, Origin::Timed) });
        point.figures.set("x", Figure::not_measured(HOSTILE, HOSTILE));
        point.figures.set(names::RESPONSE_P50, Figure::not_measured("us", HOSTILE));
        point.connection_states.insert(HOSTILE.into(), Figure::new(50.0, HOSTILE, 1, Origin::Counted));
        point.doubts.push(DoubtKind::Other.note(HOSTILE, HOSTILE));
    }
    let (_folder, run) = written(record, &points);
    let page = page::html(&run);
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    for forbidden in ["<script>alert", "<img", "</style></pre>", "onerror=alert(2)>"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(!page.contains("370371"), "a template inside a name was run");
    assert!(page.contains("&lt;script&gt;"), "hostile text is shown as text");
    assert_eq!(page.matches("<title>").count(), 1);
    assert!(page.contains("default-src 'none'") && !page.contains("unsafe-inline"), "by their hashes alone");
    for external in ["http-equiv=\"refresh", "src=", "<link", "@import", "url(", "javascript:", "<iframe"] {
        assert!(!page.replace("src=x", "").replace("url(#", "").contains(external), "{external}");
    }
}

#[test]
fn an_empty_run_says_that_nothing_was_measured() {
    let (_folder, run) = written(fixture::record(), &[]);
    let page = page::html(&run);
    assert!(page.contains("No point was measured"), "{page}");
    assert!(page.contains("straingauge find http:"), "the command to repeat stands there");
    assert!(summary(&run).starts_with("No point was measured."));
}

#[test]
fn an_abandoned_run_is_reported_as_abandoned() {
    let record = RunRecord { status: Status::Running, ..fixture::record() };
    let (_folder, run) = written(record, &fixture::points()[..5]);
    let page = page::html(&run);
    assert!(page.contains("abandoned: its process was killed, 5 points kept"));
    assert!(summary(&run).contains("was killed after 5 points"));
    let own = record::owner::Owner::of_this_process();
    let elsewhere = Some(record::owner::Owner { place: own.place ^ 1, ..own });
    let (_folder, run) = written(RunRecord { writer: elsewhere, ..run.record }, &fixture::points()[..5]);
    assert!(page::html(&run).contains("not finished; its process is on another machine"));
    assert!(summary(&run).contains("not finished after 5 points"));
}

#[test]
fn a_run_has_a_report_after_any_number_of_points() {
    let points = fixture::points();
    // No point, less than a sweep, a sweep and its yardstick, part of the next sweep.
    for end in [0, 2, 10, 11, 25, 34, 45] {
        let mut record = fixture::record();
        record.status = Status::Interrupted;
        record.ended_by = Some("Ctrl-C".into());
        let (_folder, run) = written(record, &points[..end]);
        assert!(page::html(&run).contains("interrupted"));
        assert!(summary(&run).contains("Ctrl-C"));
    }
}

#[test]
fn the_live_page_counts_points_like_the_report() {
    let points = vec![Point::new(Sweep::Yardstick, 0, 1, Pace::Closed); 3];
    let run = RunDir { path: "runs/a".into(), record: fixture::record(), points, reading_doubts: Vec::new() };
    assert!(live::event(&run, 1, 1, false).contains("\"points\":3"));
    assert!(page::html(&run).contains(", 3 points"));
}

#[test]
fn an_untrusted_url_is_shown_as_text_on_the_live_page() {
    let page = live::html("http://x/</script><script>alert(1)</script>\u{1b}");
    assert_eq!(page.matches("<script>").count(), 1, "{page}");
    assert!(!page.contains('\u{1b}'));
    for tag in ["style", "script"] {
        let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
        let source = page.split(&begin).nth(1).expect("a style and a script").split(&end).next().unwrap();
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(source));
        assert!(live::policy().contains(&format!("{tag}-src 'sha256-{hash}'")), "{}", live::policy());
    }
}

#[test]
fn criteria_are_shown_as_they_were_typed() {
    let mut record = fixture::record();
    let typed = Criteria { goodput_ratio: 0.985, error_ratio: 0.000_001, ..Criteria::default() };
    fixture::found(&mut record).sweep.criteria = typed;
    let (_folder, run) = written(record, &[]);
    let page = page::html(&run);
    assert!(page.contains("<td>98.5 %</td>") && page.contains("<td>0.0001 %</td>"), "{page}");
}

#[test]
fn list_items_without_room_are_counted() {
    let mut points = fixture::points();
    let class = |n: usize| ClassResult::new(Grouping::Kind, format!("kind {n}"), &Latency::new());
    points[0].workload.classes = (0..85).map(class).collect();
    let sized = |n: usize| WatchedClass { name: format!("size {n}"), ..WatchedClass::default() };
    points[0].watched = Some(Watched { classes: (0..20).map(sized).collect(), ..Watched::default() });
    let mut record = fixture::record();
    fixture::loaded(&mut record).server.as_mut().unwrap().cpus = (0..96).collect();
    let (_folder, run) = written(record, &points);
    let page = page::html(&run);
    assert!(page.contains("kind 79") && !page.contains("kind 80"), "room for 80");
    assert!(page.contains("The run directory has 5 more classes"));
    assert!(page.contains("<dd>0-95</dd>"), "all CPUs");
    let text = run::point(&run.points[0], &[]);
    assert!(text.contains("size 15") && !text.contains("size 16") && text.contains("  4 more\n"), "{text}");
}

#[test]
fn damaged_files_are_left_out_and_named() {
    let (_folder, run) = written(fixture::record(), &fixture::points());
    fs::write(run.point_path(3).join("point.json"), b"{ half").unwrap();
    for index in 4..20 {
        fs::write(run.point_path(index).join("latency.hlog"), b"not a log").unwrap();
    }
    let run = RunDir::open(&run.path).unwrap();
    let page = page::html(&run);
    assert!(page.contains("was left out"));
    assert!(page.contains("latency.hlog"), "an unreadable histogram is named");
}

#[test]
fn a_single_point_has_a_separate_report() {
    let mut points = fixture::points();
    points.truncate(1);
    points[0].sweep = record::Sweep::Single;
    let mut record = fixture::record();
    record.scenario.kind = record::RunKind::Load(fixture::loaded(&mut record).clone());
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write_whole(folder.path(), record, &points);
    let page = page::html(&run);
    assert!(page.contains("<svg"));
    assert!(summary(&run).contains("at 1 connection, response time p99"), "{}", summary(&run));
}

#[test]
fn percentiles_of_few_requests_are_not_printed() {
    let of = |n: u64| {
        let mut point = Point::new(Sweep::Single, 0, 1, Pace::Closed);
        point.figures.set(names::RESPONSE_P99, Figure::new(77_700.0, "us", n, Origin::Timed));
        let mut record = fixture::record();
        record.scenario.kind = record::RunKind::Load(fixture::loaded(&mut record).clone());
        let (_folder, run) = written(record, &[point]);
        let (markdown, text) = (markdown::point("u", &run.points[0], &[]), run::point(&run.points[0], &[]));
        let page = page::html(&run);
        let row = page.lines().find(|line| line.contains("<tr><th>000</th>")).unwrap();
        [markdown, text, row.to_string()].map(|form| form.contains("77.7 ms"))
    };
    assert_eq!((of(999), of(1000)), ([false; 3], [true; 3]));
}

#[test]
fn a_slow_rate_is_not_rounded_to_zero() {
    let mut points: Vec<_> = fixture::points().into_iter().filter(|point| point.sweep == Sweep::Rate).take(3).collect();
    for (point, rate_per_sec) in points.iter_mut().zip([0.4, 12.5, 72_651.0]) {
        point.pace = Pace::Open { rate_per_sec, arrival: Arrival::Poisson };
        point.figures.set(names::THROUGHPUT, Figure::new(rate_per_sec, "1/s", 100, Origin::Counted));
    }
    let (_folder, run) = written(fixture::record(), &points);
    let page = page::html(&run);
    for (level, point) in [("0.4", "0.4000"), ("12.5", "12.50"), ("72.7k", "72,651")] {
        let (of_level, of_point) = (format!("<tr><th>{level}"), format!("<td>0</td><td>{point}</td>"));
        assert!(page.contains(&of_level) && page.contains(&of_point), "{level}\n{page}");
    }
}

#[test]
fn unprofiled_loads_are_gaps_in_the_chart_of_layers() {
    let paths_with = |profiled: &[u64]| {
        let mut points = fixture::points();
        for point in points.iter_mut().filter(|point| profiled.contains(&point.connections)) {
            for (_, name) in analyze::growth::LAYERS {
                point.figures.set(name, Figure::new(2.0, "us", 100, Origin::Sampled));
            }
        }
        let (_folder, run) = written(fixture::record(), &points);
        let page = page::html(&run);
        let chart =
            page.split("<svg").find(|svg| svg.contains("CPU time by layer against connections")).expect("a chart");
        let of_first = |shape: &str| {
            let shapes =
                chart.split('<').filter(|element| element.starts_with(shape) && element.contains("class=\"layer n1\""));
            shapes.count()
        };
        (of_first("path"), of_first("rect"))
    };
    assert_eq!(paths_with(&[1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096]), (1, 0), "all were profiled");
    assert_eq!(paths_with(&[1, 2, 256, 1024]), (2, 0), "nothing between 2 and 256");
    assert_eq!(paths_with(&[1, 2, 1024]), (1, 1), "a load alone is a bar");
}

#[test]
fn an_axis_is_shown_in_text_json_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut points = Vec::new();
    for repeat in 1..=5u32 {
        for (at, value) in [0.0, 100.0, 2000.0].into_iter().enumerate() {
            points.push(fixture::axis_point(Axis::Cold, value, repeat, repeat * 3 + at as u32));
        }
    }
    let mut record = fixture::record();
    fixture::found(&mut record).sweep.axis = Some(fixture::axis_plan(Axis::Cold, &[0.0, 100.0, 2000.0]));
    let run = fixture::write(folder.path(), record, &points);
    let findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    let words = run::full(&run, &findings, &verdict);
    assert!(
        words.lines().filter(|line| !line.starts_with("repeat")).all(|line| line.chars().count() <= text::width()),
        "{words}"
    );
    for part in ["CPU per request grew", "cold connections, 5 repeats", "2,000"] {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
    let json = serde_json::to_value(json::Run::new(&run, findings.clone(), verdict.clone())).unwrap();
    assert_eq!(json["findings"]["axes"][0]["levels"].as_array().unwrap().len(), 3);
    let page = page::html(&run);
    for part in ["Axis: cold connections", "CPU time per request", "spread2", "Goodput"] {
        assert!(page.contains(part), "{part} is not in the report");
    }
    assert!(!page.contains("NaN"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_points_are_rendered_without_panic_with_a_short_summary(
        points in prop::collection::vec(fixture::any_point(), 0..40),
    ) {
        for point in &points {
            let summary = run::summary(point, &[], &Default::default());
            prop_assert!(summary.lines().count() <= run::MAX_LINES, "{}", summary);
            let _ = (serde_json::to_value(point), run::point(point, &[]), run::progress_line(point, 0, 0));
        }
    }
}

/// The client's own part of the response times is shown with them, and the tables are no wider than a terminal.
#[test]
fn the_reap_delay_is_shown_if_it_was_measured() {
    let without = written(fixture::record(), &fixture::points()).1;
    assert!(!summary(&without).contains("reap") && !page::html(&without).contains("class=\"reference p99\""));
    let mut points = fixture::points();
    for point in &mut points {
        let Some(p99) = point.value(names::RESPONSE_P99) else { continue };
        for (name, share) in [
            (names::REAP_P50, 0.1),
            (names::REAP_P99, 0.25),
            (names::REAP_MAX, 0.5),
            (names::SAMPLED_P50, 0.5),
            (names::SAMPLED_P99, 1.0),
            (names::ARRIVED_P50, 0.4),
            (names::ARRIVED_P99, 0.64),
        ] {
            point.figures.measured(name, p99 * share, 3_000, Origin::Sampled);
        }
    }
    let (_folder, run) = written(fixture::record(), &points);
    let said = summary(&run);
    assert!(said.contains("reap: client's share of p99;"), "{said}");
    let header = said.lines().find(|line| line.contains("conns")).unwrap();
    let row = said.lines().find(|line| line.trim_start().starts_with("4,096 ")).unwrap();
    let end = header.find("reap").unwrap() + "reap".len();
    assert_eq!(row[..end].trim_end().rsplit("  ").next().unwrap().trim(), "36 %", "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 112), "{said}");
    let page = page::html(&run);
    assert!(page.contains("class=\"reference p99\"") && page.contains("Dashed: without the reap delay"), "no chart");
    assert!(page.contains("client.reap_max_us"));
    let mut point = run.points.iter().find(|point| point.value(names::REAP_P99).is_some()).unwrap().clone();
    point.figures.measured(names::REAP_DATED, 0.04, 20, Origin::Timed);
    let full = run::point(&point, &[]);
    assert!(full.contains("measured in 4 % of the time") && full.contains("timed, n = 20"), "{full}");
    let columns = full.lines().find(|line| line.contains("without it")).unwrap();
    assert!(columns.contains("reap") && full.lines().all(|line| line.chars().count() <= 100), "{full}");
    point.figures.not_measured(names::REAP_P99, "the clients leave responses unread on purpose");
    let full = run::point(&point, &[]);
    assert!(full.contains("reap delay") && full.contains("not measured: the clients leave"), "{full}");
}

/// An open loop far above the capacity: 2 of 100 requests were answered.
#[test]
fn times_are_lower_bounds_if_requests_had_no_response() {
    let mut point = fixture::points().remove(0);
    point.sweep = record::Sweep::Single;
    (point.outcomes.sent, point.outcomes.ok, point.outcomes.unfinished) = (100_000, 2_000, 98_000);
    for (name, quantile) in names::CENSORED {
        if let Some(figure) = point.figures.0.get_mut(*name) {
            figure.at_least = point.outcomes.is_lower_bound(*quantile);
        }
    }
    let mut latency = record::Latency::default();
    (0..2_000).for_each(|_| latency.record_ns(5_000_000));
    let of = |tag: &str| (tag.to_string(), latency.clone());
    for latencies in [vec![of("response"), of("service"), of("lag")], Vec::new()] {
        let said = run::summary(&point, &latencies, &Default::default());
        assert!(said.contains("p50 >=") && said.contains("p99 >="), "{said}");
        assert!(said.contains("98,000 requests (98 %) had no response at the end"), "{said}");
        let full = run::point(&point, &latencies);
        let p50 = full.lines().find(|line| line.trim_start().starts_with("p50")).unwrap();
        assert!(p50.contains(">="), "{full}");
        assert!(full.contains("requests without a response take longer"), "{full}");
    }
    let json = serde_json::to_value(&point).unwrap();
    assert_eq!(json["figures"][names::RESPONSE_P50]["at_least"], true);
    assert_eq!(json["figures"][names::THROUGHPUT].get("at_least"), None);
    assert!(report::markdown::point("http://a", &point, &[]).contains("&gt;="));
    let (_folder, run) = written(fixture::record(), std::slice::from_ref(&point));
    let page = page::html(&run);
    assert!(page.contains("response time p99 at least") && page.contains("&gt;="), "{page}");
    point.outcomes = record::Outcomes { sent: 100_000, ok: 99_500, timed_out: 500, ..Default::default() };
    let said = run::summary(&point, &[of("response")], &Default::default());
    assert!(said.contains("p50 5.00 ms, p90 5.00 ms, p99 5.00 ms, max >=5.00 ms"), "{said}");
}
