//! Layers per packet along an axis in the layout of Kim and Rixner (2005), Table 1: rows for each value, a column for
//! each layer.

use crate::text::wrap;
use analyze::axis::layers::{AxisLayers, LayerCost, LayersAt, OVERALL};
use analyze::axis::{AxisFindings, value_words};
use record::Estimate;
use record::units::{format_bits_per_sec, format_si, grouped};

fn heading(layer: &str) -> &str {
    match layer {
        "System Call" => "SysCall",
        "unattributed" => "unattr.",
        OVERALL => "Overall",
        other => other,
    }
}

fn number(estimate: Option<Estimate>, decimals: usize, scale: f64) -> String {
    estimate.map_or("-".into(), |found| format!("{:.decimals$}", found.value * scale))
}

fn range(estimate: Option<Estimate>) -> String {
    estimate.and_then(|found| found.interval()).map(|(low, high)| format!("{low:.1}-{high:.1}")).unwrap_or_default()
}

/// The names of the rows of a value, and their cells, one for each layer.
fn quantities<'a>(level: &LayersAt, events: &'a [String]) -> Vec<(&'a str, Vec<String>)> {
    let cells = |cell: &dyn Fn(&LayerCost) -> String| level.costs.iter().map(cell).collect();
    let mut all = vec![
        ("CPU %", cells(&|cost| number(cost.cpu_ratio, 1, 100.0))),
        ("us", cells(&|cost| number(cost.us_per_packet, 2, 1.0))),
        ("95 %", cells(&|cost| range(cost.us_per_packet))),
    ];
    for (index, event) in events.iter().enumerate() {
        all.push((event, cells(&|cost| number(cost.events_per_packet.get(index).copied().flatten(), 1, 1.0))));
    }
    if events.iter().any(|event| event == "cycles") {
        let ratio = |cost: &LayerCost| cost.instructions_per_cycle(events);
        all.push(("IPC", cells(&|cost| ratio(cost).map_or("-".into(), |ratio| format!("{ratio:.2}")))));
    }
    all
}

/// Headings and rows: the value, the quantity, a cell for each layer.
pub(crate) fn rows<'a>(findings: &AxisFindings, layers: &'a AxisLayers) -> (Vec<&'a str>, Vec<Vec<String>>) {
    let columns = layers.levels.first().map(|level| level.costs.as_slice()).unwrap_or_default();
    let headings = ["", ""].into_iter().chain(columns.iter().map(|cost| heading(&cost.layer)));
    let mut rows = Vec::new();
    for level in &layers.levels {
        for (index, (name, cells)) in quantities(level, &layers.events).into_iter().enumerate() {
            let label = if index == 0 { value_words(level.value, findings.axis) } else { String::new() };
            if cells.iter().any(|cell| !cell.is_empty()) {
                rows.push([label, name.into()].into_iter().chain(cells).collect());
            }
        }
    }
    (headings.collect(), rows)
}

/// Headings and rows of the underlying counts.
pub(crate) fn basis(findings: &AxisFindings, layers: &AxisLayers) -> ([&'static str; 6], Vec<Vec<String>>) {
    let headings = ["", "packets sent", "in per out", "segments", "payload", "samples"];
    let ratio = |value: Option<f64>| value.map_or("-".into(), |ratio| format!("{ratio:.2}"));
    let row = |level: &LayersAt| {
        vec![
            value_words(level.value, findings.axis),
            grouped(level.packets_sent as f64),
            ratio(level.received_per_sent),
            ratio(level.segments_per_packet),
            level.bits_per_sec.map_or("-".into(), |found| format_bits_per_sec(found.value)),
            format_si(level.samples as f64),
        ]
    };
    (headings, layers.levels.iter().map(row).collect())
}

/// The reasons why events have no rows; empty if all have.
pub(crate) fn missing(layers: &AxisLayers) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (event, why) in &layers.not_measured {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, events)) => events.push(event),
            None => reasons.push((why, vec![event])),
        }
    }
    let words = reasons.iter().map(|(why, events)| {
        crate::text::not_measured(
            Some(&format!(
                "{} per packet: {}",
                record::text::plain(&events.join(", "), 200),
                record::text::plain(why, 200)
            )),
            500,
        )
    });
    words.collect::<Vec<_>>().join("; ")
}

pub(super) fn table(findings: &AxisFindings, layers: &AxisLayers) -> String {
    let title = format!(
        "by layer, per packet sent ({}): CPU % of one CPU, us of CPU time with its interval; sampled",
        match findings.repeats {
            1 => "once".into(),
            repeats => format!("medians of {repeats} repeats"),
        }
    );
    let mut tables = crate::page::layers::tables(findings, layers).into_iter();
    let mut next = |left: usize| tables.next().map_or(String::new(), |table| table.aligned(left).lines());
    let mut out = wrap(&title, "", "") + &next(2);
    out.push('\n');
    out += "basis: packets of the port's connections, packets received per packet sent, segments per packet\n";
    out += &next(1);
    let missing = missing(layers);
    if !missing.is_empty() {
        out.push('\n');
        out += &wrap(&missing, "", "");
    }
    out
}
