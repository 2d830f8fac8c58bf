//! Trends: figures of the runs of one scenario over time.

use super::shown;
use crate::chart::{Chart, ChartSeries, Mark, Marker, Scale, shaded};
use crate::page::CaptionedChart;
use crate::text::number;
use record::units::{format_nanos, format_si};
use verdict::index::RunRow;

const MINUTE_MS: f64 = 60e3;
const HOUR_MS: f64 = 60.0 * MINUTE_MS;
const DAY_MS: f64 = 24.0 * HOUR_MS;
/// With more markers than this, only worse runs are marked.
const MOST_MARKERS: usize = 12;

/// The time axis: time since the first run, in a suitable unit.
struct TimeAxis {
    first_ms: u64,
    unit_ms: f64,
    unit: &'static str,
}

impl TimeAxis {
    fn new(runs: &[&RunRow]) -> TimeAxis {
        let (first_ms, last_ms) = (runs[0].started_unix_ms, runs[runs.len() - 1].started_unix_ms);
        let span = last_ms.saturating_sub(first_ms) as f64;
        let (unit_ms, unit) = match span {
            span if span < 3.0 * HOUR_MS => (MINUTE_MS, "minutes"),
            span if span < 3.0 * DAY_MS => (HOUR_MS, "hours"),
            _ => (DAY_MS, "days"),
        };
        TimeAxis { first_ms, unit_ms, unit }
    }

    fn at(&self, row: &RunRow) -> f64 {
        row.started_unix_ms.saturating_sub(self.first_ms) as f64 / self.unit_ms
    }
}

/// A figure of a run, and its interval.
type TrendValue = (f64, Option<(f64, f64)>);

struct TrendLine {
    title: &'static str,
    y_name: &'static str,
    unit: &'static str,
    class: &'static str,
    of: fn(&RunRow) -> Option<TrendValue>,
    words: fn(f64) -> String,
}

/// The charts of one scenario; `runs` are in ascending order.
pub(super) fn figures(runs: &[&RunRow]) -> Vec<CaptionedChart> {
    let lines = [
        TrendLine {
            title: "Plan for",
            y_name: "requests per second",
            unit: "1/s",
            class: "s1",
            of: |row| {
                let plan = row.answer.as_ref()?.plan_per_sec?;
                Some((plan.value, plan.interval()))
            },
            words: format_si,
        },
        TrendLine {
            title: "Peak throughput",
            y_name: "requests per second",
            unit: "1/s",
            class: "s2",
            of: |row| row.peak.map(|peak| (peak.per_sec, peak.low.zip(peak.high))),
            words: format_si,
        },
        TrendLine {
            title: "Response time, p99",
            y_name: "at the yield point, or at the peak without one",
            unit: "us",
            class: "s4",
            of: |row| row.response_p99_us.map(|us| (us, None)),
            words: |us| format_nanos(us * 1e3),
        },
        TrendLine {
            title: "CPU per request",
            y_name: "server CPU at the same load, us per request",
            unit: "us",
            class: "s3",
            of: |row| row.cpu_us_per_request.map(|us| (us, None)),
            words: number,
        },
    ];
    let time = TimeAxis::new(runs);
    lines.iter().filter_map(|line| figure(runs, &time, line)).collect()
}

fn figure(runs: &[&RunRow], time: &TimeAxis, line: &TrendLine) -> Option<CaptionedChart> {
    let mark = |row: &&RunRow| {
        let (value, interval) = (line.of)(row).filter(|(value, _)| value.is_finite())?;
        Some(Mark { interval, ..(time.at(row), value).into() })
    };
    let marks: Vec<Mark> = runs.iter().filter_map(mark).collect();
    if marks.len() < 2 {
        return None;
    }
    let ends = marks.iter().filter_map(|mark| Some(mark.interval?.1));
    let highest = ends.chain(marks.iter().map(|mark| mark.y));
    let y = Scale::linear(highest, line.words);
    let x = Scale::linear(runs.iter().map(|row| time.at(row)), number);
    let began = super::began(runs[0]);
    let x_name = format!("{} since {began} UTC", time.unit);
    let mut chart = Chart::empty(&format!("{} over time", line.title), &x_name, line.y_name, x, y);
    chart.description = description(runs, line);
    chart.markers = markers(runs, time);
    chart.layers.extend(shaded(&marks, line.class));
    let area = if chart.layers.is_empty() { "" } else { " Shaded: the interval." };
    chart.series = vec![ChartSeries { class: line.class, line: marks, is_dotted: true, ..ChartSeries::default() }];
    (chart.unit, chart.interval_name) = (line.unit, "interval");
    Some(CaptionedChart {
        title: line.title,
        caption: format!("Dots: runs.{area} Marked: worse runs, new versions."),
        chart,
    })
}

/// The values in words, for screen readers.
fn description(runs: &[&RunRow], line: &TrendLine) -> String {
    let words = |row: &&RunRow| {
        let value = (line.words)((line.of)(row)?.0);
        let worse = row.before.as_ref().filter(|before| before.is_worse());
        Some(format!("{} {value}{}", super::began(row), if worse.is_some() { ", worse" } else { "" }))
    };
    runs.iter().filter_map(words).collect::<Vec<_>>().join("; ")
}

/// Marks runs that are worse than the preceding one, and changes of versions.
fn markers(runs: &[&RunRow], time: &TimeAxis) -> Vec<Marker> {
    let mut marked = Vec::new();
    for (at, row) in runs.iter().enumerate() {
        let is_worse = row.before.as_ref().is_some_and(|before| before.is_worse());
        let version = at.checked_sub(1).and_then(|earlier| changed(runs[earlier], row));
        marked.push((time.at(row), is_worse, version));
    }
    let all = marked.iter().filter(|(_, is_worse, version)| *is_worse || version.is_some()).count();
    let has_versions = all <= MOST_MARKERS;
    let marker = |(at, is_worse, version): (f64, bool, Option<String>)| {
        let words = is_worse.then(|| "worse".to_string()).into_iter().chain(version.filter(|_| has_versions));
        let label = words.collect::<Vec<_>>().join(", ");
        (!label.is_empty()).then_some(Marker { label, at, interval: (Some(at), Some(at)) })
    };
    let markers: Vec<Marker> = marked.into_iter().filter_map(marker).collect();
    markers[markers.len().saturating_sub(4 * MOST_MARKERS)..].to_vec()
}

/// The first version that changed, e.g. `kernel 6.12`.
pub(super) fn changed(earlier: &RunRow, row: &RunRow) -> Option<String> {
    let of_earlier = |what: &str| earlier.versions.iter().find(|(name, _)| *name == what).map(|(_, version)| version);
    let is_new = |(what, version): &&(&'static str, String)| of_earlier(what).is_some_and(|other| other != version);
    let (what, version) = row.versions.iter().find(is_new)?;
    let version = shown(std::path::Path::new(version));
    Some(match *what {
        "server" => version,
        what => format!("{what} {version}"),
    })
}
