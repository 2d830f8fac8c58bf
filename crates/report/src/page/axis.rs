//! The section of an axis: charts with intervals over repeats, and its table.

use super::charts::{self, CaptionedChart};
use super::{KeyNumber, Section, draw, layers, loads, watched};
use crate::chart::{Chart, ChartLayer, ChartSeries, Mark, MeasuredLoad, Scale, shaded};
use crate::run::axis::{COLUMNS, has_columns};
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::axis::{AxisFindings, AxisLevel, value_cell, value_words};
use analyze::zones::percent;
use record::units::{format_nanos, format_si};
use record::{Axis, Estimate, Point, RunDir, Sweep, names};

/// A line: name, class, the median at a level, and the figure for the dots.
type AxisLine = (&'static str, &'static str, fn(&AxisLevel) -> Option<Estimate>, &'static str);

pub(super) fn section(run: &RunDir, axis: &AxisFindings, counter: &mut usize) -> Section {
    let profiled = axis.layers.as_ref();
    let mut figures: Vec<CaptionedChart> = profiled.map(|found| layers::figures(axis, found)).unwrap_or_default();
    let others = [conforming(run, axis), throughput(run, axis), cpu(run, axis), response(run, axis)];
    figures.extend(others.into_iter().flatten());
    let mut tables = Vec::from_iter(has_columns(axis).then(|| table(axis)));
    tables.extend(watched::tables(run, Sweep::Axis));
    tables.extend(profiled.into_iter().flat_map(|found| layers::tables(axis, found)));
    Section {
        title: match axis.axis {
            Axis::Connections => "Axis: connections",
            Axis::Rate => "Axis: offered rate",
            Axis::InFlight => "Axis: requests in flight",
            Axis::Cold => "Axis: cold connections",
            Axis::Conforming => "Axis: conforming connections",
            Axis::TimeWait => "Axis: TIME_WAIT sockets",
            Axis::Delay => "Axis: delay",
            Axis::Cpus => "Axis: CPUs of the server",
            Axis::SlowDown | Axis::Other => "Axis",
        },
        note: unbroken(&format!(
            "One quantity was varied, all others held; {} repeats, each in random order. {}",
            axis.repeats,
            analyze::axis::headline(axis).unwrap_or_default()
        )),
        figures: draw(figures, counter),
        tables,
        loads: loads::of_axis(
            run,
            axis.axis,
            axis.levels.iter().map(|level| (level.value, value_words(level.value, axis.axis))),
        ),
        ..Section::default()
    }
}

pub(super) fn key_numbers(axis: &AxisFindings) -> Vec<KeyNumber> {
    let changes = axis.layers.iter().flat_map(|layers| &layers.changes);
    let named = changes.filter_map(|change| {
        let name = match change.layer.as_str() {
            analyze::axis::layers::OVERALL => "stack per packet",
            "TCP" => "TCP per packet",
            "System Call" => "system call per packet",
            _ => return None,
        };
        let last = axis.levels.last()?;
        let detail = format!("{:.2} at {}", change.us.to, value_words(last.value, axis.axis));
        Some(KeyNumber { name, value: format!("{:.2}", change.us.from), unit: "us", interval: String::new(), detail })
    });
    named.collect()
}

pub(crate) fn table(axis: &AxisFindings) -> Table {
    let shown: Vec<_> =
        COLUMNS.iter().filter(|(.., words)| axis.levels.iter().any(|level| !words(level).is_empty())).collect();
    let row = |level: &AxisLevel| {
        let value = value_cell(level.value, axis.axis);
        std::iter::once(value).chain(shown.iter().map(|(.., words)| words(level))).collect()
    };
    Table::titled(
        axis.slowed.map_or("", analyze::axis::slowed_words),
        std::iter::once((axis.axis.word(), "")).chain(shown.iter().map(|(name, unit, _)| (*name, *unit))),
        axis.levels.iter().map(row).collect(),
        "Medians over repeats; the interval behind a column is the median's 95 % bootstrap interval.",
    )
}

/// Logarithmic if the values span a factor of at least eight, else linear.
pub(super) fn x_scale(axis: &AxisFindings) -> Scale {
    let values = || axis.levels.iter().map(|level| level.value);
    let (low, high) = values().fold((f64::MAX, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    match axis.axis {
        Axis::Rate => Scale::linear(values(), format_si),
        Axis::Delay | Axis::SlowDown => Scale::linear(values(), format_nanos),
        _ if low > 0.0 && high / low >= 8.0 => Scale::doublings(values()),
        _ => Scale::linear(values(), number),
    }
}

fn dots(run: &RunDir, axis: Axis, name: &str) -> Vec<Mark> {
    let value = |point: &Point| {
        if name == names::SERVER_CPU { analyze::zones::cpu_us(point) } else { point.value(name) }
    };
    run.points
        .iter()
        .filter(|point| point.sweep == Sweep::Axis)
        .filter_map(|point| {
            Some(charts::dot(point, point.axis.filter(|place| place.axis == axis)?.value, value(point)?, name))
        })
        .filter(|mark| mark.x.is_finite() && mark.y.is_finite())
        .collect()
}

pub(super) fn mark(x: f64, found: &Estimate) -> Mark {
    Mark { x, y: found.value, interval: found.interval(), n: Some(found.n), ..Mark::default() }
}

fn chart(
    run: &RunDir,
    axis: &AxisFindings,
    what: &str,
    y_name: &str,
    words: Option<fn(f64) -> String>,
    lines: &[AxisLine],
) -> Option<Chart> {
    let mut layers = Vec::new();
    let mut series = Vec::new();
    for (name, class, level, figure) in lines {
        let found: Vec<(f64, Estimate)> = axis.levels.iter().filter_map(|at| Some((at.value, level(at)?))).collect();
        if found.is_empty() {
            continue;
        }
        let (layer, shown) = with_intervals(&found, name, class);
        layers.extend(layer);
        series.push(ChartSeries { dots: dots(run, axis.axis, figure), ..shown });
    }
    if series.is_empty() {
        return None;
    }
    let shown = series.iter().flat_map(ChartSeries::ys);
    let y = match words {
        Some(words) => Scale::linear(shown, words),
        None => Scale::times_us(shown),
    };
    Some(Chart { layers, series, ..frame(axis, what, y_name, y) })
}

/// The line of medians, and the area of their intervals if all have one.
pub(super) fn with_intervals(
    found: &[(f64, Estimate)],
    name: &str,
    class: &'static str,
) -> (Option<ChartLayer>, ChartSeries) {
    let line: Vec<Mark> = found.iter().map(|(value, estimate)| mark(*value, estimate)).collect();
    (shaded(&line, class), ChartSeries { name: name.into(), class, line, ..ChartSeries::default() })
}

pub(super) fn frame(axis: &AxisFindings, what: &str, y_name: &str, y: Scale) -> Chart {
    let (title, x_name) = (format!("{what} against {}", axis.axis.name()), axis.axis.name());
    let description = analyze::axis::headline(axis).unwrap_or_default();
    let load =
        |level: &AxisLevel| MeasuredLoad { x: level.value, points: 0, link: loads::id(Sweep::Axis, level.value) };
    Chart {
        description,
        loads: axis.levels.iter().map(load).collect(),
        origin: "median of points",
        interval_name: "95 % interval",
        ..Chart::empty(&title, x_name, y_name, x_scale(axis), y)
    }
}

const CAPTION: &str = "Dots: points; line: median over repeats; shaded: its 95 % interval.";

fn figure(title: &'static str, more: &str, chart: Chart) -> CaptionedChart {
    CaptionedChart { title, caption: format!("{CAPTION}{more}"), chart }
}

fn throughput(run: &RunDir, axis: &AxisFindings) -> Option<CaptionedChart> {
    let line: AxisLine = ("", "s1", |level| level.goodput_per_sec, names::GOODPUT);
    let mut chart = chart(run, axis, "Goodput", "good responses per second", Some(format_si), &[line])?;
    let mut more = "";
    if axis.axis == Axis::Rate {
        let all = charts::all_offered(chart.series.iter().flat_map(|series| &series.line));
        chart.series.push(all);
        more = " Dashed: all offered requests are answered.";
    }
    Some(figure("Goodput", more, chart))
}

fn cpu(run: &RunDir, axis: &AxisFindings) -> Option<CaptionedChart> {
    let line: AxisLine = ("", "s2", |level| level.cpu_us_per_request, names::SERVER_CPU);
    let chart = chart(run, axis, "CPU per request", "server CPU, us per request", Some(number), &[line])?;
    Some(figure("CPU time per request", " The server group's CPU and the softirq time of its CPUs.", chart))
}

fn response(run: &RunDir, axis: &AxisFindings) -> Option<CaptionedChart> {
    let lines: [AxisLine; 2] = [
        ("p50", "s3", |level| level.response_p50_us, names::RESPONSE_P50),
        ("p99", "s4", |level| level.response_p99_us, names::RESPONSE_P99),
    ];
    let chart = chart(run, axis, "Response time", "response time, logarithmic scale", None, &lines)?;
    Some(figure("Response time", "", chart))
}

fn conforming(run: &RunDir, axis: &AxisFindings) -> Option<CaptionedChart> {
    let line: AxisLine = ("", "s3", |level| level.conforming_ratio, names::CONFORMING);
    let chart = chart(run, axis, "Conforming connections", "share of connections", Some(percent), &[line])?;
    Some(figure("Conforming connections", " A connection conforms if it gets the demanded bandwidth.", chart))
}
