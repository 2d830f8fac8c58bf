//! The page of a recording.

use super::text;
use crate::chart::{Band, Chart, ChartSeries, Mark, Scale};
use crate::page::CaptionedChart;
use crate::page::frame::render;
use crate::page::plain::{PlainPage, RunWords};
use crate::text::number;
use analyze::predict::regression::Line;
use analyze::watch::lines::{self, Window};
use analyze::watch::{Recording, WatchFindings, stalls};
use record::RunDir;
use record::units::{format_si, grouped};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum points of a line; longer recordings are averaged.
const MOST_POINTS: usize = 480;
/// Maximum stalls that are shaded.
const MOST_BANDS: usize = 200;

/// The page of a recording.
pub fn html(run: &RunDir, recording: &Recording, findings: &WatchFindings) -> String {
    let mut sentences = text::sentences(findings);
    sentences.extend(text::unreadable(findings).map(|said| said + "."));
    let figures = [rates(findings), against_rate(findings), states(recording)].into_iter().flatten().collect();
    let said = (text::headline(run, findings), sentences);
    let tables = findings.tables.tables.iter().map(text::titled).collect();
    let ended = RunWords("ended by a signal", "read");
    let page = PlainPage::new(run, ended, said, ("Over time and over rate", figures), tables);
    render("watch.html", &page, || text::run(run, findings))
}

/// The unit of the time axis in seconds, and the axis's name.
fn since_begin(seconds: f64) -> (f64, &'static str) {
    if seconds >= 7200.0 { (3600.0, "hours since the watch began") } else { (1.0, "seconds since the watch began") }
}

/// Averages neighbours, down to [`MOST_POINTS`].
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MOST_POINTS).max(1);
    points.chunks(size).map(|part| (part[0].0, part.iter().map(|(_, y)| y).sum::<f64>() / part.len() as f64)).collect()
}

fn rates(findings: &WatchFindings) -> Option<CaptionedChart> {
    let found = findings.stalls.as_ref().ok()?;
    let mut points = thinned(&found.rates);
    // A rate is drawn at the start of its interval; the last one is repeated at its end.
    points.extend(points.last().map(|(_, rate)| (findings.seconds, *rate)));
    let (unit_s, x_name) = since_begin(findings.seconds);
    points.iter_mut().for_each(|(x, _)| *x /= unit_s);
    let mut chart = Chart::empty(
        "requests per second over time",
        x_name,
        "requests per second",
        Scale::linear(points.iter().map(|(x, _)| *x), number),
        Scale::linear(points.iter().map(|(_, y)| *y), format_si),
    );
    chart.description = stalls::sentences(found).join(" ");
    let shaded = |stall: &stalls::Stall| {
        let range = stall.at_s / unit_s..(stall.at_s + stall.length_s) / unit_s;
        Band { name: "", class: "failure", range, least_px: 1.0 }
    };
    chart.bands = found.stalls.iter().take(MOST_BANDS).map(shaded).collect();
    (chart.unit, chart.origin) = ("1/s", "counted");
    chart.series.push(ChartSeries {
        class: "s1",
        line: points.into_iter().map(Mark::from).collect(),
        ..ChartSeries::default()
    });
    let caption = match found.rates.len().div_ceil(MOST_POINTS) {
        0 | 1 => "Counted, each reading".to_string(),
        size => format!("Counted; means of {size} readings"),
    };
    let of = match found.stalls.len() {
        n if n > MOST_BANDS => format!("the first {MOST_BANDS} of {} stalls", grouped(n as f64)),
        _ => "stalls".into(),
    };
    Some(CaptionedChart {
        title: "Requests per second",
        caption: format!("{caption}. Shaded: {of}. After Banga and Mogul (1998), Figure 11."),
        chart,
    })
}

fn against_rate(findings: &WatchFindings) -> Option<CaptionedChart> {
    let lines = findings.lines.as_ref().ok()?;
    let windows = &lines.windows;
    let most = windows.iter().map(|window| window.rate_per_sec).fold(0.0, f64::max);
    let values = windows.iter().flat_map(|w| [w.idle_cpus.unwrap_or(0.0), w.user_cpus, w.kernel_cpus]);
    let mut chart = Chart::empty(
        "CPU time against request rate",
        "requests per second",
        "CPUs",
        Scale::linear(windows.iter().map(|window| window.rate_per_sec), format_si),
        Scale::linear(values, number),
    );
    chart.description = lines::sentences(lines).join(" ");
    (chart.unit, chart.origin) = ("CPUs", "least squares");
    let counted = |place: (f64, f64)| Mark { origin: "counted", ..place.into() };
    let mut add = |name: &str, class: &'static str, line: &Line, value: &dyn Fn(&Window) -> Option<f64>| {
        let y = |x: f64| (line.intercept.value + line.slope.value * x).max(0.0);
        chart.series.push(ChartSeries {
            name: name.into(),
            class,
            line: vec![(0.0, y(0.0)).into(), (most, y(most)).into()],
            dots: windows.iter().filter_map(|window| Some(counted((window.rate_per_sec, value(window)?)))).collect(),
            ..ChartSeries::default()
        });
    };
    if let Some(idle) = &lines.idle {
        add("idle", "s3", idle, &|window| window.idle_cpus);
    }
    add("kernel", "s2", &lines.kernel, &|window| Some(window.kernel_cpus));
    add("user", "s1", &lines.user, &|window| Some(window.user_cpus));
    let of =
        if lines.cpus > 0 { format!("the machine's {} CPUs", lines.cpus) } else { "the server's processes".into() };
    Some(CaptionedChart {
        title: "CPU time against request rate",
        caption: format!(
            "CPU time of {of}, counted; dots: windows of {:.0} s (n = {}); lines: least squares. After Banga and Mogul \
             (1998), Figure 12.",
            lines.window_s,
            windows.len()
        ),
        chart,
    })
}

fn states(recording: &Recording) -> Option<CaptionedChart> {
    let classes = ["s1", "s2", "s3", "s4"];
    let wanted = ["ESTABLISHED", "TIME_WAIT", "SYN_RECV", "CLOSE_WAIT"];
    let samples: Vec<_> =
        recording.samples.iter().filter_map(|sample| Some((sample.seconds, sample.states.as_ref()?))).collect();
    let (unit_s, x_name) = since_begin(samples.last().map_or(0.0, |(seconds, _)| *seconds));
    let has = |name: &str| samples.iter().any(|(_, states)| states.keys().any(|key| is_state(key, name)));
    let series: Vec<ChartSeries> = wanted
        .iter()
        .zip(classes)
        .filter(|(name, _)| has(name))
        .map(|(name, class)| {
            let count = |states: &BTreeMap<Cow<'static, str>, u64>| {
                states.iter().filter(|(key, _)| is_state(key, name)).map(|(_, n)| *n as f64).sum()
            };
            let points: Vec<(f64, f64)> =
                samples.iter().map(|(seconds, states)| (*seconds / unit_s, count(states))).collect();
            let line = thinned(&points).into_iter().map(Mark::from).collect();
            ChartSeries { name: name.to_lowercase().replace('_', " "), class, line, ..ChartSeries::default() }
        })
        .collect();
    if series.is_empty() || samples.len() < 2 {
        return None;
    }
    let all = || series.iter().flat_map(|series| series.line.iter());
    let mut chart = Chart::empty(
        "connections by state over time",
        x_name,
        "sockets",
        Scale::linear(all().map(|mark| mark.x), number),
        Scale::linear(all().map(|mark| mark.y), format_si),
    );
    (chart.series, chart.unit, chart.origin) = (series, "sockets", "counted");
    Some(CaptionedChart {
        title: "Connections by state",
        caption: "Counted at each transition. Sockets leave TIME_WAIT by the kernel's timers, which are computed."
            .into(),
        chart,
    })
}

/// States are spelled as in the kernel or in lower case.
fn is_state(key: &str, name: &str) -> bool {
    key.eq_ignore_ascii_case(name) || key.replace(['-', ' '], "_").eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::RunRecord;

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
        let text = include_str!("../../../analyze/tests/recorded/haproxy-poll.jsonl");
        let record: RunRecord = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let run = RunDir { path: folder, record, points: Vec::new(), reading_doubts: Vec::new() };
        let findings = analyze::watch::find(&recording);
        (run, recording, findings)
    }

    /// Findings of a watch with this length in seconds, with a stall in each of its first 300 seconds.
    fn stalled(seconds: f64) -> WatchFindings {
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
        WatchFindings { seconds, stalls: Ok(stalls), ..recorded().2 }
    }

    #[test]
    fn time_is_in_the_unit_of_its_whole_span() {
        let axis = |seconds: f64| {
            let chart = rates(&stalled(seconds)).unwrap().chart;
            let ticks = chart.x.ticks(6).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
            (chart.x_name, ticks.join(" "))
        };
        assert_eq!(axis(2.0), ("seconds since the watch began".into(), "0 0.5 1 1.5 2".into()));
        assert_eq!(axis(7100.0), ("seconds since the watch began".into(), "0 2,000 4,000 6,000".into()));
        assert_eq!(axis(14_400.0), ("hours since the watch began".into(), "0 1 2 3 4".into()));
    }

    /// A stall of 50 ms is a twentieth of a pixel in a watch of ten minutes.
    #[test]
    fn each_stall_of_a_long_watch_is_shown() {
        let figure = rates(&stalled(600.0)).unwrap();
        let drawn = figure.chart.svg("c", crate::page::WIDE, figure.chart.margins(300.0));
        assert_eq!(drawn.matches("class=\"zone failure\"").count(), 200);
        assert!(!drawn.contains("width=\"0."), "{drawn}");
        assert!(figure.caption.contains("Shaded: the first 200 of 300 stalls."), "{}", figure.caption);
    }

    #[test]
    fn the_page_has_the_work_of_each_process_escaped_with_counts_and_units() {
        let (run, recording, findings) = recorded();
        let words = text::run(&run, &findings);
        assert!(words.contains("By process") && words.contains("42 nginx"), "{words}");
        let page = html(&run, &recording, &findings);
        let table = page.split("<h2>By process</h2>").nth(1).expect("the table").split("</section>").next().unwrap();
        let cells = |from: &str, tag: &str| -> Vec<String> {
            let row = table.split("<tr").find(|row| row.contains(from)).expect("a row");
            let open = format!("<{tag}>");
            row.split(open.as_str()).skip(1).map(|cell| cell.split("</").next().unwrap().to_string()).collect()
        };
        assert_eq!(cells(">CPU</th>", "th")[..4], ["CPU", "share", "requests", "in"]);
        assert_eq!(cells(">us elapsed<", "td")[..5], ["s", "%", "n", "B&#x2f;request", "B&#x2f;request"]);
        let busy = cells("41 ", "td");
        assert_eq!(
            busy,
            ["3.00", "75.0", "300", "100", "1000", "1.50", "2.50", "3.50", "1.10", "1.20", "1.30", "7.00"]
        );
        assert_eq!(cells("42 nginx", "td")[5..], ["-", "-", "-", "-", "-", "-", "0"], "nothing timed is no zero");
        assert!(table.contains("41 &lt;b&gt;nginx&lt;&#x2f;b&gt;") && !page.contains("<b>nginx"), "{table}");
        assert!(table.contains("by the scheduler") && table.contains("counted"), "{table}");
    }
}
