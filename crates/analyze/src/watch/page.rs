//! The report over a recording: one HTML file without script, as for the other runs.

use super::lines::Window;
use super::recording::Recording;
use super::tables::Table;
use super::{WatchFindings, text};
use crate::chart::{Band, Chart, Scale, Series};
use crate::predict::regression::Line;
use crate::report::frame::{DoubtRow, Frame, doubts, render};
use crate::report::{DrawnFigure, Figure, draw};
use record::units::format_si;
use record::{RunDir, Status};
use serde::Serialize;

/// Points of a line over time; a longer recording is averaged into as many parts.
const MOST_POINTS: usize = 480;
/// Stalls that are shaded; beyond it the picture would be all shade.
const MOST_BANDS: usize = 200;

#[derive(Serialize)]
struct TableText {
    title: &'static str,
    note: String,
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<(String, Vec<String>)>,
}

#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    doubts: Vec<DoubtRow>,
    figures_title: &'static str,
    figures: Vec<DrawnFigure>,
    tables: Vec<TableText>,
}

/// The page.
pub fn html(run: &RunDir, recording: &Recording, findings: &WatchFindings) -> String {
    let mut sentences: Vec<String> = super::sentences(findings);
    sentences.extend(findings.lines.as_ref().err().map(|why| format!("CPU against rate: {why}.")));
    sentences.extend(findings.stalls.as_ref().err().map(|why| format!("Stalls: {why}.")));
    if let Some(first) = &findings.first_unreadable {
        sentences.push(format!("{} lines of watch.jsonl could not be read; {first}.", findings.unreadable_lines));
    }
    let figures = [rates(findings), against_rate(findings), states(recording)].into_iter().flatten().collect();
    let status = match run.record.status {
        Status::Complete => "complete",
        Status::Interrupted => "ended by a signal",
        Status::Running if run.is_abandoned() => "its process was killed; what was read is here",
        Status::Running => "still running",
    };
    let page = Page {
        frame: Frame::of(run, status.into(), &text::headline(run, findings), sentences),
        doubts: doubts(&run.record.doubts),
        figures_title: "Over time and over rate",
        figures: draw(figures, &mut 0),
        tables: findings.tables.tables.iter().map(table).collect(),
    };
    render("watch.html", &page, || text::run(run, findings))
}

fn table(table: &Table) -> TableText {
    let row = |(label, cells): &(String, Vec<super::tables::Cell>)| {
        (label.clone(), cells.iter().map(super::tables::Cell::words).collect())
    };
    TableText {
        title: table.title,
        note: table.note.clone(),
        columns: table.columns.clone(),
        rows: table.rows.iter().map(row).collect(),
    }
}

fn seconds(value: f64) -> String {
    if value >= 7200.0 { format!("{:.1} h", value / 3600.0) } else { format!("{value:.0} s") }
}

/// Averages neighbours until few enough points are left.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MOST_POINTS).max(1);
    points.chunks(size).map(|part| (part[0].0, part.iter().map(|(_, y)| y).sum::<f64>() / part.len() as f64)).collect()
}

fn rates(findings: &WatchFindings) -> Option<Figure> {
    let found = findings.stalls.as_ref().ok()?;
    let points = thinned(&found.rates);
    let ends = points.iter().map(|(x, _)| *x).chain([findings.seconds]);
    let mut chart = Chart::empty(
        "requests per second over time",
        "time since the watch began",
        "requests per second",
        Scale::linear(ends, seconds),
        Scale::linear(points.iter().map(|(_, y)| *y), format_si),
    );
    chart.description = super::stalls::sentences(found).join(" ");
    chart.bands = found
        .stalls
        .iter()
        .take(MOST_BANDS)
        .map(|stall| Band { name: "", class: "failure", range: (stall.at_s, stall.at_s + stall.length_s) })
        .collect();
    chart.series.push(Series { class: "s1", line: points, ..Series::default() });
    let caption = match found.rates.len().div_ceil(MOST_POINTS) {
        0 | 1 => "Counted, each reading".to_string(),
        size => format!("Counted; means of {size} readings"),
    };
    Some(Figure {
        title: "Requests per second",
        caption: format!("{caption}. Shaded: stalls. After Banga and Mogul (1998), Figure 11."),
        chart,
    })
}

fn against_rate(findings: &WatchFindings) -> Option<Figure> {
    let lines = findings.lines.as_ref().ok()?;
    let windows = &lines.windows;
    let most = windows.iter().map(|window| window.rate_per_sec).fold(0.0, f64::max);
    let values = windows.iter().flat_map(|w| [w.idle_cpus.unwrap_or(0.0), w.user_cpus, w.kernel_cpus]);
    let mut chart = Chart::empty(
        "CPU time against request rate",
        "requests per second",
        "CPUs",
        Scale::linear(windows.iter().map(|window| window.rate_per_sec), format_si),
        Scale::linear(values, |cpus| format!("{cpus:.2}")),
    );
    chart.description = super::lines::sentences(lines).join(" ");
    let mut add = |name: &str, class: &'static str, line: &Line, value: &dyn Fn(&Window) -> Option<f64>| {
        let y = |x: f64| (line.intercept.value + line.slope.value * x).max(0.0);
        chart.series.push(Series {
            name: name.into(),
            class,
            line: vec![(0.0, y(0.0)), (most, y(most))],
            dots: windows.iter().filter_map(|window| Some((window.rate_per_sec, value(window)?))).collect(),
            is_reference: false,
        });
    };
    if let Some(idle) = &lines.idle {
        add("idle", "s3", idle, &|window| window.idle_cpus);
    }
    add("kernel", "s2", &lines.kernel, &|window| Some(window.kernel_cpus));
    add("user", "s1", &lines.user, &|window| Some(window.user_cpus));
    let of =
        if lines.cpus > 0 { format!("the machine's {} CPUs", lines.cpus) } else { "the server's processes".into() };
    Some(Figure {
        title: "CPU time against request rate",
        caption: format!(
            "Of {of}, counted; a dot is a window of {:.0} s (n = {}), lines by least squares. After Banga and Mogul (1998), Figure 12.",
            lines.window_s,
            windows.len()
        ),
        chart,
    })
}

fn states(recording: &Recording) -> Option<Figure> {
    let classes = ["s1", "s2", "s3", "s4"];
    let wanted = ["ESTABLISHED", "TIME_WAIT", "SYN_RECV", "CLOSE_WAIT"];
    let samples = &recording.samples;
    let has = |name: &str| samples.iter().any(|s| s.states.keys().any(|key| is_state(key, name)));
    let series: Vec<Series> = wanted
        .iter()
        .zip(classes)
        .filter(|(name, _)| has(name))
        .map(|(name, class)| {
            let count = |sample: &super::recording::Sample| {
                sample.states.iter().filter(|(key, _)| is_state(key, name)).map(|(_, n)| *n as f64).sum()
            };
            let points: Vec<(f64, f64)> = samples.iter().map(|sample| (sample.seconds, count(sample))).collect();
            Series { name: name.to_lowercase().replace('_', " "), class, line: thinned(&points), ..Series::default() }
        })
        .collect();
    if series.is_empty() || samples.len() < 2 {
        return None;
    }
    let all = || series.iter().flat_map(|series| series.line.iter());
    let mut chart = Chart::empty(
        "connections by state over time",
        "time since the watch began",
        "sockets",
        Scale::linear(all().map(|(x, _)| *x), seconds),
        Scale::linear(all().map(|(_, y)| *y), format_si),
    );
    chart.series = series;
    Some(Figure {
        title: "Connections by state",
        caption: "Counted at each transition; TIME_WAIT is modelled and corrected by scans.".into(),
        chart,
    })
}

/// States are written as the kernel writes them or in small letters.
fn is_state(key: &str, name: &str) -> bool {
    key.eq_ignore_ascii_case(name) || key.replace(['-', ' '], "_").eq_ignore_ascii_case(name)
}
