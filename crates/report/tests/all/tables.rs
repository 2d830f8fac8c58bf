//! Tables and lists for a terminal.

use crate::fixture;
use analyze::axis::slow_down::Effect;
use analyze::{axis, zones};
use record::leftovers::Leftover;
use record::owner::Owner;
use record::workload::{ClassResult, Grouping, ReplayResult, WorkloadResult};
use record::{Axis, Criteria, Estimate, Latency, Pace, Point, RunDir, SlowPlace, SlowRequest, Sweep, TraceId, names};
use report::{doctor, run, text};

fn in_memory(points: Vec<Point>) -> RunDir {
    RunDir { path: "runs/a".into(), record: fixture::record(), points, reading_doubts: Vec::new() }
}

#[test]
fn long_sentences_wrap_at_the_width() {
    let wrapped = text::wrap(&"word ".repeat(60), "- ", "  ");
    assert!(wrapped.lines().all(|line| line.chars().count() <= text::width()));
    assert!(wrapped.lines().skip(1).all(|line| line.starts_with("  word")));
}

#[test]
fn leftovers_are_listed_with_their_owners_and_unsearched_places_are_named() {
    let owner = Owner { pid: 77, ..Owner::of_this_process() };
    let group = Leftover { kind: "control group", name: "/a".into(), detail: "2 processes".into(), owner };
    let file = Leftover { kind: "unfinished file", name: "runs/.x".into(), detail: "a file".into(), owner };
    let text = doctor::leftovers(&[group.clone(), file], &[], &[], &["/b: it belongs to another user".into()]);
    assert_eq!(
        text,
        "Left behind\n  control group    /a (2 processes), of process 77\n  unfinished file  runs/.x (a file), of \
         process 77\nstraingauge doctor --clean removes it\nnot checked: /b: it belongs to another user\n"
    );
    assert_eq!(doctor::leftovers(&[], &[], &[], &[]), "no leftovers\n");
    let text = doctor::leftovers(&[], &[group], &[], &[]);
    assert_eq!(text, "Removed\n  control group  /a (2 processes), of process 77\nno leftovers\n");
}

#[test]
fn slopes_of_mere_noise_do_not_widen_the_table() {
    let points = [0.0, 100.0].map(|value| fixture::axis_point(Axis::Cold, value, 1, 0));
    let mut slowed = axis::of_points(&points, &Criteria::default(), 0.9).remove(0);
    let slope = |us_per_us, low, high| Some(Estimate::new(us_per_us, Some((low, high)), 0.95, 3));
    (slowed.axis, slowed.slowed) = (Axis::SlowDown, Some(SlowPlace::Accept));
    slowed.effect = Some(Effect {
        reached_per_request: None,
        most_added_us: 2.0,
        cpu_us_per_request: None,
        time: slope(0.94, 0.9, 1.0),
        p99: slope(-5097.01, -25_627.5, 123.4),
        cpu: slope(-9.99e5, -9.99e5, -9.99e5),
        is_linear: None,
        is_client_limited: false,
        gain_ratio: None,
    });
    let run = in_memory(Vec::new());
    let mut findings = zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    findings.axes = vec![slowed];
    let said = run::full(&run, &findings, &verdict);
    let row = said.lines().find(|line| line.contains("0.94 (0.9..1.0)")).unwrap_or_else(|| panic!("{said}"));
    assert!(row.contains(" -5097 (-25.6k..123) "), "{row}");
    assert!(row.split("  ").all(|cell| cell.trim().len() <= 24), "{row}");
}

fn text_of(workload: WorkloadResult) -> String {
    run::point(&Point { workload, ..Point::new(Sweep::Single, 0, 1, Pace::Closed) }, &[])
}

#[test]
fn shares_refer_to_all_classes_and_unlisted_ones_are_counted() {
    let mut response = Latency::new();
    (1..=10).for_each(|n| response.record_ns(n * 1000));
    let class = |n: u32| ClassResult { requests: 10, ..ClassResult::new(Grouping::Size, n.to_string(), &response) };
    let said = text_of(WorkloadResult { classes: (0..90).map(class).collect(), replay: None });
    assert_eq!(said.matches(" 1.1 % ").count(), 80, "{said}");
    assert!(said.contains("10 more classes"), "{said}");
    let first = said.lines().find(|line| line.trim_start().starts_with("0 ")).unwrap();
    assert!(first.contains(" - "), "p99 of 10 requests: {said}");
}

#[test]
fn a_class_and_a_log_are_described_in_text() {
    let mut response = Latency::new();
    (1..=2000).for_each(|n| response.record_ns(n * 1000));
    let class = ClassResult {
        asked_ratio: Some(0.946),
        requests: 2000,
        ok: 2000,
        body_bytes: 5 << 20,
        ..ClassResult::new(Grouping::Size, "to 64.0 KiB\u{1b}", &response)
    };
    let replay = ReplayResult {
        file: "access.log".into(),
        format: "combined".into(),
        is_whole: true,
        rounds: 1,
        lines: 2001,
        rejected: 1,
        rejected_examples: vec!["access.log: line 3: no readable time: x".into()],
        requests: 2000,
        clients: 5,
        sessions: 7,
        sizes_equal: 3,
        sizes_different: 1,
        ..Default::default()
    };
    let said = text_of(WorkloadResult { classes: vec![class], replay: Some(replay) });
    assert!(!said.contains('\u{1b}'));
    for words in ["2,000", "5 clients", "all of it sent", "3 of 4 have the size in the log", "access.log: line 3"] {
        assert!(said.contains(words), "'{words}' is not in\n{said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= text::width()), "{said}");
}

fn request(response_ns: u64) -> SlowRequest {
    SlowRequest {
        response_ns,
        at_ns: 1_234_000_000,
        wait_ns: 0,
        connect_ns: 0,
        first_byte_ns: response_ns,
        last_byte_ns: 0,
        connection: 3,
        local_port: Some(40_001),
        received_bytes: 2048,
        status: Some(503),
        failure: None,
        trace_id: None,
        client: None,
    }
}

fn point(index: u32, slowest: Vec<SlowRequest>) -> Point {
    Point { index, slowest, ..fixture::point(Sweep::Connections, index, 10, &[(names::THROUGHPUT, 1000.0)]) }
}

#[test]
fn phases_without_time_have_no_column() {
    let said = run::point(&point(0, vec![request(7_000_000)]), &[]);
    let lines: Vec<String> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["at response first byte conn port bytes status", "1.234 s 7.00 ms 7.00 ms 3 40001 2.00 KiB 503"] {
        assert!(lines.iter().any(|has| has == line), "'{line}' is not in\n{said}");
    }
    assert!(!run::point(&point(0, Vec::new()), &[]).contains("Slowest"));
}

#[test]
fn the_slowest_of_all_repeats_are_listed_with_their_points() {
    let times = |from: u64| (from..from + 20).map(|ms| request(ms * 1_000_000)).collect();
    let traced = SlowRequest {
        status: None,
        failure: Some("timed out\u{1b}".into()),
        trace_id: Some(TraceId::from_bits(7 << 64 | 8)),
        ..request(90_000_000)
    };
    let run = in_memory(vec![point(4, times(20)), point(5, times(30)), point(6, vec![traced])]);
    let findings = zones::of_run(&run);
    let said = run::full(&run, &findings, &verdict::sentences(&run, &findings));
    let rows: Vec<&str> = said.lines().filter(|line| line.contains(" 40001 ")).map(str::trim_start).collect();
    assert_eq!(rows.len(), 20, "{said}");
    assert!(rows[0].starts_with("006 ") && rows[1].starts_with("005 "), "{said}");
    assert!(rows.iter().any(|row| row.starts_with("004 ")), "{said}");
    assert!(rows[0].contains("timed out") && !said.contains('\u{1b}'), "{said}");
    assert!(rows[0].contains("00000000000000070000000000000008"), "{said}");
}

#[test]
fn a_number_has_four_digits_and_is_never_a_row_of_zeros() {
    let written: Vec<String> =
        [0.0, 1e-13, -2e-11, 6e-10, 0.01234567, 2.5, 12.0, 999.96, 1234567.8].map(text::number).into();
    assert_eq!(written, ["0", "0", "0", "0.000000001", "0.01235", "2.500", "12", "1000.0", "1,234,568"]);
}
