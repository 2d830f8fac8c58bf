//! Layers per packet along an axis, after Kim and Rixner (2005), Table 1 and Figures 4 to 6.

use super::axis::{frame, with_intervals};
use super::charts::CaptionedChart;
use crate::chart::{Chart, ChartSeries, Scale, tops};
use crate::run::layers;
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::axis::AxisFindings;
use analyze::axis::layers::{AxisLayers, LayerCost, LayersAt, OVERALL};
use record::Estimate;
use record::units::format_si;

/// The stack's layers from the call down to the device, with their colours.
const STACK: [(&str, &str); 5] =
    [("System Call", "n2"), ("TCP", "n3"), ("IP", "n4"), ("Ethernet", "n5"), ("Driver", "n6")];
const LINES: [(&str, &str); 4] = [(OVERALL, "s1"), ("TCP", "s2"), ("System Call", "s3"), ("Driver", "s4")];

pub(crate) fn tables(axis: &AxisFindings, found: &AxisLayers) -> Vec<Table> {
    let (headings, rows) = layers::rows(axis, found);
    let missing = layers::missing(found);
    let note = format!(
        "CPU %: of one CPU over the windows; us: CPU time per packet sent, medians over repeats by sampling, below \
         them the 95 % interval; Overall: System Call, TCP, IP, Ethernet and Driver.{}",
        if missing.is_empty() { String::new() } else { format!(" {}.", capitalised(&missing)) }
    );
    let (basis_headings, basis) = layers::basis(axis, found);
    let no_unit = |heading| (heading, "");
    vec![
        Table::titled("By layer, per packet sent", headings.into_iter().map(no_unit), rows, unbroken(&note)),
        Table::titled(
            "Data basis",
            basis_headings.map(no_unit),
            basis,
            "Packets of the profiled port's connections (counted); packets received per packet sent; segments per \
             packet sent; samples of the profiled side's work.",
        ),
    ]
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The paper's figures, as far as this machine has the counters.
pub(super) fn figures(axis: &AxisFindings, found: &AxisLayers) -> Vec<CaptionedChart> {
    let per_packet = |event: &str| {
        let index = found.events.iter().position(|known| known == event)?;
        Some(move |cost: &LayerCost| cost.events_per_packet.get(index).copied().flatten())
    };
    let mut figures = Vec::new();
    for (name, title, unit) in [
        ("instructions", "Instructions per packet by layer", "instructions per packet sent"),
        ("cycles", "Cycles per packet by layer", "cycles per packet sent"),
    ] {
        if let Some(read) = per_packet(name) {
            figures.extend(stacked(axis, found, title, unit, format_si, &read));
        }
    }
    figures.extend(stacked(axis, found, "CPU time per packet by layer", "us per packet sent", number, &|cost| {
        cost.us_per_packet
    }));
    figures.extend(lines(axis, found, "CPU time per packet, with intervals", "us per packet sent", number, &|cost| {
        cost.us_per_packet
    }));
    for (name, title, unit) in [
        ("llc-load-misses", "Misses of the last-level cache per packet", "misses per packet sent"),
        ("l1d-load-misses", "L1 data cache misses per packet", "misses per packet sent"),
    ] {
        if let Some(read) = per_packet(name) {
            figures.extend(lines(axis, found, title, unit, number, &read));
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
) -> Option<CaptionedChart> {
    let known: Vec<_> = found.levels.iter().filter(|level| level.cost(OVERALL).and_then(read).is_some()).collect();
    if known.is_empty() {
        return None;
    }
    let values: Vec<f64> = known.iter().map(|level| level.value).collect();
    let parts = STACK.map(|(name, class)| {
        let cost = |level: &&LayersAt| Some(level.cost(name).and_then(read).map_or(0.0, |found| found.value));
        (name, class, known.iter().map(cost).collect())
    });
    let layers = crate::chart::stacked(&values, parts);
    let y = Scale::linear(tops(&layers), words);
    let chart = Chart { layers, ..frame(axis, title, unit, y) };
    let caption = "The network stack's layers, stacked; medians over repeats. After Kim and Rixner (2005), \
                   Figures 4 to 6.";
    Some(CaptionedChart { title, caption: caption.into(), chart })
}

fn lines(
    axis: &AxisFindings,
    found: &AxisLayers,
    title: &'static str,
    unit: &str,
    words: fn(f64) -> String,
    read: &dyn Fn(&LayerCost) -> Option<Estimate>,
) -> Option<CaptionedChart> {
    let (mut layers, mut series) = (Vec::new(), Vec::new());
    for (name, class) in LINES {
        let points: Vec<(f64, Estimate)> =
            found.levels.iter().filter_map(|level| Some((level.value, read(level.cost(name)?)?))).collect();
        let (layer, line) = with_intervals(&points, name, class);
        layers.extend(layer);
        series.push(ChartSeries { is_dotted: true, ..line });
    }
    let shown: Vec<f64> = series.iter().flat_map(ChartSeries::ys).collect();
    if shown.is_empty() {
        return None;
    }
    let y = Scale::linear(shown.into_iter().chain(tops(&layers)), words);
    let chart = Chart { layers, series, ..frame(axis, title, unit, y) };
    Some(CaptionedChart { title, caption: "Medians over repeats; shaded: their 95 % intervals.".into(), chart })
}
