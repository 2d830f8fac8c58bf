//! The watch's figures for the points of a run, by load. A row has medians over the points of one load. A figure that
//! no point measured is absent; the most frequent reason is printed with the table.

use crate::point::by_load;
use crate::zones::{counted_at, reduced};
use record::units::{format_nanos, format_si, grouped};
use record::{Axis, Point, RunDir, Sweep, names};
use serde::Serialize;
use statistics::median;
use std::collections::{BTreeMap, BTreeSet};

const MOST_CLASS_ROWS: usize = 120;

/// A column: heading, unit, name of the figure, and its format.
pub type FigureColumn = (&'static str, &'static str, &'static str, fn(f64) -> String);

/// The columns of the table by load, after Table 5 of Almeida, Almeida and Yates (1996).
pub const COLUMNS: &[FigureColumn] = &[
    ("counted", "of the window", names::WATCH_COUNTED, whole_percent),
    ("req/s", "1/s", names::WATCH_RATE, format_si),
    ("client", "difference", names::WATCH_CLIENT_DIFFERENCE, percent_signed),
    ("elapsed", "mean", names::WATCH_ELAPSED, time),
    ("parse", "elapsed", names::WATCH_PARSE, time),
    ("process", "elapsed", names::WATCH_PROCESS, time),
    ("log", "elapsed", names::WATCH_LOG, time),
    ("CPU", "us/request", names::WATCH_CPU, us),
    ("parse", "us CPU", names::WATCH_PARSE_CPU, us),
    ("process", "us CPU", names::WATCH_PROCESS_CPU, us),
    ("log", "us CPU", names::WATCH_LOG_CPU, us),
    ("in flight", "requests", names::WATCH_IN_FLIGHT, us),
    ("cost", "of its CPU", names::WATCH_COST, percent),
];

/// The columns of the table by class: counts and service demands.
pub const CLASS_COLUMNS: &[FigureColumn] = &[
    ("req/s", "1/s", names::WATCH_RATE, format_si),
    ("in", "B/request", names::WATCH_BYTES_IN, grouped),
    ("out", "B/request", names::WATCH_BYTES_OUT, grouped),
    ("CPU user", "us", names::WATCH_CPU_USER, us),
    ("CPU system", "us", names::WATCH_CPU_SYSTEM, us),
    ("disk", "B", names::WATCH_DISK, grouped),
    ("elapsed", "mean", names::WATCH_ELAPSED, time),
    ("p99 <=", "elapsed", names::WATCH_ELAPSED_P99, time),
    ("parse", "us CPU", names::WATCH_PARSE_CPU, us),
    ("process", "us CPU", names::WATCH_PROCESS_CPU, us),
    ("log", "us CPU", names::WATCH_LOG_CPU, us),
];

fn us(value: f64) -> String {
    format!("{value:.1}")
}

fn time(us: f64) -> String {
    format_nanos(us * 1e3)
}

fn percent(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

fn whole_percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

fn percent_signed(ratio: f64) -> String {
    format!("{:+.2} %", ratio * 100.0)
}

/// Medians of a load, or of a load and a class, in the order of the columns; absent = not measured.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LoadMedians {
    /// The load: connections, offered requests per second, or the place on the axis.
    pub load: f64,
    /// The size class, in the table by class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Number of points used.
    pub points: u64,
    /// Medians by the name of the figure.
    pub medians: BTreeMap<&'static str, f64>,
}

/// The server's side of one sweep.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ServerSide {
    /// Sweep that the loads belong to.
    pub sweep: Sweep,
    /// The server's side by load, ascending.
    pub loads: Vec<LoadMedians>,
    /// Medians by load and class; empty if all requests belong to one class.
    pub classes: Vec<LoadMedians>,
    /// Most frequent reason why part of the server's side was not measured, with the numbers of points that have it
    /// and of all points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<(String, u64, u64)>,
}

/// Server side of every sweep of a run whose points were watched.
pub fn of_run(run: &RunDir) -> Vec<ServerSide> {
    [Sweep::Connections, Sweep::Rate, Sweep::Axis].into_iter().filter_map(|sweep| of_sweep(run, sweep)).collect()
}

/// Server side of one sweep; `None` if no point of it was watched.
pub fn of_sweep(run: &RunDir, sweep: Sweep) -> Option<ServerSide> {
    // Equal delays at different places are different loads.
    let is_slowed = |point: &Point| point.axis.is_some_and(|place| place.axis == Axis::SlowDown);
    let points: Vec<&Point> = run
        .points
        .iter()
        .filter(|point| point.sweep == sweep && point.watched.is_some() && !is_slowed(point))
        .collect();
    if points.is_empty() {
        return None;
    }
    let load = |point: &Point| if sweep == Sweep::Axis { Some(point.axis?.value) } else { Some(point.load()) };
    let loaded = points.iter().filter_map(|point| Some((load(point).filter(|load| load.is_finite())?, *point)));
    let by_load = by_load(loaded);
    let loads = by_load.iter().map(|(load, same)| of_load(*load, same)).collect();
    let mut classes: Vec<LoadMedians> = by_load.iter().flat_map(|(load, same)| of_classes(*load, same)).collect();
    let first = classes.first().map(|row| row.class.clone());
    if classes.iter().all(|row| Some(&row.class) == first.as_ref()) {
        classes.clear();
    }
    classes.truncate(MOST_CLASS_ROWS);
    Some(ServerSide { sweep, loads, classes, why_not: why_not(&points) })
}

fn of_load(load: f64, points: &[&Point]) -> LoadMedians {
    let mut medians = BTreeMap::new();
    for (.., name, _) in COLUMNS {
        medians.extend(reduced(points, |point| point.value(name)).map(|spread| (*name, spread.median)));
    }
    LoadMedians { load, class: None, points: counted_at(points).len() as u64, medians }
}

fn of_classes(load: f64, points: &[&Point]) -> Vec<LoadMedians> {
    let points = &counted_at(points);
    let classes = || points.iter().filter_map(|point| point.watched.as_ref()).flat_map(|watched| &watched.classes);
    // Classes are identified by bounds and name.
    let known: BTreeSet<(u64, &str)> = classes().map(|class| (class.from_bytes, class.name.as_str())).collect();
    known
        .into_iter()
        .map(|key| {
            let same = || classes().filter(|class| (class.from_bytes, class.name.as_str()) == key);
            let mut medians = BTreeMap::new();
            for (.., name, _) in CLASS_COLUMNS {
                let values = same().filter_map(|class| class.figures.value(name));
                medians.extend(median(values).map(|value| (*name, value)));
            }
            LoadMedians { load, class: Some(record::text::plain(key.1, 40)), points: same().count() as u64, medians }
        })
        .collect()
}

fn why_not(points: &[&Point]) -> Option<(String, u64, u64)> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for point in points {
        let of_figure = |name| point.figures.get(name).and_then(|figure| figure.not_measured.as_deref());
        let watched = point.watched.as_ref().and_then(|watched| watched.why_not.as_deref());
        if let Some(why) = watched.or_else(|| of_figure(names::WATCH_RATE)).or_else(|| of_figure(names::WATCH_PARSE)) {
            *reasons.entry(why).or_default() += 1;
        }
    }
    let (why, count) = reasons.into_iter().max_by_key(|(_, count)| *count)?;
    Some((record::text::plain(why, 300), count, points.len() as u64))
}

/// Explains in a sentence how the rows were computed.
pub fn note(side: &ServerSide) -> String {
    let why = side.why_not.as_ref().map(|(why, count, points)| format!(" In {count} of {points} points: {why}."));
    format!(
        "Every request is counted and its CPU time timed; phases are sampled in windows, requests in flight sampled, \
         the cost modelled. Medians over the points of a load.{}",
        why.unwrap_or_default()
    )
}
