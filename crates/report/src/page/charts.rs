//! The charts of a sweep with zones and points: throughput, response times, CPU per request, connection states.

use super::{axis, loads};
use crate::chart::{Band, Chart, ChartLayer, ChartSeries, LimitLine, Mark, Marker, MeasuredLoad, Scale, stacked, tops};
use crate::text::number;
use analyze::growth::LAYERS;
use analyze::zones::unloading::{Unloading, UnloadingLevel};
use analyze::zones::{Findings, Level, PointFinding, Spread, SweepFindings, Zone, cpu_us, good_per_sec, reduced};
use analyze::zones::{estimate_number, estimate_words, interval};
use record::units::{format_nanos, format_si};
use record::{Criteria, Estimate, Origin, Point, RunDir, Sweep, names};
use std::collections::BTreeSet;

/// A chart with its title and caption.
pub struct CaptionedChart {
    /// Its title.
    pub title: &'static str,
    /// Text below the chart.
    pub caption: String,
    /// The chart.
    pub chart: Chart,
}

pub(super) fn of_sweep(run: &RunDir, sweep: &SweepFindings, findings: &Findings) -> Vec<CaptionedChart> {
    let (criteria, unloaded) = (&findings.criteria, findings.unloading.as_ref());
    let points = points_of(run, sweep.sweep);
    let all = [
        account(run, sweep),
        throughput(sweep, &points),
        unloading(run, sweep, unloaded),
        response(sweep, &points, criteria),
        cpu(sweep, &points),
        stack_layers(sweep, &points),
        states(sweep, &points),
    ];
    all.into_iter().flatten().collect()
}

/// The line on which the whole offered load is answered.
pub(super) fn all_offered<'m>(marks: impl Iterator<Item = &'m Mark>) -> ChartSeries {
    let top = marks.map(|mark| mark.x.min(mark.y * 1.05)).fold(0.0, f64::max);
    let line = vec![(0.0, 0.0).into(), (top, top).into()];
    ChartSeries { class: "offered", line, is_reference: true, ..ChartSeries::default() }
}

pub(super) fn points_of(run: &RunDir, sweep: Sweep) -> Vec<&Point> {
    run.points.iter().filter(|point| point.sweep == sweep).collect()
}

pub(super) fn dots(points: &[&Point], name: &str, value: impl Fn(&Point) -> Option<f64>) -> Vec<Mark> {
    let dot = |point: &&Point| Some(dot(point, point.load(), value(point)?, name));
    points.iter().filter_map(dot).filter(|mark| mark.x.is_finite() && mark.y.is_finite()).collect()
}

/// A point's value, with the count and origin of figure `name`.
pub(super) fn dot(point: &Point, x: f64, y: f64, name: &str) -> Mark {
    let figure = point.figures.get(name);
    let origin = figure.and_then(|figure| figure.origin).map_or("", Origin::word);
    Mark { x, y, interval: None, n: figure.and_then(|figure| figure.n), origin, point: Some(point.index) }
}

/// The median at a load, with the range of its points.
fn median(load: f64, spread: Spread) -> Mark {
    let interval = (spread.n > 1).then_some((spread.min, spread.max));
    Mark { x: load, y: spread.median, interval, n: Some(spread.n), origin: "", point: None }
}

pub(super) fn medians(sweep: &SweepFindings, spread: impl Fn(&Level) -> Option<Spread>) -> Vec<Mark> {
    sweep.levels.iter().filter_map(|level| Some(median(level.load, spread(level)?))).collect()
}

/// Medians over the levels, for a figure that the levels lack.
pub(super) fn medians_of(sweep: &SweepFindings, points: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> Vec<Mark> {
    let at_level = |level: &Level| {
        let same: Vec<&Point> = points.iter().filter(|point| point.load() == level.load).copied().collect();
        Some(median(level.load, reduced(&same, &value)?))
    };
    sweep.levels.iter().filter_map(at_level).collect()
}

/// An empty chart over the load, with the sweep's zones and points.
pub(super) fn frame(sweep: &SweepFindings, title: &str, y_name: &str, y: Scale) -> Chart {
    let x = load_scale(sweep.sweep, sweep.levels.iter().map(|level| level.load));
    let title = format!("{title} against {}", load_name(sweep.sweep));
    let (description, bands, markers) = (describe(sweep), bands(sweep), markers(sweep));
    let link =
        |level: &Level| MeasuredLoad { x: level.load, points: level.points, link: loads::id(sweep.sweep, level.load) };
    let loads = sweep.levels.iter().map(link).collect();
    Chart {
        description,
        bands,
        markers,
        loads,
        origin: "median of points",
        ..Chart::empty(&title, load_axis(sweep.sweep), y_name, x, y)
    }
}

pub(super) fn load_scale(sweep: Sweep, loads: impl Iterator<Item = f64>) -> Scale {
    if sweep == Sweep::Rate { Scale::linear(loads, format_si) } else { Scale::doublings(loads) }
}

pub(super) fn load_axis(sweep: Sweep) -> &'static str {
    if sweep == Sweep::Rate { "offered load, requests per second" } else { "connections" }
}

pub(super) fn load_name(sweep: Sweep) -> &'static str {
    if sweep == Sweep::Rate { "offered rate" } else { "connections" }
}

/// A figure with `parts` stacked by [`stacked`]; `None` if they are unknown.
pub(super) fn stacked_figure<N: Into<String>>(
    sweep: &SweepFindings,
    title: &'static str,
    y_name: &str,
    words: fn(f64) -> String,
    parts: impl IntoIterator<Item = (N, &'static str, Vec<Option<f64>>)>,
) -> Option<CaptionedChart> {
    let layers = stacked(&loads(sweep), parts);
    if layers.iter().all(|layer| layer.edges.is_empty()) {
        return None;
    }
    let mut chart = frame(sweep, title, y_name, Scale::linear(tops(&layers), words));
    (chart.layers, chart.unit) = (layers, "us/request");
    Some(CaptionedChart { title, caption: String::new(), chart })
}

fn describe(sweep: &SweepFindings) -> String {
    let sentence = |name: &str, point: &PointFinding| match estimate_words(point, sweep.sweep) {
        Some(words) => format!("{name}: about {words}. "),
        None => format!("{name}: none, {}. ", point.reason),
    };
    format!("{}{}", sentence("Yield point", &sweep.yield_point), sentence("Failure point", &sweep.failure_point))
}

fn bands(sweep: &SweepFindings) -> Vec<Band> {
    let (Some(first), Some(last)) = (sweep.levels.first(), sweep.levels.last()) else { return Vec::new() };
    let start = if sweep.sweep == Sweep::Rate { 0.0 } else { first.load };
    let failure = sweep.failure_point.estimate.or(match first.zone {
        Zone::Failure => Some(start),
        _ => None,
    });
    let unknown = sweep.levels.iter().find(|level| level.zone == Zone::Unknown).map(|level| level.load);
    let plastic = match first.zone {
        Zone::Plastic => Some(start),
        _ => sweep.yield_point.estimate,
    };
    let end = if sweep.sweep == Sweep::Rate { last.load * 1.08 } else { last.load };
    let mut starts = vec![("elastic", "elastic", start)];
    starts.extend(plastic.map(|at| ("plastic", "plastic", at)));
    starts.extend(unknown.map(|at| ("client's limit", "unknown", at)));
    starts.extend(failure.map(|at| ("failure", "failure", at)));
    // A zone ends where the next one begins. One that begins after the next has no width.
    let mut bands = Vec::new();
    for (at, (name, class, from)) in starts.iter().enumerate() {
        let to = starts[at + 1..].iter().map(|(.., next)| *next).fold(end, f64::min);
        if to > *from {
            bands.push(Band { name, class, range: *from..to, least_px: 0.0 });
        }
    }
    bands
}

fn markers(sweep: &SweepFindings) -> Vec<Marker> {
    let points = [("yield", &sweep.yield_point), ("failure", &sweep.failure_point)];
    points.into_iter().filter_map(|(name, point)| marker(name, point, sweep.sweep)).collect()
}

fn marker(name: &str, point: &PointFinding, sweep: Sweep) -> Option<Marker> {
    let number = estimate_number(point, sweep)?;
    let label = format!("{name} {number}{}", interval(point, sweep).replace(" to ", "\u{2013}"));
    Some(Marker { label, at: point.estimate?, interval: (point.low, point.high) })
}

fn throughput(sweep: &SweepFindings, points: &[&Point]) -> Option<CaptionedChart> {
    let measured = dots(points, names::THROUGHPUT, good_per_sec);
    if measured.is_empty() {
        return None;
    }
    let y = Scale::linear(measured.iter().map(|mark| mark.y), format_si);
    let mut chart = frame(sweep, "Throughput", "good answers per second", y);
    chart.unit = "1/s";
    if sweep.sweep == Sweep::Rate {
        chart.series.push(all_offered(measured.iter()));
    }
    chart.series.push(ChartSeries {
        class: "s1",
        line: medians(sweep, |level| level.throughput_per_sec),
        dots: measured,
        ..ChartSeries::default()
    });
    let caption = if sweep.sweep == Sweep::Rate {
        "Dots: points; line: median of the points that count, as in the table; dashed: all offered requests are \
         answered."
    } else {
        "Dots: points; line: median of the points that count, as in the table."
    };
    Some(CaptionedChart { title: "Throughput", caption: caption.into(), chart })
}

/// Throughput on the way up and down (a hysteresis loop).
fn unloading(run: &RunDir, sweep: &SweepFindings, unloading: Option<&Unloading>) -> Option<CaptionedChart> {
    let found = unloading.filter(|_| sweep.sweep == Sweep::Connections)?;
    let good = good_per_sec;
    // Points of the first pass are too short to compare, unless only they show the throughput before the fall.
    let is_shown = |point: &&Point| point.repeat > 0 || found.never_back;
    let whole = |sweep: Sweep| points_of(run, sweep).into_iter().filter(is_shown).collect::<Vec<_>>();
    let way = |pick: fn(&UnloadingLevel) -> Option<Estimate>| -> Vec<Mark> {
        found.levels.iter().filter_map(|level| Some(axis::mark(level.load, &pick(level)?))).collect()
    };
    let up_points = dots(&whole(Sweep::Connections), names::GOODPUT, good);
    let down_points = dots(&whole(Sweep::Unloading), names::GOODPUT, good);
    let mut up = way(|level| level.loading_per_sec);
    let mut down = way(|level| level.unloading_per_sec);
    // The highest load was measured once, at the turn, where both lines meet.
    let highest = down.last()?.x;
    let top = up_points.iter().filter(|mark| mark.x > highest).map(|mark| mark.y);
    let turn = up_points.iter().map(|mark| mark.x).fold(highest, f64::max);
    if let Some(rate) = statistics::median(top) {
        up.push((turn, rate).into());
        down.push((turn, rate).into());
    }
    let y = Scale::linear(up_points.iter().chain(&down_points).map(|mark| mark.y), format_si);
    let mut chart = frame(sweep, "Loading and unloading", "good answers per second", y);
    (chart.unit, chart.interval_name) = ("1/s", "95 % interval");
    for (name, class, line, dots) in [("up", "s1", up, up_points), ("down", "s2", down, down_points)] {
        chart.series.push(ChartSeries { name: name.into(), class, line, dots, ..ChartSeries::default() });
    }
    if let Some(recovery) = marker("recovery", &found.recovery_point, Sweep::Connections) {
        chart.markers = vec![recovery];
    }
    let caption = format!("Loads going up and then down on the same server; lines are medians. {}", found.sentence());
    Some(CaptionedChart { title: "Loading and unloading", caption, chart })
}

fn response(sweep: &SweepFindings, points: &[&Point], criteria: &Criteria) -> Option<CaptionedChart> {
    let shown = [
        ("p50", "p50", names::RESPONSE_P50),
        ("p90", "p90", names::RESPONSE_P90),
        ("p99", "p99", names::RESPONSE_P99),
        ("p99.9", "p999", names::RESPONSE_P999),
    ];
    // The same figure for a client without reap delay.
    let without_reap =
        [("p50", "p50 without reap delay", names::ARRIVED_P50), ("p99", "p99 without reap delay", names::ARRIVED_P99)];
    let line = |figure| medians_of(sweep, points, |point| point.value(figure));
    let measured = shown.into_iter().map(|(name, class, figure)| ChartSeries {
        name: name.into(),
        class,
        line: line(figure),
        dots: if class == "p99" { dots(points, figure, |point| point.value(figure)) } else { Vec::new() },
        ..ChartSeries::default()
    });
    let references = without_reap.into_iter().map(|(class, long_name, figure)| ChartSeries {
        class,
        long_name,
        line: line(figure),
        is_reference: true,
        ..ChartSeries::default()
    });
    let series: Vec<ChartSeries> = measured.chain(references).filter(|series| !series.line.is_empty()).collect();
    let has_reap = series.iter().any(|series| series.is_reference);
    if series.is_empty() {
        return None;
    }
    let limit_us = criteria.p99_limit_ns as f64 / 1e3;
    let all: Vec<f64> = series.iter().flat_map(ChartSeries::ys).collect();
    // A limit far above the curves would flatten them.
    let largest = all.iter().copied().fold(0.0, f64::max);
    let near = Some(limit_us).filter(|limit| *limit <= largest * 30.0);
    let y = Scale::times_us(all.into_iter().chain(near));
    let mut chart = frame(sweep, "Response time", "logarithmic scale", y);
    (chart.series, chart.unit, chart.origin) = (series, "us", "timed, median of points");
    let label = format!("limit for p99: {}", format_nanos(criteria.p99_limit_ns as f64));
    chart.limits.extend(near.map(|at| LimitLine { label, at }));
    let lag =
        if sweep.sweep == Sweep::Rate { " Times count from the intended send, so they include lateness." } else { "" };
    let reap = if has_reap {
        " Dashed: without the reap delay, as seen by a client that reads every answer at once (from a sample)."
    } else {
        ""
    };
    let caption = format!("Medians of each percentile over the points that count; dots: p99 of each point.{lag}{reap}");
    Some(CaptionedChart { title: "Response time", caption, chart })
}

fn cpu(sweep: &SweepFindings, points: &[&Point]) -> Option<CaptionedChart> {
    let total = medians(sweep, |level| level.cpu_us_per_request);
    if total.is_empty() {
        return None;
    }
    let measured = dots(points, names::SERVER_CPU, cpu_us);
    let y = Scale::linear(measured.iter().chain(&total).map(|mark| mark.y), number);
    let mut chart = frame(sweep, "CPU time per request", "server CPU, us per request", y);
    (chart.unit, chart.layers) = ("us/request", layers(sweep));
    let name = if chart.layers.is_empty() { "total".to_string() } else { String::new() };
    chart.series.push(ChartSeries {
        name,
        class: "total",
        long_name: "total",
        line: total,
        dots: measured,
        ..ChartSeries::default()
    });
    let caption = if chart.layers.is_empty() {
        "The server group's CPU time (scheduler's account) per completed request."
    } else {
        "The server group's user and system time, and the softirq time of its CPUs, per completed request; dots: \
         totals of each point."
    };
    Some(CaptionedChart { title: "CPU time per request", caption: caption.into(), chart })
}

fn layers(sweep: &SweepFindings) -> Vec<ChartLayer> {
    type CpuOfLevel = fn(&Level) -> Option<Spread>;
    let parts: [(&str, &'static str, CpuOfLevel); 3] = [
        ("user", "user", |level| level.cpu_user_us_per_request),
        ("system", "system", |level| level.cpu_system_us_per_request),
        ("softirq", "softirq", |level| level.softirq_us_per_request),
    ];
    let parts = parts.map(|(name, class, part)| {
        let values = sweep.levels.iter().map(|level| part(level).map(|spread| spread.median)).collect();
        (name, class, values)
    });
    stacked(&loads(sweep), parts)
}

fn loads(sweep: &SweepFindings) -> Vec<f64> {
    sweep.levels.iter().map(|level| level.load).collect()
}

fn account(run: &RunDir, sweep: &SweepFindings) -> Option<CaptionedChart> {
    const CLASSES: [&str; 8] = ["n8", "n7", "n1", "n2", "n3", "n4", "n5", "n6"];
    let levels = analyze::account::levels(run, sweep);
    let mut names = crate::run::account::places(&levels);
    let us_at = |load: f64, wanted: &dyn Fn(&str) -> bool| {
        let requests = levels.iter().find(|level| level.load == load)?.requests.as_ref()?;
        Some(requests.places.iter().filter(|place| wanted(&place.name)).map(|place| place.us).sum::<f64>())
    };
    let most = |name: &String| {
        let us = sweep.levels.iter().filter_map(|level| us_at(level.load, &|of| of == name));
        us.fold(0.0, f64::max)
    };
    // The largest places keep their names, and the others are combined.
    let mut by_size: Vec<(f64, String)> = names.iter().map(|name| (most(name), name.clone())).collect();
    by_size.sort_by(|a, b| b.0.total_cmp(&a.0));
    let kept: Vec<String> = by_size.into_iter().take(CLASSES.len() - 1).map(|(_, name)| name).collect();
    names.retain(|name| kept.contains(name));
    let values = |wanted: &dyn Fn(&str) -> bool| sweep.levels.iter().map(|level| us_at(level.load, wanted)).collect();
    let other = ("other".to_string(), CLASSES[CLASSES.len() - 1], values(&|of| !names.iter().any(|name| name == of)));
    let named = names.iter().zip(CLASSES);
    let named = named.map(|(name, class)| (record::text::plain(name, 24), class, values(&|of| of == name)));
    let parts = named.chain([other]);
    let words = |us| format_nanos(us * 1e3);
    let mut figure = stacked_figure(sweep, "Where a request's time goes", "mean time of a request", words, parts)?;
    figure.chart.origin = "timed; mean of points";
    figure.caption = format!(
        "By Little's law: the mean number of requests in each place over the throughput; the sum is the mean response \
         time. Threads are timed at each switch, unread requests are sampled, and the rest is the remainder. At the \
         highest load, the threads' rows differ from their lifetimes by {}.",
        analyze::zones::percent(levels.last()?.open_ratio.abs())
    );
    Some(figure)
}

/// The server's CPU time by layer of the network stack, if points were profiled.
fn stack_layers(sweep: &SweepFindings, points: &[&Point]) -> Option<CaptionedChart> {
    const CLASSES: [&str; 8] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
    let at_level = |name: &'static str| -> Vec<Option<f64>> {
        let known = medians_of(sweep, points, |point| point.value(name));
        let at = |load: f64| known.iter().find(|mark| mark.x == load).map(|mark| mark.y);
        sweep.levels.iter().map(|level| at(level.load)).collect()
    };
    let parts = LAYERS.into_iter().zip(CLASSES).map(|((word, name), class)| (word, class, at_level(name)));
    let mut figure = stacked_figure(sweep, "CPU time by layer", "server CPU, us per request", number, parts)?;
    figure.chart.origin = "sampled, median of points";
    figure.caption =
        "Sampled stacks of the server's work in all processes, by layer of the network stack; medians over repeats."
            .into();
    Some(figure)
}

fn states(sweep: &SweepFindings, points: &[&Point]) -> Option<CaptionedChart> {
    const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.connection_states.keys()).collect();
    let value = |point: &Point, name: &str| point.connection_states.get(name).and_then(|figure| figure.value);
    let mut series: Vec<(f64, ChartSeries)> = names
        .into_iter()
        .map(|name| {
            let line: Vec<Mark> = medians_of(sweep, points, |point| value(point, name))
                .into_iter()
                .filter(|mark| mark.y >= 0.5)
                .collect();
            let largest = line.iter().map(|mark| mark.y).fold(0.0, f64::max);
            let short: String = record::text::plain(name, 14);
            (largest, ChartSeries { name: short, line, ..ChartSeries::default() })
        })
        .filter(|(_, series)| !series.line.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    series.sort_by(|a, b| b.0.total_cmp(&a.0));
    series.truncate(CLASSES.len());
    for ((_, series), class) in series.iter_mut().zip(CLASSES) {
        series.class = class;
    }
    let series: Vec<ChartSeries> = series.into_iter().map(|(_, series)| series).collect();
    let y = Scale::counts(series.iter().flat_map(ChartSeries::ys));
    let mut chart = frame(sweep, "Connection states", "sockets, logarithmic scale", y);
    (chart.series, chart.unit, chart.origin) = (series, "sockets", "sampled, median of points");
    let caption = "Sockets of the server's port by TCP state: means over each window's readings, medians over repeats.";
    Some(CaptionedChart { title: "Connection states", caption: caption.into(), chart })
}
