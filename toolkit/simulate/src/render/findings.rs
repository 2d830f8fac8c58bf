//! The findings of a run of `straingauge simulate`: the tables and figures of Kim and Rixner ("Performance
//! characterization of the FreeBSD network stack", 2005; Tables 1 to 3, Figures 4 to 7) for the simulated kernel.
//! Every number is simulated, except cycles, which are modelled from the counts with stated prices. The crate
//! `report` draws the tables and figures.

use crate::simulation::{Object, Point, Sample, Simulation};
use std::collections::BTreeMap;

/// Text such as `256 KiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// The mean of a count per packet over a point's samples; `None` without a sample.
pub fn per_packet(point: &Point, count: impl Fn(&Sample) -> f64) -> Option<f64> {
    let each: Vec<f64> = point
        .samples
        .iter()
        .filter(|sample| sample.sent > 0)
        .map(|sample| count(sample) / sample.sent as f64)
        .filter(|value| value.is_finite())
        .collect();
    if each.is_empty() { None } else { Some(each.iter().sum::<f64>() / each.len() as f64) }
}

/// Groups of at least two points that differ only in one quantity, sorted by it, the largest group first.
pub fn along(simulation: &Simulation, quantity: impl Fn(&Point) -> u64) -> Vec<Vec<&Point>> {
    let fixed = |point: &Point| {
        let own = quantity(point);
        let of = |value: u64, is_own: bool| if is_own { 0 } else { value };
        let all = [point.connections, point.rate_per_sec, point.delay_us];
        // The quantity is one of the three, recognised by the value in which the points differ.
        let probe = |index: usize| {
            let mut other = Point { connections: all[0], rate_per_sec: all[1], delay_us: all[2], ..Point::default() };
            match index {
                0 => other.connections ^= 1,
                1 => other.rate_per_sec ^= 1,
                _ => other.delay_us ^= 1,
            }
            quantity(&other) != own
        };
        [of(all[0], probe(0)), of(all[1], probe(1)), of(all[2], probe(2))]
    };
    let mut groups: BTreeMap<[u64; 3], Vec<&Point>> = BTreeMap::new();
    for point in simulation.points.iter().filter(|point| !point.samples.is_empty()) {
        groups.entry(fixed(point)).or_default().push(point);
    }
    let mut groups: Vec<Vec<&Point>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by_key(|point| quantity(point));
        group.dedup_by_key(|point| quantity(point));
    }
    groups.retain(|group| group.len() > 1);
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Text such as `128 connections, 20 ms one way`.
pub fn words(point: &Point) -> String {
    let mut words = record::units::count(point.connections, "connection");
    if point.delay_us > 0 {
        words.push_str(&format!(", {} ms one way", point.delay_us as f64 / 1000.0));
    }
    words
}

/// The structure, or else the cache, made safe to print.
pub fn title(object: &Object) -> String {
    record::text::plain(object.title(), 60)
}

/// The point with the most misses of the stack, whose objects and functions are shown.
pub fn foremost(simulation: &Simulation) -> Option<&Point> {
    let misses = |point: &Point| per_packet(point, |sample| sample.stack.l2_misses(0) as f64).unwrap_or(0.0);
    simulation.points.iter().max_by(|a, b| misses(a).total_cmp(&misses(b)))
}

/// Sentences about the findings.
pub fn sentences(simulation: &Simulation) -> Vec<String> {
    let mut said = Vec::new();
    let first_l2 = simulation.l2_bytes(0).map(size);
    if let Some(group) = along(simulation, |point| point.connections).into_iter().next()
        && let (Some(low), Some(high)) = (group.first(), group.last())
    {
        let instructions = |point: &Point| per_packet(point, |sample| sample.stack.instructions as f64);
        if let (Some(few), Some(many)) = (instructions(low), instructions(high)) {
            let misses = |point: &Point| per_packet(point, |sample| sample.stack.l2_misses(0) as f64).unwrap_or(0.0);
            let mut sentence = format!(
                "From {} to {} connections the stack's instructions per packet change from {few:.0} to {many:.0} \
                 ({:+.1} %)",
                low.connections,
                high.connections,
                100.0 * (many / few - 1.0)
            );
            if let Some(l2) = &first_l2 {
                sentence.push_str(&format!(
                    ", its misses of an L2 of {l2} from {:.2} to {:.2}",
                    misses(low),
                    misses(high)
                ));
            }
            said.push(sentence + ".");
        }
    }
    let Some(point) = foremost(simulation) else { return said };
    let at = words(point);
    if let (Some(small), Some(large), Some(l2)) = (
        per_packet(point, |sample| sample.stack.l2_misses(0) as f64),
        per_packet(point, |sample| sample.stack.l2_misses(1) as f64).filter(|_| simulation.l2_bytes(1).is_some()),
        simulation.l2_bytes(1),
    ) {
        said.push(format!("At {at}, an L2 of {} reduces these misses from {small:.2} to {large:.2}.", size(l2)));
    }
    let Some(sample) = point.samples.first().filter(|sample| sample.sent > 0) else { return said };
    let each = |count: u64| count as f64 / sample.sent as f64;
    let all = sample.all.l2_misses(0);
    let most = sample.objects.iter().flatten().filter(|object| object.structure.is_some());
    if let Some(object) = most.max_by_key(|object| object.l2_misses(0))
        && all > 0
    {
        said.push(format!(
            "At {at}, {:.0} % of all misses of that L2 ({:.2} of {:.2} per packet) are in {}.",
            100.0 * object.l2_misses(0) as f64 / all as f64,
            each(object.l2_misses(0)),
            each(all),
            title(object)
        ));
    }
    for packed in &sample.packed {
        let (before, after) = (each(packed.before(0)), each(packed.after(0)));
        said.push(format!(
            "With the fields of {} in the order of their accesses, its misses change from {before:.2} to {after:.2}, \
             and its lines in use from {} to {}.",
            record::text::plain(&packed.object, 60),
            packed.lines_before,
            packed.lines_after
        ));
    }
    said
}
