//! The paper's Figures 4 to 7.

use super::findings::{along, per_packet, size};
use crate::simulation::{Counts, Point, Simulation};
use record::layers::Layer;
use record::units::{count, format_si};
use report::chart::{self, Chart, ChartSeries, Scale};
use report::page::CaptionedChart;
use report::text::number;

const CLASSES: [&str; 6] = ["n2", "n3", "n4", "n5", "n6", "n7"];
const LINES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// The quantity that varies along a figure.
struct Axis {
    name: &'static str,
    instructions: &'static str,
    misses: &'static str,
    number: &'static str,
    value: fn(&Point) -> u64,
    scale: fn(&[f64]) -> Scale,
    unit: f64,
}

const AXES: [Axis; 3] = [
    Axis {
        name: "packets a second",
        instructions: "Instructions per packet against the rate",
        misses: "L2 misses per packet against the rate",
        number: "Figure 4",
        value: |point| point.rate_per_sec,
        scale: |values| Scale::linear(values.iter().copied(), format_si),
        unit: 1.0,
    },
    Axis {
        name: "connections",
        instructions: "Instructions per packet against connections",
        misses: "L2 misses per packet against connections",
        number: "Figure 5",
        value: |point| point.connections,
        scale: |values| Scale::doublings(values.iter().copied()),
        unit: 1.0,
    },
    Axis {
        name: "one-way delay",
        instructions: "Instructions per packet against the delay",
        misses: "L2 misses per packet against the delay",
        number: "Figure 6",
        value: |point| point.delay_us,
        scale: |values| Scale::linear(values.iter().copied(), |ms| format!("{} ms", number(ms))),
        unit: 1e-3,
    },
];

/// The figures for which points were simulated.
pub fn figures(simulation: &Simulation) -> Vec<CaptionedChart> {
    let mut figures = Vec::new();
    for axis in &AXES {
        let Some(group) = along(simulation, axis.value).into_iter().next() else { continue };
        let x = |point: &Point| (axis.value)(point) as f64 * axis.unit;
        let constant = constant(&group, axis);
        let count: fn(&Counts) -> u64 = |counts| counts.instructions;
        figures.push(stacked(axis, axis.instructions, "instructions", &group, x, count, &constant));
        if let Some(l2) = simulation.l2_bytes(0) {
            let caption = format!("L2 of {}; {constant}", size(l2));
            figures.push(stacked(axis, axis.misses, "misses of L2", &group, x, |counts| counts.l2_misses(0), &caption));
        }
        if axis.number == "Figure 5" && simulation.levels() > 0 {
            figures.push(statistics(&group, x, &constant));
            if simulation.levels() > 1 {
                figures.push(by_size(simulation, &group, x, &constant));
            }
        }
    }
    figures
}

fn constant(group: &[&Point], axis: &Axis) -> String {
    let Some(point) = group.first() else { return String::new() };
    let mut words = Vec::new();
    if axis.number != "Figure 5" {
        words.push(count(point.connections, "connection"));
    }
    if axis.number != "Figure 4" {
        words.push(match point.rate_per_sec {
            0 => "a closed loop".to_string(),
            rate if point.samples.iter().any(|sample| sample.load.is_some()) => format!("{rate} requests/s"),
            rate => format!("{rate} packets/s"),
        });
    }
    if axis.number != "Figure 6" {
        words.push(format!("{} ms one way", point.delay_us as f64 / 1000.0));
    }
    let samples: Vec<usize> = group.iter().map(|point| point.samples.len()).collect();
    format!("{}; n = {} boots a point", words.join(", "), samples.iter().min().copied().unwrap_or(0))
}

/// The layers of the stack on top of each other.
fn stacked(
    axis: &Axis,
    title: &'static str,
    what: &str,
    group: &[&Point],
    x: impl Fn(&Point) -> f64,
    count: fn(&Counts) -> u64,
    caption: &str,
) -> CaptionedChart {
    let loads: Vec<f64> = group.iter().map(|point| x(point)).collect();
    let parts = Layer::ALL.into_iter().filter(|layer| layer.is_stack()).zip(CLASSES).map(|(layer, class)| {
        let of = |point: &&Point| Some(per_packet(point, |sample| count(&sample.layer(layer)) as f64).unwrap_or(0.0));
        (layer.word(), class, group.iter().map(of).collect())
    });
    let layers = chart::stacked(&loads, parts);
    let (x_scale, y_scale) = ((axis.scale)(&loads), Scale::linear(chart::tops(&layers), number));
    let description = format!("Layers of the network stack, simulated; {caption}");
    let empty = Chart::empty(title, axis.name, &format!("{what} a packet"), x_scale, y_scale);
    let chart = Chart { description, layers, origin: "simulated", ..empty };
    CaptionedChart {
        title,
        caption: format!("Simulated; {caption}. After Kim and Rixner (2005), {}.", axis.number),
        chart,
    }
}

fn lines(title: &'static str, group: &[&Point], x: impl Fn(&Point) -> f64, named: Vec<(String, Vec<f64>)>) -> Chart {
    let loads: Vec<f64> = group.iter().map(|point| x(point)).collect();
    let scale = Scale::doublings(loads.iter().copied());
    let high = named.iter().flat_map(|(_, values)| values.iter().copied());
    let mut chart = Chart::empty(title, "connections", "misses a packet", scale, Scale::linear(high, number));
    chart.origin = "simulated";
    for ((name, values), class) in named.into_iter().zip(LINES) {
        let line = loads.iter().copied().zip(values).map(chart::Mark::from).collect();
        chart.series.push(ChartSeries { name, class, line, is_dotted: true, ..ChartSeries::default() });
    }
    chart
}

fn of_stack(group: &[&Point], count: impl Fn(&Counts) -> u64) -> Vec<f64> {
    group.iter().map(|point| per_packet(point, |sample| count(&sample.stack) as f64).unwrap_or(0.0)).collect()
}

/// Figure 7, as far as it is simulated.
fn statistics(group: &[&Point], x: impl Fn(&Point) -> f64, constant: &str) -> CaptionedChart {
    let named = vec![
        ("L1D".to_string(), of_stack(group, |counts| counts.l1d_misses())),
        ("L2".to_string(), of_stack(group, |counts| counts.l2_misses(0))),
        ("DTLB".to_string(), of_stack(group, |counts| counts.dtlb_misses())),
    ];
    let title = "Misses of the stack per packet against connections";
    CaptionedChart {
        title,
        chart: lines(title, group, x, named),
        caption: format!(
            "Simulated; {constant}. After Kim and Rixner (2005), Figure 7; misses of L1I stay in the tables; branches \
             are not simulated."
        ),
    }
}

/// The figure of section 6.2.
fn by_size(simulation: &Simulation, group: &[&Point], x: impl Fn(&Point) -> f64, constant: &str) -> CaptionedChart {
    let levels = 0..simulation.levels().min(LINES.len());
    let named = levels.map(|level| {
        let name = size(simulation.l2_bytes(level).unwrap_or(0));
        (name, of_stack(group, |counts| counts.l2_misses(level)))
    });
    let title = "L2 misses of the stack by size of L2";
    CaptionedChart {
        title,
        chart: lines(title, group, x, named.collect()),
        caption: format!(
            "Simulated; {constant}. The knee moves with the size; compare Kim and Rixner (2005), section 6.2."
        ),
    }
}
