//! Memory that misses: kinds, lines of structures, and the possible effects of prefetching (the paper's Table 3) and
//! of other layouts.

use super::findings::{foremost, size, title};
use super::tables::{number, of_point};
use crate::simulation::{Line, Object, Point, Sample, Simulation};
use record::text::plain;
use report::text::table::Titled as Table;

/// Number of listed kinds of memory.
const MOST_KINDS: usize = 20;
/// Number of structures whose lines are listed.
const MOST_STRUCTURES: usize = 3;
const MOST_LINES: usize = 64;
/// Minimum misses per packet of an object for a row.
const LEAST_MISSES: f64 = 0.05;

/// The tables of the point with the most misses.
pub(super) fn tables(simulation: &Simulation) -> Vec<Table> {
    let Some(point) = foremost(simulation) else { return Vec::new() };
    let Some(sample) = point.samples.first().filter(|sample| sample.sent > 0) else { return Vec::new() };
    let mut structures: Vec<&Object> =
        sample.objects.iter().flatten().filter(|object| object.structure.is_some()).collect();
    structures.sort_by_key(|object| std::cmp::Reverse(object.l2_misses(0)));
    let mut tables = Vec::from_iter(kinds(simulation, point, sample));
    tables.extend(
        structures.into_iter().take(MOST_STRUCTURES).filter_map(|object| lines(simulation, point, sample, object)),
    );
    tables.extend(prefetch(simulation, point, sample));
    tables.extend(packing(simulation, point, sample));
    tables
}

/// Text such as `tcp_sock (TCP, 2304 B)` or `variables of the kernel: jiffies, ...`.
fn kind(object: &Object) -> String {
    let name = plain(&object.name, 60);
    match (&object.structure, object.stride_bytes) {
        (Some(_), stride) => format!("{} ({name}, {stride} B)", title(object)),
        (None, 0) => {
            let most: Vec<String> = object.variables.iter().take(4).map(|(name, _)| plain(name, 40)).collect();
            if most.is_empty() { name } else { format!("{name}: {}, ...", most.join(", ")) }
        }
        (None, stride) => format!("{name} ({stride} B)"),
    }
}

fn kinds(simulation: &Simulation, point: &Point, sample: &Sample) -> Option<Table> {
    let objects = sample.objects.as_ref()?;
    let mut columns = Table::columns(&[("loads and stores", "per packet"), ("L1D", "misses a packet")]);
    for level in 0..simulation.levels() {
        let bytes = simulation.l2_bytes(level).unwrap_or(0);
        columns.push((format!("L2 {}", size(bytes)), "misses a packet".into()));
    }
    let levels = simulation.levels();
    let cells = |of: &[&Object]| {
        let sum =
            |count: &dyn Fn(&Object) -> u64| of.iter().fold(0u64, |sum, object| sum.saturating_add(count(object)));
        let mut counts = vec![sum(&Object::accesses), sum(&|object| object.l1d_misses)];
        counts.extend((0..levels).map(|level| sum(&|object| object.l2_misses(level))));
        counts.into_iter().map(|count| number(count as f64 / sample.sent as f64)).collect::<Vec<_>>()
    };
    let mut rows: Vec<(String, Vec<String>)> =
        objects.iter().take(MOST_KINDS).map(|object| (kind(object), cells(&[object]))).collect();
    if objects.len() > MOST_KINDS {
        let rest: Vec<&Object> = objects.iter().skip(MOST_KINDS).collect();
        rows.push((format!("{} further kinds", rest.len()), cells(&rest)));
    }
    for (name, misses) in
        [("code of the kernel", &sample.code_l2_misses.kernel), ("code of programs", &sample.code_l2_misses.user)]
    {
        let misses = (0..levels).map(|level| misses.get(level).copied().unwrap_or(0));
        let misses = misses.map(|count| number(count as f64 / sample.sent as f64));
        rows.push((name.into(), ["-".to_string(), "-".into()].into_iter().chain(misses).collect()));
    }
    Some(Table {
        title: "Which memory misses".into(),
        note: format!(
            "{}. The {} kinds of data with most misses: structures of the kernel by slab cache, other memory by kind; \
             and fetches of code.",
            of_point(point, sample),
            objects.len().min(MOST_KINDS)
        ),
        columns,
        rows,
    })
}

/// The lines of a structure.
fn lines(simulation: &Simulation, point: &Point, sample: &Sample, object: &Object) -> Option<Table> {
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
        columns: Table::columns(&[("L2", "misses a packet"), ("loads and stores", "per packet")]),
        rows: worth.map(row).collect(),
    })
}

/// Prefetching (Table 3).
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
            "{}; L2 of {}. An object's lines are prefetched when it is first touched. A miss is hidden if it comes N \
             instructions later or more, so N represents the time that a line takes. N = 1 is the best that \
             prefetching at this place can do. Lines fetched in vain are not counted.",
            of_point(point, sample),
            size(simulation.l2_bytes(0)?)
        ),
        columns,
        rows: objects.iter().map(row).collect(),
    })
}

/// Fields in another order (section 6.3).
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
            "{}: the same run again with the structures' fields moved in the model alone. Fields are moved across the \
             borders of inner structures, so this bounds what a kernel could reach.",
            of_point(point, sample)
        ),
        columns,
        rows,
    })
}
