//! The tables as text: after Kim and Rixner's Tables 1 and 2, with more counts.

use super::findings::{along, per_packet, size, words};
use super::objects;
use crate::simulation::{Counts, Function, Point, Sample, Simulation};
use model::geometry::{Geometry, Replacement};
use record::layers::Layer;
use record::names::BODY_BYTES;
use record::text::plain;
use report::text::table::Titled as Table;

/// Default number of listed functions of a point.
pub const FUNCTIONS: usize = 10;

/// All tables. `functions` is the number of listed functions of each point.
pub fn tables(simulation: &Simulation, functions: usize) -> Vec<Table> {
    let mut tables = vec![profiles(simulation), loads(simulation), counts(simulation)];
    tables.extend(sizes(simulation));
    tables.extend(boots(simulation));
    tables.extend(by_function(simulation, functions));
    tables.extend(objects::tables(simulation));
    tables.extend(simulation.points.iter().filter_map(curve));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => record::units::grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Without units, which the note states, so that ten columns fit on a page.
fn layer_columns() -> Vec<(String, String)> {
    let names = Layer::ALL.iter().map(|layer| layer.word()).chain(["unattributed", "Overall Stack"]);
    names.map(|name| (name.to_string(), String::new())).collect()
}

/// A count for each column.
fn across(point: &Point, count: impl Fn(&Counts) -> f64) -> Vec<String> {
    let mut cells: Vec<Option<f64>> =
        Layer::ALL.into_iter().map(|layer| per_packet(point, |sample| count(&sample.layer(layer)))).collect();
    cells.push(per_packet(point, |sample| count(&sample.unattributed)));
    cells.push(per_packet(point, |sample| count(&sample.stack)));
    cells.into_iter().map(|cell| cell.map_or("-".into(), number)).collect()
}

fn label(simulation: &Simulation, point: &Point) -> String {
    let rates = along(simulation, |point| point.rate_per_sec);
    let mut words = format!("C:{} L:{}", point.connections, point.delay_us as f64 / 1000.0);
    if !rates.is_empty() {
        words.push_str(&format!(" {}/s", point.rate_per_sec));
    }
    words
}

/// Number of boots of a point, and of packets.
fn samples(simulation: &Simulation) -> String {
    let counts: Vec<usize> = simulation.points.iter().map(|point| point.samples.len()).collect();
    let (low, high) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let sent: f64 = simulation.points.iter().flat_map(|point| &point.samples).map(|sample| sample.sent as f64).sum();
    let boots = if low == high { low.to_string() } else { format!("{low} to {high}") };
    format!("n = {boots} boots a point, {} packets in all", record::units::grouped(sent))
}

/// Table 1.
fn profiles(simulation: &Simulation) -> Table {
    let mut rows = Vec::new();
    for point in simulation.points.iter().filter(|point| !point.samples.is_empty()) {
        let at = label(simulation, point);
        if let Some(cost) = &simulation.cost {
            rows.push((format!("{at} cycles (modelled)"), across(point, |counts| cost.of(counts))));
        }
        rows.push((format!("{at} instructions"), across(point, |counts| counts.instructions as f64)));
        if simulation.caches.is_some() {
            rows.push((
                format!("{at} L1 misses"),
                across(point, |counts| counts.l1i_misses() as f64 + counts.l1d_misses() as f64),
            ));
            rows.push((format!("{at} L2 misses"), across(point, |counts| counts.l2_misses(0) as f64)));
        }
    }
    let cost = simulation.cost.map_or(String::new(), |cost| {
        format!(
            " Cycles are modelled, not simulated: {} per instruction, {} more per miss of L1, {} more per miss of \
             L2, without overlap.",
            cost.instruction, cost.l1_miss, cost.l2_miss
        )
    });
    let l2 = simulation.l2_bytes(0).map_or(String::new(), |bytes| format!(" L2 of {}.", size(bytes)));
    Table {
        title: "Profiles (after Table 1)".into(),
        note: format!(
            "Simulated, per packet that the server sent ({}).{l2} C: connections, L: one-way delay in ms. Overall \
             Stack: all but User, Other, Idle and unattributed.{cost} {} {}",
            samples(simulation),
            caches_words(simulation),
            unknown_words(simulation)
        ),
        columns: layer_columns(),
        rows,
    }
}

/// Text such as `Caches: L1I 64 KiB 2-way 64 B LRU; ...`.
fn caches_words(simulation: &Simulation) -> String {
    let Some(caches) = &simulation.caches else { return "No caches were simulated.".into() };
    let words = |cache: &Geometry| {
        let replacement = if cache.replacement() == Replacement::Lru { "LRU" } else { "tree-PLRU" };
        format!("{} {}-way {} B {replacement}", size(cache.size_bytes()), cache.ways(), cache.line_bytes())
    };
    let mut parts = vec![format!("L1I {}", words(&caches.l1i)), format!("L1D {}", words(&caches.l1d))];
    parts.extend(caches.l2.iter().map(|l2| format!("L2 {}", words(l2))));
    parts.extend(caches.l3.iter().map(|l3| format!("L3 {}", words(l3))));
    for (name, tlb) in [("ITLB", &caches.itlb), ("DTLB", &caches.dtlb)] {
        let entries = |tlb: &Geometry| tlb.size_bytes() / u64::from(tlb.line_bytes());
        parts.extend(tlb.iter().map(|tlb| format!("{name} {} entries {}-way", entries(tlb), tlb.ways())));
    }
    if caches.next_line_prefetch {
        parts.push("next-line prefetch into L2".into());
    }
    format!("Caches: {}.", parts.join("; "))
}

fn unknown_words(simulation: &Simulation) -> String {
    let sum = |count: fn(&Sample) -> u64| {
        simulation.points.iter().flat_map(|point| &point.samples).map(|sample| count(sample) as f64).sum::<f64>()
    };
    format!(
        "{:.1} % of the instructions are of functions that the layer table lacks; they are charged to their callers.",
        100.0 * sum(|sample| sample.unclassified_instructions) / sum(|sample| sample.all.instructions).max(1.0)
    )
}

/// The answers of a server; no row without a server.
fn loads(simulation: &Simulation) -> Table {
    let row = |point: &Point| {
        let sample = point.samples.iter().find(|sample| sample.load.is_some() && sample.sent > 0)?;
        let load = sample.load_point()?;
        let answers = load.outcomes.completed();
        let failed = load.outcomes.failed();
        let bytes = load.value(BODY_BYTES).map(|bytes| bytes / answers as f64);
        let packets = sample.packets_per_answer(&load);
        let instructions = packets.map(|packets| packets * sample.stack.instructions as f64 / sample.sent as f64);
        let known = |value: Option<f64>| value.filter(|value| value.is_finite()).map_or("-".into(), number);
        let cells = vec![
            answers.to_string(),
            failed.to_string(),
            load.outcomes.connects.to_string(),
            known(bytes),
            known(packets),
            known(instructions),
        ];
        Some((label(simulation, point), cells))
    };
    Table {
        title: "The load".into(),
        note: "Counted by the load engine in the guest, first boot of each point. Failed: without an answer, or \
               answered with an error. Connections: all that it opened, before the window too. Instructions are those \
               of the stack at the server's end, simulated."
            .into(),
        columns: Table::columns(&[
            ("answers", "requests"),
            ("failed", "requests"),
            ("connections", "opened"),
            ("body", "bytes an answer"),
            ("packets", "sent an answer"),
            ("instructions", "an answer"),
        ]),
        rows: simulation.points.iter().filter_map(row).collect(),
    }
}

/// Table 2.
fn sizes(simulation: &Simulation) -> Option<Table> {
    if simulation.levels() < 2 {
        return None;
    }
    let mut rows = Vec::new();
    for point in simulation.points.iter().filter(|point| !point.samples.is_empty()) {
        for level in 0..simulation.levels() {
            let name = format!("{} {}", label(simulation, point), size(simulation.l2_bytes(level).unwrap_or(0)));
            rows.push((name, across(point, |counts| counts.l2_misses(level) as f64)));
        }
    }
    Some(Table {
        title: "Misses by size of L2 (after Table 2)".into(),
        note: format!("Misses per packet, simulated in one pass over the same accesses ({}).", samples(simulation)),
        columns: layer_columns(),
        rows,
    })
}

/// Counts that are not in Table 1.
fn counts(simulation: &Simulation) -> Table {
    type Quantity = (&'static str, fn(&Counts) -> u64);
    let mut quantities: Vec<Quantity> = vec![("repeated string elements", |counts| counts.repeats)];
    if let Some(caches) = &simulation.caches {
        quantities.extend([
            ("loads and stores", (|counts| counts.reads.saturating_add(counts.writes)) as fn(&Counts) -> u64),
            ("L1I misses", |counts| counts.l1i_misses()),
            ("L1D misses", |counts| counts.l1d_misses()),
            ("L2 write-backs", |counts| counts.l2(0).write_backs),
        ]);
        if caches.l3.is_some() {
            quantities.push(("L3 misses", |counts| counts.l3().misses()));
        }
        if caches.next_line_prefetch {
            quantities.push(("L2 lines prefetched", |counts| counts.l2(0).prefetches));
            quantities.push(("  of them used", |counts| counts.l2(0).useful_prefetches));
        }
        if caches.itlb.is_some() {
            quantities.push(("ITLB misses", |counts| counts.itlb_misses()));
        }
        if caches.dtlb.is_some() {
            quantities.push(("DTLB misses", |counts| counts.dtlb_misses()));
        }
    }
    let mut rows = Vec::new();
    for point in simulation.points.iter().filter(|point| !point.samples.is_empty()) {
        let at = label(simulation, point);
        rows.extend(
            quantities
                .iter()
                .map(|(name, count)| (format!("{at} {name}"), across(point, |counts| count(counts) as f64))),
        );
    }
    let received: f64 =
        simulation.points.iter().flat_map(|point| &point.samples).map(|sample| sample.received as f64).sum();
    Table {
        title: "Other counts".into(),
        note: format!(
            "Simulated, per packet that the server sent ({}; it received {}). A repeated string instruction is one \
             instruction; its further elements are a row.",
            samples(simulation),
            record::units::grouped(received)
        ),
        columns: layer_columns(),
        rows,
    }
}

/// The spread of a point over its boots.
fn boots(simulation: &Simulation) -> Option<Table> {
    if simulation.points.iter().all(|point| point.samples.len() < 2) {
        return None;
    }
    let cell = |point: &Point, level: usize| {
        let sent = point.samples.iter().filter(|sample| sample.sent > 0);
        let each: Vec<f64> = sent.map(|sample| sample.stack.l2_misses(level) as f64 / sample.sent as f64).collect();
        let (low, high) = (each.iter().copied().reduce(f64::min)?, each.iter().copied().reduce(f64::max)?);
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        Some(format!("{} ({} to {})", number(mean), number(low), number(high)))
    };
    let levels = 0..simulation.levels();
    let row = |point: &Point| {
        let cells = levels.clone().map(|level| cell(point, level).unwrap_or_else(|| "-".into()));
        (label(simulation, point), cells.collect())
    };
    let column =
        |level: usize| (format!("L2 {}", size(simulation.l2_bytes(level).unwrap_or(0))), "misses a packet".to_string());
    Some(Table {
        title: "The stack's misses over the boots".into(),
        note: format!("Mean, smallest and largest ({}).", samples(simulation)),
        columns: levels.clone().map(column).collect(),
        rows: simulation.points.iter().filter(|point| !point.samples.is_empty()).map(row).collect(),
    })
}

/// A table for each point.
fn by_function(simulation: &Simulation, most: usize) -> Vec<Table> {
    let Some(l2) = simulation.l2_bytes(0) else { return Vec::new() };
    let table = |point: &Point| {
        let sample = point.samples.first().filter(|sample| sample.sent > 0)?;
        let each = |count: u64| number(count as f64 / sample.sent as f64);
        let row = |function: &Function| {
            let misses = function.caches.as_ref().map_or(0, |caches| caches.l2_misses(0));
            let layer = function.layer.map_or("unattributed", Layer::word);
            (plain(&function.function, 60), vec![each(misses), each(function.instructions), layer.to_string()])
        };
        Some(Table {
            title: format!("Functions with most misses, {}", label(simulation, point)),
            note: format!("{}; L2 of {}.", of_point(point, sample), size(l2)),
            columns: Table::columns(&[("L2", "misses a packet"), ("instructions", "a packet"), ("layer", "")]),
            rows: sample.functions.iter().take(most).map(row).collect(),
        })
    };
    simulation.points.iter().filter_map(table).collect()
}

/// Misses of caches of every size.
fn curve(point: &Point) -> Option<Table> {
    let sample = point.samples.first()?;
    let curve = sample.curve.as_ref()?;
    let row = |(bytes, ratio): &(u64, f64)| (size(*bytes), vec![format!("{:.2}", 100.0 * ratio)]);
    Some(Table {
        title: format!("Misses of a fully associative L2 by its size, {}", words(point)),
        note: format!(
            "{}: of {} accesses to L2, all layers together.",
            of_point(point, sample),
            record::units::grouped(curve.accesses as f64)
        ),
        columns: vec![("missed".into(), "% of accesses".into())],
        rows: curve.miss_ratio_by_bytes.iter().map(row).collect(),
    })
}

/// The sample that a table shows.
pub(super) fn of_point(point: &Point, sample: &Sample) -> String {
    format!("Simulated, at {} (seed {}, {} packets)", words(point), sample.seed, sample.sent)
}
