//! Details of each load, which open from its marks in the charts: layers, functions, phases, doubts, points.

use crate::doubt;
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::growth::LAYERS;
use analyze::profile::why_not_sampled;
use analyze::zones::{Level, SweepFindings, counted_at, load_words};
use record::text::plain;
use record::units::{format_nanos, grouped};
use record::{Axis, Doubt, Point, RunDir, Sweep, names};
use serde::Serialize;
use statistics::{mean, median, range};
use std::collections::BTreeMap;

const FUNCTIONS: usize = 12;

#[derive(Serialize)]
pub(super) struct LoadDetails {
    id: String,
    words: String,
    zone: &'static str,
    points: Vec<String>,
    tables: Vec<Table>,
    /// Quantities that were not measured; may be empty.
    missing: String,
    doubts: Vec<doubt::DoubtRow>,
}

pub(super) fn id(sweep: Sweep, load: f64) -> String {
    let word = match sweep {
        Sweep::Rate => "rate",
        Sweep::Axis => "axis",
        _ => "connections",
    };
    format!("load-{word}-{load}")
}

pub(super) fn of_sweep(run: &RunDir, found: &SweepFindings) -> Vec<LoadDetails> {
    let one = |level: &Level| {
        let is_there = |point: &&Point| point.sweep == found.sweep && point.load() == level.load;
        let points: Vec<&Point> = run.points.iter().filter(is_there).collect();
        let words = load_words(level.load, found.sweep);
        of_points(run, id(found.sweep, level.load), words, level.zone.word(), &points)
    };
    found.levels.iter().map(one).collect()
}

/// Like [`of_sweep`] for one of several runs on a page, without its points.
pub(super) fn of_sweep_in(run: &RunDir, found: &SweepFindings, letter: &'static str) -> Vec<LoadDetails> {
    let named = |load: LoadDetails| LoadDetails {
        id: format!("{}{}", link_prefix(letter), load.id),
        words: format!("{letter}: {}", load.words),
        points: Vec::new(),
        ..load
    };
    of_sweep(run, found).into_iter().map(named).collect()
}

pub(super) fn link_prefix(letter: &str) -> &'static str {
    if letter == "A" { "a-" } else { "b-" }
}

/// Like [`of_sweep`] for the values of an axis.
pub(super) fn of_axis(run: &RunDir, axis: Axis, values: impl Iterator<Item = (f64, String)>) -> Vec<LoadDetails> {
    let is_at = |point: &&Point, value: f64| {
        point.sweep == Sweep::Axis && point.axis.is_some_and(|place| place.axis == axis && place.value == value)
    };
    let one = |(value, words): (f64, String)| {
        let points: Vec<&Point> = run.points.iter().filter(|point| is_at(point, value)).collect();
        of_points(run, id(Sweep::Axis, value), words, "", &points)
    };
    values.map(one).collect()
}

fn of_points(run: &RunDir, id: String, words: String, zone: &'static str, points: &[&Point]) -> LoadDetails {
    let counted = counted_at(points);
    let tables: Vec<Table> = [layers(&counted), functions(&counted), phases(&counted)].into_iter().flatten().collect();
    let has = |title: &str| tables.iter().any(|table| table.title == title);
    let mut missing = Vec::new();
    if !has(LAYERS_TITLE) && !has(FUNCTIONS_TITLE) {
        let why = why_not_sampled(run).map_or(String::new(), |why| format!(": {why}"));
        missing.push(format!("Layers and functions were not sampled at this load{why}."));
    } else if !has(FUNCTIONS_TITLE) {
        missing.push("No function was sampled often enough at this load to be listed.".into());
    }
    if !has(PHASES_TITLE) {
        missing.push("Phases of requests were not watched at this load.".into());
    }
    let mut doubts: Vec<Doubt> = Vec::new();
    for doubt in points.iter().flat_map(|point| &point.doubts) {
        if !doubts.iter().any(|known| known.what == doubt.what) {
            doubts.push(doubt.clone());
        }
    }
    LoadDetails {
        id,
        words,
        zone,
        points: points.iter().map(|point| format!("{:03}", point.index)).collect(),
        tables,
        missing: unbroken(&missing.join(" ")),
        doubts: doubt::rows(&doubts),
    }
}

const LAYERS_TITLE: &str = "Layers";
const FUNCTIONS_TITLE: &str = "Functions";
const PHASES_TITLE: &str = "Phases";

fn values(points: &[&Point], name: &str) -> Vec<f64> {
    points.iter().filter_map(|point| point.value(name)).collect()
}

fn layers(points: &[&Point]) -> Option<Table> {
    let known: Vec<(&str, Vec<f64>)> = LAYERS
        .iter()
        .map(|(word, name)| (*word, values(points, name)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let whole: f64 = known.iter().filter_map(|(_, values)| median(values)).sum();
    let rows: Vec<Vec<String>> = known
        .iter()
        .filter_map(|(word, values)| {
            let (us, (low, high)) = (median(values)?, range(values)?);
            let share = if whole > 0.0 { format!("{:.1}", us / whole * 100.0) } else { String::new() };
            let between = if values.len() > 1 { format!("{low:.2}\u{2013}{high:.2}") } else { String::new() };
            Some(vec![word.to_string(), format!("{us:.2}"), between, share, values.len().to_string()])
        })
        .collect();
    let columns = [("layer", ""), ("CPU", "us/request"), ("range", "us/request"), ("share", "%"), ("n", "points")];
    (!rows.is_empty()).then(|| Table::titled(LAYERS_TITLE, columns, rows, "Sampled; medians over points."))
}

fn functions(points: &[&Point]) -> Option<Table> {
    let sampled: Vec<&&Point> = points.iter().filter(|point| !point.functions.is_empty()).collect();
    let mut costs: BTreeMap<(&str, &str), (Vec<f64>, u64)> = BTreeMap::new();
    for cost in sampled.iter().flat_map(|point| &point.functions) {
        let layer = cost.layer.map_or("unattributed", |layer| layer.word());
        let (us, samples) = costs.entry((cost.function.as_str(), layer)).or_default();
        us.push(cost.us_per_request);
        *samples = samples.saturating_add(cost.samples);
    }
    // A point that does not list a function counts as 0 for it.
    let mut rows: Vec<(f64, Vec<String>)> = costs
        .into_iter()
        .filter_map(|((function, layer), (mut us, samples))| {
            us.resize(sampled.len().max(us.len()), 0.0);
            let us = mean(&us)?;
            let words = vec![plain(function, 80), layer.into(), format!("{us:.2}"), grouped(samples as f64)];
            Some((us, words))
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rows: Vec<_> = rows.into_iter().take(FUNCTIONS).map(|(_, words)| words).collect();
    let columns = [("function", ""), ("layer", ""), ("CPU", "us/request"), ("n", "samples")];
    (!rows.is_empty())
        .then(|| Table::titled(FUNCTIONS_TITLE, columns, rows, "Sampled, without callees; means over points."))
}

fn phases(points: &[&Point]) -> Option<Table> {
    let phases = [
        ("parse", names::WATCH_PARSE, names::WATCH_PARSE_CPU),
        ("process", names::WATCH_PROCESS, names::WATCH_PROCESS_CPU),
        ("log", names::WATCH_LOG, names::WATCH_LOG_CPU),
    ];
    let rows: Vec<Vec<String>> = phases
        .iter()
        .filter_map(|(word, elapsed, cpu)| {
            let (elapsed, cpu) = (values(points, elapsed), values(points, cpu));
            let words = |us: &[f64]| median(us).map_or("\u{2013}".into(), |us| format_nanos(us * 1e3));
            let n = elapsed.len().max(cpu.len());
            (n > 0).then(|| vec![word.to_string(), words(&elapsed), words(&cpu), number(n as f64)])
        })
        .collect();
    let columns = [("phase", ""), ("elapsed", "a request"), ("CPU", "a request"), ("n", "points")];
    (!rows.is_empty()).then(|| Table::titled(PHASES_TITLE, columns, rows, "Timed; medians over points."))
}
