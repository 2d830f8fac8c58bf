//! The tables: after Kim and Rixner's, with columns for the layers, and every number called what it is.

use record::layers::Layer;
use record::simulation::{Caches, Counts, Geometry, Point, Sample, Simulation};
use std::fmt::Write;

mod objects;

const COLUMNS: [Layer; 8] =
    [Layer::User, Layer::SystemCall, Layer::Tcp, Layer::Ip, Layer::Ethernet, Layer::Driver, Layer::Other, Layer::Idle];

/// The whole report.
pub fn report(report: &Simulation, most_functions: usize) -> String {
    let mut out = String::new();
    let samples = report.points.iter().map(|point| point.samples.len()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "Simulated: counts of a cache model in a guest (Linux {}, {}), per packet sent; n = {samples} boots a point",
        report.kernel, report.qemu
    );
    match &report.caches {
        Some(caches) => caches_lines(&mut out, caches),
        None => out.push_str("no caches were simulated\n"),
    }
    if let Some(cost) = report.cost {
        let _ = writeln!(
            out,
            "cycles are modelled: {} an instruction, {} more a miss of L1, {} more a miss of the first L2; nothing overlaps",
            cost.instruction, cost.l1_miss, cost.l2_miss
        );
    }
    for point in &report.points {
        out.push('\n');
        table(&mut out, point, report);
        functions(&mut out, point, report.caches.as_ref(), most_functions);
        if let (Some(caches), Some(sample)) = (&report.caches, point.samples.first()) {
            objects::tables(&mut out, sample, caches);
        }
    }
    if let Some(caches) = report.caches.as_ref().filter(|_| report.points.len() > 1) {
        out.push('\n');
        knee(&mut out, &report.points, caches);
    }
    for point in &report.points {
        curve(&mut out, point);
    }
    out
}

/// `256 KiB`, `1 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn caches_lines(out: &mut String, caches: &Caches) {
    let words = |geometry: &Geometry| {
        let replacement = if geometry.replacement == "lru" { "LRU" } else { "tree-PLRU" };
        format!("{} {}-way {} B {replacement}", size(geometry.bytes), geometry.ways, geometry.line_bytes)
    };
    let mut parts = vec![format!("L1I {}", words(&caches.l1i)), format!("L1D {}", words(&caches.l1d))];
    parts.extend(caches.l2.iter().map(|l2| format!("L2 {}", words(l2))));
    parts.extend(caches.l3.iter().map(|l3| format!("L3 {}", words(l3))));
    for (name, tlb) in [("ITLB", &caches.itlb), ("DTLB", &caches.dtlb)] {
        let entries = |tlb: &Geometry| tlb.bytes / u64::from(tlb.line_bytes.max(1));
        parts.extend(tlb.iter().map(|tlb| format!("{name} {} entries {}-way", entries(tlb), tlb.ways)));
    }
    if caches.next_line_prefetch {
        parts.push("next-line prefetch into L2".into());
    }
    let _ = writeln!(out, "{}", parts.join("; "));
}

/// A number of each column, divided by the packets sent; the mean over the samples.
fn row(out: &mut String, name: &str, digits: usize, samples: &[Sample], number: impl Fn(&Counts) -> u64) {
    let mean = |counts: &dyn Fn(&Sample) -> Counts| {
        let sum: f64 = samples.iter().map(|sample| number(&counts(sample)) as f64 / sample.sent as f64).sum();
        sum / samples.len() as f64
    };
    let _ = write!(out, "  {name:24}");
    for layer in COLUMNS {
        let _ = write!(out, "{:>13.digits$}", mean(&|sample| sample.layer(layer)));
    }
    let _ = write!(out, "{:>13.digits$}", mean(&|sample| sample.unattributed.clone()));
    let _ = writeln!(out, "{:>15.digits$}", mean(&|sample| sample.stack.clone()));
}

fn table(out: &mut String, point: &Point, report: &Simulation) {
    let caches = report.caches.as_ref();
    let samples = &point.samples;
    let sums = samples.iter().fold((0, 0), |sum, sample| (sum.0 + sample.sent, sum.1 + sample.received));
    let is_server = samples.iter().any(|sample| sample.load.is_some());
    let _ = writeln!(
        out,
        "{} connections, {}, {} ms one way: {} packets sent, {} received in the windows",
        point.connections,
        match point.rate_per_sec {
            0 => "a closed loop".to_string(),
            rate if is_server => format!("{rate} requests/s"),
            rate => format!("{rate} packets/s"),
        },
        point.delay_us as f64 / 1000.0,
        sums.0,
        sums.1
    );
    if let Some((sample, load)) = samples.iter().find_map(|sample| Some((sample, sample.load_account()?)))
        && let (Some(bytes), Some(packets)) =
            (load.figures.value(record::names::BODY_BYTES), sample.packets_per_answer(&load))
    {
        let answers = load.outcomes.completed();
        let _ = writeln!(
            out,
            "  the load (seed {}, its own count): {answers} answers, {} failed requests, {:.0} bytes of body an answer, {packets:.2} packets sent an answer, {} connections opened",
            sample.seed,
            load.outcomes.failed(),
            bytes / answers.max(1) as f64,
            load.outcomes.connects
        );
    }
    let _ = write!(out, "  {:24}", "");
    for layer in COLUMNS {
        let _ = write!(out, "{:>13}", layer.word());
    }
    let _ = writeln!(out, "{:>13}{:>15}", "unattributed", "Overall Stack");
    row(out, "instructions", 0, samples, |counts| counts.instructions);
    if let Some(cost) = report.cost {
        row(out, "cycles (modelled)", 0, samples, |counts| cost.of(counts) as u64);
    }
    row(out, "repeated string elements", 0, samples, |counts| counts.repeats);
    let Some(caches) = caches else { return };
    row(out, "loads and stores", 0, samples, |counts| counts.reads + counts.writes);
    row(out, "L1I misses", 1, samples, |counts| counts.l1i_misses());
    row(out, "L1D misses", 1, samples, |counts| counts.l1d_misses());
    for (index, l2) in caches.l2.iter().enumerate() {
        let name = format!("L2 misses, {}", size(l2.bytes));
        row(out, &name, 2, samples, |counts| counts.l2_misses(index));
    }
    if caches.l3.is_some() {
        row(out, "L3 misses", 2, samples, |counts| counts.l3().misses());
    }
    row(out, "L2 write-backs", 2, samples, |counts| counts.l2(0).write_backs);
    if caches.next_line_prefetch {
        row(out, "L2 lines prefetched", 2, samples, |counts| counts.l2(0).prefetches);
        row(out, "  of them used", 2, samples, |counts| counts.l2(0).useful_prefetches);
    }
    if caches.itlb.is_some() {
        row(out, "ITLB misses", 2, samples, |counts| counts.itlb_misses());
    }
    if caches.dtlb.is_some() {
        row(out, "DTLB misses", 2, samples, |counts| counts.dtlb_misses());
    }
    let unclassified: u64 = samples.iter().map(|sample| sample.unclassified_instructions).sum();
    let all: u64 = samples.iter().map(|sample| sample.all.instructions).sum();
    let _ = writeln!(
        out,
        "  {:.1} % of the instructions are of functions that the layer rule does not know; they are charged to their callers",
        100.0 * unclassified as f64 / all.max(1) as f64
    );
}

fn functions(out: &mut String, point: &Point, caches: Option<&Caches>, most: usize) {
    let (Some(caches), Some(sample)) = (caches, point.samples.first()) else { return };
    if most == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "  functions with most misses of the L2 of {}, a packet (seed {}):",
        size(caches.l2[0].bytes),
        sample.seed
    );
    for function in sample.functions.iter().take(most) {
        let _ = writeln!(
            out,
            "  {:>9.2} misses {:>8.1} instructions  {:12} {}",
            function.caches.as_ref().map_or(0, |caches| caches.l2_misses(0)) as f64 / sample.sent as f64,
            function.instructions as f64 / sample.sent as f64,
            function.layer.map_or("unattributed", Layer::word),
            function.function
        );
    }
}

/// The paper's Figure 7 in numbers: misses of the stack against the load, a column a size.
fn knee(out: &mut String, points: &[Point], caches: &Caches) {
    let _ = write!(out, "L2 misses of the stack a packet\n  {:>12} {:>8}", "connections", "ms");
    for l2 in &caches.l2 {
        let _ = write!(out, "{:>22}", size(l2.bytes));
    }
    out.push('\n');
    for point in points {
        let _ = write!(out, "  {:>12} {:>8}", point.connections, point.delay_us as f64 / 1000.0);
        for index in 0..caches.l2.len() {
            let each = point.samples.iter().map(|sample| sample.stack.l2_misses(index) as f64 / sample.sent as f64);
            let each: Vec<f64> = each.collect();
            let mean = each.iter().sum::<f64>() / each.len().max(1) as f64;
            let (low, high) = (each.iter().copied().fold(f64::MAX, f64::min), each.iter().copied().fold(0.0, f64::max));
            let words = match each.len() {
                0 | 1 => format!("{mean:.2}"),
                _ => format!("{mean:.2} ({low:.2}-{high:.2})"),
            };
            let _ = write!(out, "{words:>22}");
        }
        out.push('\n');
    }
}

fn curve(out: &mut String, point: &Point) {
    let Some(curve) = point.samples.first().and_then(|sample| sample.curve.as_ref()) else { return };
    let _ = writeln!(
        out,
        "\n{} connections: share of {} accesses to L2 (all layers) that a fully associative one would miss",
        point.connections, curve.accesses
    );
    for (bytes, ratio) in &curve.miss_ratio_by_bytes {
        let _ = writeln!(out, "  {:>10}  {:>6.2} %", size(*bytes), 100.0 * ratio);
    }
}
