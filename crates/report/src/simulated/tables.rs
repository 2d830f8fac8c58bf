//! The tables, as words: after Kim and Rixner's Tables 1 to 3, and the objects that miss.

use crate::text::plain;
use analyze::simulated::{along, foremost, per_packet, size, title, words};
use record::layers::Layer;
use record::names::BODY_BYTES;
use record::simulation::{Counts, Line, Object, Point, Sample, Simulation};
use serde::Serialize;

/// Kinds of memory that are listed.
const MOST_KINDS: usize = 16;
const MOST_LINES: usize = 64;
/// Objects with fewer misses a packet than this are not worth a row.
const LEAST_MISSES: f64 = 0.05;

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// How its numbers came about.
    pub note: String,
    /// Name and unit of each column after the first.
    pub columns: Vec<(String, String)>,
    /// Label and cells.
    pub rows: Vec<(String, Vec<String>)>,
}

/// All tables.
pub fn of(simulation: &Simulation) -> Vec<Table> {
    let mut tables = vec![profiles(simulation), loads(simulation)];
    tables.extend(sizes(simulation));
    if let Some(point) = foremost(simulation)
        && let Some(sample) = point.samples.first().filter(|sample| sample.sent > 0)
    {
        tables.extend(kinds(simulation, point, sample));
        tables.extend(lines(simulation, point, sample));
        tables.extend(prefetch(simulation, point, sample));
        tables.extend(packing(simulation, point, sample));
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => crate::text::grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Without units, which the note says: ten columns fit on a page.
fn layer_columns() -> Vec<(String, String)> {
    let names = Layer::ALL.iter().map(|layer| layer.word()).chain(["unattributed", "Overall Stack"]);
    names.map(|name| (name.to_string(), String::new())).collect()
}

/// A count of each column.
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

/// The number of boots of a point, and of packets.
fn samples(simulation: &Simulation) -> String {
    let counts: Vec<usize> = simulation.points.iter().map(|point| point.samples.len()).collect();
    let (low, high) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let sent: f64 = simulation.points.iter().flat_map(|point| &point.samples).map(|sample| sample.sent as f64).sum();
    let boots = if low == high { low.to_string() } else { format!("{low} to {high}") };
    format!("n = {boots} boots a point, {} packets in all", crate::text::grouped(sent))
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
            " Cycles are modelled, not simulated: {} an instruction, {} more a miss of L1, {} more a miss of L2; nothing overlaps.",
            cost.instruction, cost.l1_miss, cost.l2_miss
        )
    });
    let l2 = simulation.l2_bytes(0).map_or(String::new(), |bytes| format!(" L2 of {}.", size(bytes)));
    Table {
        title: "Profiles (after Table 1)".into(),
        note: format!(
            "Simulated, per packet that the server sent ({}).{l2} C: connections, L: one-way delay in ms. Overall Stack: all but User, Other, Idle and what is unattributed.{cost}",
            samples(simulation)
        ),
        columns: layer_columns(),
        rows,
    }
}

/// What a server was asked for; without one no row.
fn loads(simulation: &Simulation) -> Table {
    let row = |point: &Point| {
        let sample = point.samples.iter().find(|sample| sample.load.is_some() && sample.sent > 0)?;
        let load = sample.load_account()?;
        let answers = load.outcomes.completed();
        let failed = load.outcomes.failed();
        let bytes = load.figures.value(BODY_BYTES).map(|bytes| bytes / answers as f64);
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
        note: "Counted by the load engine in the guest, first boot of each point. Failed: without an answer, or answered with an error. Connections: all that it opened, before the window too. Instructions are those of the stack at the server's end, simulated.".into(),
        columns: [
            ("answers", "requests"),
            ("failed", "requests"),
            ("connections", "opened"),
            ("body", "bytes an answer"),
            ("packets", "sent an answer"),
            ("instructions", "an answer"),
        ]
        .map(|(a, b)| (a.into(), b.into()))
        .into(),
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
        note: format!("Misses a packet, simulated in one pass over the same accesses ({}).", samples(simulation)),
        columns: layer_columns(),
        rows,
    })
}

fn of_point(point: &Point, sample: &Sample) -> String {
    format!("Simulated, at {} (seed {}, {} packets)", words(point), sample.seed, sample.sent)
}

fn kinds(simulation: &Simulation, point: &Point, sample: &Sample) -> Option<Table> {
    let objects = sample.objects.as_ref()?;
    let mut columns: Vec<(String, String)> =
        [("loads and stores", "per packet"), ("L1D", "misses a packet")].map(|(a, b)| (a.into(), b.into())).into();
    for level in 0..simulation.levels() {
        let bytes = simulation.l2_bytes(level).unwrap_or(0);
        columns.push((format!("L2 {}", size(bytes)), "misses a packet".into()));
    }
    let row = |object: &Object| {
        let mut cells = vec![object.accesses(), object.l1d_misses];
        cells.extend((0..simulation.levels()).map(|level| object.l2_misses(level)));
        let name = match &object.structure {
            Some(_) => format!("{} ({} B)", title(object), object.stride_bytes),
            None => title(object),
        };
        (name, cells.into_iter().map(|count| number(count as f64 / sample.sent as f64)).collect())
    };
    Some(Table {
        title: "Which memory misses".into(),
        note: format!(
            "{}. Data alone, the {} kinds with most misses: structures of the kernel by slab cache, other memory by kind.",
            of_point(point, sample),
            objects.len().min(MOST_KINDS)
        ),
        columns,
        rows: objects.iter().take(MOST_KINDS).map(row).collect(),
    })
}

/// Lines of the structure with most misses.
fn lines(simulation: &Simulation, point: &Point, sample: &Sample) -> Option<Table> {
    let known = sample.objects.iter().flatten().filter(|object| object.structure.is_some());
    let object = known.max_by_key(|object| object.l2_misses(0))?;
    let per_packet = |count: u64| count as f64 / sample.sent as f64;
    let each = |count: u64| number(per_packet(count));
    let row = |line: &Line| {
        let fields: Vec<String> = line.fields.iter().take(3).map(|name| plain(name, 40)).collect();
        let cells = vec![each(line.l2_misses), each(line.accesses)];
        (format!("{}: {}", line.offset, fields.join(", ")), cells)
    };
    let worth = object.lines.iter().filter(|line| per_packet(line.accesses) >= 0.01).take(MOST_LINES);
    Some(Table {
        title: format!("Lines of {}", title(object)),
        note: format!(
            "{}; L2 of {}. A line has 64 bytes; its offset in bytes, and the three fields with most accesses.",
            of_point(point, sample),
            size(simulation.l2_bytes(0)?)
        ),
        columns: [("L2", "misses a packet"), ("loads and stores", "per packet")]
            .map(|(a, b)| (a.into(), b.into()))
            .into(),
        rows: worth.map(row).collect(),
    })
}

/// Table 3.
fn prefetch(simulation: &Simulation, point: &Point, sample: &Sample) -> Option<Table> {
    let per_packet = |count: u64| count as f64 / sample.sent as f64;
    let each = |count: u64| number(per_packet(count));
    let objects: Vec<&Object> = sample
        .objects
        .iter()
        .flatten()
        .filter(|object| object.stride_bytes > 0 && per_packet(object.l2_misses(0)) >= LEAST_MISSES)
        .take(10)
        .collect();
    let limits = &objects.first()?.misses_by_instructions_since_visit.below;
    let mut columns = vec![("no prefetch".to_string(), "misses a packet".to_string())];
    columns.extend(limits.iter().take(16).map(|limit| (format!("N = {limit}"), "hidden a packet".into())));
    let row = |object: &&Object| {
        let counts = &object.misses_by_instructions_since_visit.counts;
        let mut cells = vec![each(object.l2_misses(0))];
        for class in 0..limits.len().min(16) {
            cells.push(each(counts.iter().skip(class + 1).fold(0, |sum, count| sum.saturating_add(*count))));
        }
        (title(object), cells)
    };
    Some(Table {
        title: "What prefetching could hide (after Table 3)".into(),
        note: format!(
            "{}; L2 of {}. An object's lines are asked for when it is first touched; hidden are the misses that come N instructions after that or later, so N stands for the time that a line takes. N = 1 is the ideal of this place. Lines brought in vain are not counted.",
            of_point(point, sample),
            size(simulation.l2_bytes(0)?)
        ),
        columns,
        rows: objects.iter().map(row).collect(),
    })
}

/// Section 6.3's other idea.
fn packing(simulation: &Simulation, point: &Point, sample: &Sample) -> Option<Table> {
    let stack = sample.stack_packed.as_ref()?;
    let mut columns = Vec::new();
    for level in 0..simulation.levels() {
        let bytes = size(simulation.l2_bytes(level).unwrap_or(0));
        columns.push((format!("{bytes}, as it is"), "misses a packet".to_string()));
        columns.push((format!("{bytes}, packed"), "misses a packet".to_string()));
    }
    columns.push(("lines in use".into(), "as it is".into()));
    columns.push(("lines in use".into(), "packed".into()));
    let each = |count: u64| number(count as f64 / sample.sent as f64);
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for packed in &sample.packed {
        let mut cells = Vec::new();
        for level in 0..simulation.levels() {
            cells.extend([each(packed.before(level)), each(packed.after(level))]);
        }
        cells.extend([packed.lines_before.to_string(), packed.lines_after.to_string()]);
        rows.push((plain(&packed.object, 60), cells));
    }
    let mut cells = Vec::new();
    for level in 0..simulation.levels() {
        cells.extend([each(sample.stack.l2_misses(level)), each(stack.l2_misses(level))]);
    }
    cells.extend(["".to_string(), "".to_string()]);
    rows.push(("Overall Stack".into(), cells));
    Some(Table {
        title: "Fields in the order of their accesses".into(),
        note: format!(
            "{}: the same run again with the structures' fields moved in the model alone. Fields are moved across the borders of inner structures, so this bounds what a kernel could reach.",
            of_point(point, sample)
        ),
        columns,
        rows,
    })
}
