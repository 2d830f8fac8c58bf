//! A running watch on the screen, and the page of its recording.

use crate::fixture;
use analyze::watch::{Recording, WatchFindings, stalls};
use record::RunDir;
use record::watch::{Headroom, Limit, LimitKind, Range, UnknownLimit};
use report::metrics::Metrics;
use report::metrics::text::{MetricsFormat, page as metrics_page};
use report::watch::screen::{self, TerminalSize};
use report::watch::{headroom, page, text};

#[test]
fn a_screen_never_exceeds_the_terminals_size() {
    let text: String = (0..50).map(|line| format!("{line} {}\n", "wide \x1b[2J".repeat(40))).collect();
    for (columns, rows) in [(80, 24), (20, 3), (300, 60)] {
        let drawn = screen::drawn(&text, TerminalSize { columns, rows });
        let body = drawn.strip_prefix("\x1b[H").unwrap().strip_suffix("\x1b[J").unwrap();
        let lines: Vec<&str> = body.split('\n').collect();
        assert_eq!(lines.len(), rows.min(50));
        for line in lines {
            let line = line.strip_suffix("\x1b[K").unwrap();
            assert!(line.chars().count() <= columns && !line.contains('\x1b'), "{line:?}");
        }
    }
}

fn headroom_of_nginx() -> Headroom {
    let full = Range { low: 3612.0, high: Some(4433.0) };
    Headroom {
        now_per_sec: 1900.0,
        highest_per_sec: 1950.0,
        readings: 60,
        window_s: 60.1,
        capacity_per_sec: Some(full),
        limits: vec![
            Limit {
                kind: LimitKind::BusiestThread,
                used: 0.47,
                most: 1.0,
                times: Range { low: 1.9, high: Some(2.333) },
                full_at_per_sec: Some(full),
                of: Some("7 nginx".into()),
            },
            Limit {
                kind: LimitKind::Descriptors,
                used: 120.0,
                most: 4096.0,
                times: Range { low: 34.13, high: None },
                full_at_per_sec: None,
                of: Some("process 7".into()),
            },
        ],
        unknown: vec![UnknownLimit { kind: LimitKind::Backlog, why: "empty of 4,096".into() }],
        unseen: None,
    }
}

#[test]
fn the_line_names_the_nearest_limit_and_fits_80_columns() {
    let mut found = headroom_of_nginx();
    assert_eq!(headroom::line(&found), "1.9 to 2.3 x the load: busiest thread full at 3612 to 4433/s");
    found.unseen = Some("a request waits".into());
    assert_eq!(headroom::line(&found), "at most 2.3 x the load: busiest thread full at 3612 to 4433/s");
    found.limits.remove(0);
    assert_eq!(headroom::line(&found), "not measured: a request waits");
    found.unseen = None;
    assert_eq!(headroom::line(&found), "34 or more x the load: descriptors full (120 of 4,096)");
    found.capacity_per_sec = None;
    assert_eq!(
        headroom::line(&found),
        "not measured: backlog: empty of 4,096",
        "what is far does not hide the unknown"
    );
    found.limits[0].times.low = 1.5;
    assert_eq!(headroom::line(&found), "1.5 or more x the load: descriptors full (120 of 4,096)");
    found.limits.clear();
    assert_eq!(headroom::line(&found), "not measured: backlog: empty of 4,096");
}

#[test]
fn metrics_have_the_ends_that_are_known() {
    let mut found = headroom_of_nginx();
    let lines = |found: &Headroom| {
        let mut metrics = Metrics { labels: vec![("server.port", "80".into())], ..Metrics::default() };
        headroom::add(&mut metrics, found);
        let text = metrics_page(&metrics, MetricsFormat::Prometheus);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&found),
        [
            "straingauge_capacity_per_second{server_port=\"80\",end=\"low\"} 3612",
            "straingauge_capacity_per_second{server_port=\"80\",end=\"high\"} 4433",
            "straingauge_headroom_ratio{server_port=\"80\",limit=\"busiest-thread\",end=\"low\"} 1.9",
            "straingauge_headroom_ratio{server_port=\"80\",limit=\"busiest-thread\",end=\"high\"} 2.333",
            "straingauge_headroom_ratio{server_port=\"80\",limit=\"descriptors\",end=\"low\"} 34.13",
        ]
    );
    found.unseen = Some("a request waits".into());
    assert!(!lines(&found)[0].contains("low"), "it may be full before");
    assert!(lines(&Headroom::default()).is_empty(), "not measured is no 0");
}

#[test]
fn each_limit_has_a_sentence_whether_known_or_not() {
    assert_eq!(
        headroom::sentences(&headroom_of_nginx()),
        [
            "Capacity by the visible limits: 3612 to 4433/s; now 1900/s, highest 1950/s, in 60 readings over 60 s.",
            "Busiest thread (7 nginx): 0.47 of 1 in use, full at 1.9 to 2.3 x the current load, at 3612 to 4433/s.",
            "Descriptors (process 7): 120 of 4,096 in use, full at 34 or more x the current load.",
            "Backlog: not measured: empty of 4,096.",
        ]
    );
}

const HEAD: &str = concat!(
    r#"{"kind":"watch","schema":1,"port":80,"mode":"budgeted","#,
    r#""classes":[{"name":"html","from_bytes":0,"below_bytes":null}]}"#
);
const PROCESSES: &str = r#"[{"pid":41,"name":"<b>nginx</b>","processes":1,"cpu_ns":3000000000,
    "requests":300,"bytes_in":30000,"bytes_out":300000,"timed":7,
    "elapsed_ns":[1500.0,2500.0,3500.0],"phase_cpu_ns":[1100.0,1200.0,1300.0]},
    {"pid":42,"name":"nginx","processes":1,"cpu_ns":1000000000,
    "requests":100,"bytes_in":10000,"bytes_out":100000,"timed":0,
    "elapsed_ns":[null,null,null],"phase_cpu_ns":[null,null,null]}]"#;

fn recorded() -> (RunDir, Recording, WatchFindings) {
    let reading = |elapsed_ns: u64, requests: u64| {
        let processes: serde_json::Value = serde_json::from_str(PROCESSES).unwrap();
        serde_json::json!({"kind": "reading", "totals": {
            "elapsed_ns": elapsed_ns, "at_ns": elapsed_ns, "classes": [{"requests": requests}],
            "cpu": {"group_ns": 4_000_000_000u64}, "processes": processes,
        }})
    };
    let folder = tempfile::tempdir().unwrap().keep();
    let text = format!("{HEAD}\n{}\n{}\n", reading(1_000_000_000, 0), reading(3_000_000_000, 400));
    std::fs::write(folder.join("watch.jsonl"), text).unwrap();
    let recording = Recording::open(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let run = RunDir { path: folder, record: fixture::record(), points: Vec::new(), reading_doubts: Vec::new() };
    let findings = analyze::watch::find(&recording);
    (run, recording, findings)
}

/// The page of a watch with this length in seconds, with a stall in each of its first 300 seconds, and its first chart.
fn stalled(seconds: f64) -> (String, String) {
    let (run, recording, findings) = recorded();
    let stall = |at: u32| stalls::Stall { at_s: f64::from(at), length_s: 0.05 };
    let stalls = stalls::Stalls {
        rates: vec![(0.0, 9.0), (seconds / 2.0, 9.0)],
        silent_before_s: 0.0,
        silent_after_s: 0.0,
        interval_s: 0.05,
        usual_per_sec: 9.0,
        stalls: (0..300).map(stall).collect(),
        stalled_ratio: 0.05,
        period: None,
    };
    let page = page::html(&run, &recording, &WatchFindings { seconds, stalls: Ok(stalls), ..findings });
    let chart = page.split("<svg").nth(1).expect("a chart").split("</svg>").next().unwrap().to_string();
    (page, chart)
}

#[test]
fn time_is_in_the_unit_of_its_whole_span() {
    for (seconds, name, last) in [
        (2.0, "seconds since the watch began", "2"),
        (7100.0, "seconds since the watch began", "7,000"),
        (14_400.0, "hours since the watch began", "4"),
    ] {
        let (_, chart) = stalled(seconds);
        assert!(chart.contains(&format!(">{name}<")), "{chart}");
        let ticks = chart.split("<g class=\"x-ticks\">").nth(1).expect("ticks").split("</g>").next().unwrap();
        assert!(ticks.ends_with(&format!(">{last}</text>")), "{ticks}");
    }
}

/// A stall of 50 ms is a twentieth of a pixel in a watch of ten minutes.
#[test]
fn each_stall_of_a_long_watch_is_shown() {
    let (page, chart) = stalled(600.0);
    assert_eq!(chart.matches("class=\"zone failure\"").count(), 200);
    assert!(!chart.contains("width=\"0."), "{chart}");
    assert!(page.contains("Shaded: the first 200 of 300\u{a0}stalls."), "{page}");
}

#[test]
fn the_page_has_the_work_of_each_process_escaped_with_counts_and_units() {
    let (run, recording, findings) = recorded();
    let words = text::run(&run, &findings);
    assert!(words.contains("By process") && words.contains("42 nginx"), "{words}");
    let page = page::html(&run, &recording, &findings);
    let table = page.split("<h2>By process</h2>").nth(1).expect("the table").split("</section>").next().unwrap();
    let cells = |from: &str, tag: &str| -> Vec<String> {
        let row = table.split("<tr").find(|row| row.contains(from)).expect("a row");
        let open = format!("<{tag}>");
        row.split(open.as_str()).skip(1).map(|cell| cell.split("</").next().unwrap().to_string()).collect()
    };
    assert_eq!(cells(">CPU</th>", "th")[..4], ["CPU", "share", "requests", "in"]);
    assert_eq!(cells(">us elapsed<", "td")[..5], ["s", "%", "n", "B&#x2f;request", "B&#x2f;request"]);
    let busy = cells("41 ", "td");
    assert_eq!(busy, ["3.00", "75.0", "300", "100", "1000", "1.50", "2.50", "3.50", "1.10", "1.20", "1.30", "7.00"]);
    assert_eq!(cells("42 nginx", "td")[5..], ["-", "-", "-", "-", "-", "-", "0"], "nothing timed is no zero");
    assert!(table.contains("41 &lt;b&gt;nginx&lt;&#x2f;b&gt;") && !page.contains("<b>nginx"), "{table}");
    assert!(table.contains("by the scheduler") && table.contains("counted"), "{table}");
}
