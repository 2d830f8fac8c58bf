//! Tables of kernel objects, of their lines and fields, and of what prefetching and packing would do.

use super::size;
use record::simulation::{Caches, Object, Sample};
use std::fmt::Write;

/// Kinds of memory that a table lists, those with most misses.
const MOST_KINDS: usize = 20;
/// Structures whose lines are listed.
const MOST_STRUCTURES: usize = 3;
/// Below this an object's prefetching is not worth a line (misses a packet).
const LEAST_MISSES: f64 = 0.05;

/// All tables of a sample.
pub fn tables(out: &mut String, sample: &Sample, caches: &Caches) {
    if let Some(why) = &sample.objects_not_known {
        let _ = writeln!(out, "  kernel objects: not known: {why}");
    }
    let Some(rows) = &sample.objects else { return };
    kinds(out, sample, rows, caches);
    let structures = rows.iter().filter(|row| row.structure.is_some() && per_packet(row, sample) >= LEAST_MISSES);
    for row in structures.take(MOST_STRUCTURES) {
        lines(out, sample, row, caches);
    }
    distances(out, sample, rows, caches);
    packing(out, sample, caches);
}

fn per_packet(row: &Object, sample: &Sample) -> f64 {
    row.l2_misses(0) as f64 / sample.sent as f64
}

fn kinds(out: &mut String, sample: &Sample, rows: &[Object], caches: &Caches) {
    let each = |count: u64| count as f64 / sample.sent as f64;
    let _ = writeln!(out, "  memory by kind, a packet (seed {}; data; the last rows are code):", sample.seed);
    let _ = write!(out, "  {:>12} {:>10}", "loads+stores", "L1D misses");
    for l2 in &caches.l2 {
        let _ = write!(out, " {:>12}", format!("L2 {}", size(l2.bytes)));
    }
    let _ = writeln!(out, "  object (slab cache, bytes)");
    let mut line = |accesses: Option<u64>, l1d: Option<u64>, l2: &[u64], name: &str| {
        let cell =
            |value: Option<u64>, digits: usize| value.map_or("-".into(), |value| format!("{:.digits$}", each(value)));
        let _ = write!(out, "  {:>12} {:>10}", cell(accesses, 1), cell(l1d, 2));
        for misses in l2.iter().take(caches.l2.len()) {
            let _ = write!(out, " {:>12.2}", each(*misses));
        }
        let _ = writeln!(out, "  {name}");
    };
    for row in rows.iter().take(MOST_KINDS) {
        let name = match (&row.structure, row.stride_bytes) {
            (Some(structure), stride) => format!("{structure} ({}, {stride})", row.name),
            (None, 0) => {
                let most: Vec<&str> = row.variables.iter().take(4).map(|(name, _)| name.as_str()).collect();
                let of = if most.is_empty() { String::new() } else { format!(": {}, ...", most.join(", ")) };
                format!("{}{of}", row.name)
            }
            (None, stride) => format!("({}, {stride})", row.name),
        };
        line(Some(row.accesses()), Some(row.l1d_misses), &row.l2_misses, &name);
    }
    if rows.len() > MOST_KINDS {
        let rest = &rows[MOST_KINDS..];
        let sum = |number: &dyn Fn(&Object) -> u64| rest.iter().map(number).sum::<u64>();
        let l2: Vec<u64> = (0..caches.l2.len()).map(|level| sum(&|row| row.l2_misses(level))).collect();
        let name = format!("{} further kinds", rest.len());
        line(Some(sum(&Object::accesses)), Some(sum(&|row| row.l1d_misses)), &l2, &name);
    }
    line(None, None, &sample.code_l2_misses.kernel, "code of the kernel");
    line(None, None, &sample.code_l2_misses.user, "code of programs");
}

fn lines(out: &mut String, sample: &Sample, row: &Object, caches: &Caches) {
    let each = |count: u64| count as f64 / sample.sent as f64;
    let _ = writeln!(out, "  {} by line of 64 bytes, a packet (L2 of {}):", row.title(), size(caches.l2[0].bytes));
    for line in &row.lines {
        if each(line.accesses) < 0.01 {
            continue;
        }
        let _ = writeln!(
            out,
            "  {:>6} {:>9.2} misses {:>9.2} loads+stores  {}",
            line.offset,
            each(line.l2_misses),
            each(line.accesses),
            line.fields.join(", ")
        );
    }
}

/// The paper's Table 3 for any distance: what a prefetch could hide.
fn distances(out: &mut String, sample: &Sample, rows: &[Object], caches: &Caches) {
    let worth: Vec<&Object> =
        rows.iter().filter(|row| row.stride_bytes > 0 && per_packet(row, sample) >= LEAST_MISSES).take(10).collect();
    if worth.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "  prefetching an object when it is first touched: misses a packet (L2 of {}) that come N instructions after that or later",
        size(caches.l2[0].bytes)
    );
    let _ = write!(out, "  {:>9}", "all");
    let limits = &worth[0].misses_by_instructions_since_visit.below;
    for distance in limits {
        let _ = write!(out, " {:>7}", format!("N={distance}"));
    }
    let _ = writeln!(out, "  object");
    for row in worth {
        let _ = write!(out, "  {:>9.2}", per_packet(row, sample));
        for class in 0..limits.len() {
            let later: u64 = row.misses_by_instructions_since_visit.counts.iter().skip(class + 1).sum();
            let _ = write!(out, " {:>7.2}", later as f64 / sample.sent as f64);
        }
        let _ = writeln!(out, "  {}", row.title());
    }
}

fn packing(out: &mut String, sample: &Sample, caches: &Caches) {
    let Some(stack) = &sample.stack_packed else { return };
    let each = |count: u64| count as f64 / sample.sent as f64;
    let _ = writeln!(out, "  fields in the order of their accesses, the same run again: L2 misses a packet");
    for (level, l2) in caches.l2.iter().enumerate() {
        let l2 = size(l2.bytes);
        for row in &sample.packed {
            let _ = writeln!(
                out,
                "  {l2:>10}  {:24} {:>8.2} -> {:>8.2}   lines in use {} -> {}",
                row.object,
                each(row.before(level)),
                each(row.after(level)),
                row.lines_before,
                row.lines_after
            );
        }
        let before = sample.stack.l2_misses(level);
        let after = stack.l2_misses(level);
        let _ = writeln!(out, "  {l2:>10}  {:24} {:>8.2} -> {:>8.2}", "Overall Stack", each(before), each(after));
    }
}
