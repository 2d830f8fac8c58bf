//! Layers per packet along an axis: Kim and Rixner's Table 1 and Figures 4 to 6 (2005) for the report.

use super::axis::frame;
use super::charts::Figure;
use super::unbroken;
use crate::chart::{Layer, Scale, Series};
use crate::text::layers;
use analyze::axis::layers::{AxisLayers, LayerCost, OVERALL};
use analyze::axis::{AxisFindings, Estimate};
use record::units::format_si;
use serde::Serialize;

/// A table with its heading.
#[derive(Serialize)]
pub(super) struct LayerTable {
    title: &'static str,
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    note: String,
}

/// The stack's layers with their colours, from the call down to the device.
const STACK: [(&str, &str); 5] =
    [("System Call", "n2"), ("TCP", "n3"), ("IP", "n4"), ("Ethernet", "n5"), ("Driver", "n6")];
/// Lines with intervals.
const LINES: [(&str, &str, &str); 4] = [
    (OVERALL, "s1", "spread1"),
    ("TCP", "s2", "spread2"),
    ("System Call", "s3", "spread3"),
    ("Driver", "s4", "spread4"),
];

pub(super) fn tables(axis: &AxisFindings, found: &AxisLayers) -> Vec<LayerTable> {
    let (headings, rows) = layers::rows(axis, found);
    let missing = layers::missing(found);
    let note = format!(
        "CPU %: of one CPU over the windows; us: CPU time per packet sent, medians over repeats by sampling, below them the 95 % interval; Overall: System Call, TCP, IP, Ethernet and Driver.{}",
        if missing.is_empty() { String::new() } else { format!(" {}.", capitalised(&missing)) }
    );
    let (basis_headings, basis) = layers::basis(axis, found);
    vec![
        LayerTable { title: "By layer, per packet sent", headings, rows, note: unbroken(&note) },
        LayerTable {
            title: "What it rests on",
            headings: basis_headings,
            rows: basis,
            note: "Packets of the profiled port's connections, counted; packets received for each sent; segments in a packet sent; samples of the profiled side's work.".into(),
        },
    ]
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The paper's figures, as far as the machine counts what they show.
pub(super) fn figures(axis: &AxisFindings, found: &AxisLayers) -> Vec<Figure> {
    let event = |name: &str| found.events.iter().position(|event| event == name);
    let mut figures = Vec::new();
    for (name, title, unit) in [
        ("instructions", "Instructions per packet by layer", "instructions per packet sent"),
        ("cycles", "Cycles per packet by layer", "cycles per packet sent"),
    ] {
        if let Some(index) = event(name) {
            let read = |cost: &LayerCost| cost.events_per_packet.get(index).copied().flatten();
            figures.extend(stacked(axis, found, title, unit, format_si, &read));
        }
    }
    let us = |us: f64| format!("{us:.1}");
    figures.extend(stacked(axis, found, "CPU time per packet by layer", "us per packet sent", us, &|cost| {
        cost.us_per_packet
    }));
    figures.extend(lines(axis, found, "CPU time per packet, with intervals", "us per packet sent", us, &|cost| {
        cost.us_per_packet
    }));
    for (name, title, unit) in [
        ("llc-load-misses", "Misses of the last-level cache per packet", "misses per packet sent"),
        ("l1d-load-misses", "L1 data cache misses per packet", "misses per packet sent"),
    ] {
        if let Some(index) = event(name) {
            let read = |cost: &LayerCost| cost.events_per_packet.get(index).copied().flatten();
            figures.extend(lines(axis, found, title, unit, |misses| format!("{misses:.1}"), &read));
        }
    }
    figures
}

fn stacked(
    axis: &AxisFindings,
    found: &AxisLayers,
    title: &'static str,
    unit: &str,
    words: fn(f64) -> String,
    read: &dyn Fn(&LayerCost) -> Option<Estimate>,
) -> Option<Figure> {
    let known: Vec<_> = found.levels.iter().filter(|level| level.cost(OVERALL).and_then(read).is_some()).collect();
    let mut floor: Vec<f64> = vec![0.0; known.len()];
    let mut layers = Vec::new();
    for (name, class) in STACK {
        let mut edges = Vec::new();
        for (level, below) in known.iter().zip(&mut floor) {
            let high = *below + level.cost(name).and_then(read).map_or(0.0, |found| found.median);
            edges.push((level.value, *below, high));
            *below = high;
        }
        layers.push(Layer { name: name.into(), class, edges, gaps: Vec::new() });
    }
    if known.is_empty() {
        return None;
    }
    let mut chart = frame(axis, title, unit, Scale::linear(floor.into_iter(), words));
    chart.layers = layers;
    let caption = "The network stack's layers one upon the other, medians over repeats. After Kim and Rixner (2005), Figures 4 to 6.";
    Some(Figure { title, caption: caption.into(), chart })
}

fn lines(
    axis: &AxisFindings,
    found: &AxisLayers,
    title: &'static str,
    unit: &str,
    words: fn(f64) -> String,
    read: &dyn Fn(&LayerCost) -> Option<Estimate>,
) -> Option<Figure> {
    let (mut layers, mut series) = (Vec::new(), Vec::new());
    for (name, class, area) in LINES {
        let points: Vec<(f64, Estimate)> =
            found.levels.iter().filter_map(|level| Some((level.value, read(level.cost(name)?)?))).collect();
        let edges: Vec<(f64, f64, f64)> =
            points.iter().filter_map(|(value, found)| Some((*value, found.low?, found.high?))).collect();
        if edges.len() == points.len() && !edges.is_empty() {
            layers.push(Layer { name: String::new(), class: area, edges, gaps: Vec::new() });
        }
        let line: Vec<(f64, f64)> = points.iter().map(|(value, found)| (*value, found.median)).collect();
        series.push(Series { name: name.into(), class, dots: line.clone(), line, is_reference: false });
    }
    let shown: Vec<f64> = series.iter().flat_map(|one| &one.line).map(|(_, y)| *y).collect();
    let highest = layers.iter().flat_map(|layer: &Layer| &layer.edges).map(|(.., high)| *high);
    if shown.is_empty() {
        return None;
    }
    let mut chart = frame(axis, title, unit, Scale::linear(shown.into_iter().chain(highest), words));
    chart.layers = layers;
    chart.series = series;
    Some(Figure { title, caption: "Medians over repeats; shaded: their 95 % intervals.".into(), chart })
}
