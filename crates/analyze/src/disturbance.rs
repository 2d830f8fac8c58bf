//! Points that other work on the machine disturbed, which are measured again and have less weight; other doubts of
//! points.

use record::{DoubtKind, Point, Severity, names};
use std::collections::BTreeMap;

/// The weight of a disturbed point; 1 for others.
pub(crate) const DISTURBED_WEIGHT: f64 = 0.25;
/// Up to this share of disturbed points, the undisturbed and repeated ones outweigh them.
pub const DISTURBED_RATIO: f64 = 0.2;
/// CPUs of other work below which the client waited for the server or for a CPU's wake-up (tens of microseconds on a
/// virtual machine), not for another program.
const OTHERS_CPUS: f64 = 0.05;

/// Whether a doubt of the point shows that a hypervisor or other work disturbed it.
pub fn is_disturbed(point: &Point) -> bool {
    reason(point).is_some()
}

/// Whether other programs used less than [`OTHERS_CPUS`] in the window.
pub fn is_without_others(point: &Point) -> bool {
    point.value(names::MACHINE_OTHERS).is_some_and(|cpus| cpus <= OTHERS_CPUS)
}

/// The doubt of a point that other work disturbed; none if it is quiet.
pub fn reason(point: &Point) -> Option<&str> {
    let disturbs = |kind: DoubtKind| match kind {
        DoubtKind::Steal | DoubtKind::NoisyNeighbour => true,
        DoubtKind::SharedCpus => !is_without_others(point),
        _ => false,
    };
    let found = point.doubts.iter().find(|doubt| doubt.severity >= Severity::Warning && disturbs(doubt.kind));
    found.map(|doubt| doubt.what.as_str())
}

/// The points that count, for all figures, tables and causes: the undisturbed ones if they are at least half;
/// otherwise all points. A single undisturbed point among several is often just the best one.
pub fn counted<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let quiet: Vec<&Point> = points.iter().copied().filter(|point| !is_disturbed(point)).collect();
    if 2 * quiet.len() < points.len() { points.to_vec() } else { quiet }
}

/// One sentence for each kind of doubt, except notes: the number of points that have it, and the words of the most
/// severe one.
pub(crate) fn doubts_of_points<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<String> {
    let mut kinds: BTreeMap<DoubtKind, (usize, Severity, &str)> = BTreeMap::new();
    let mut total = 0;
    for point in points {
        total += 1;
        let mut seen = Vec::new();
        for doubt in point.doubts.iter().filter(|doubt| doubt.severity >= Severity::Warning) {
            let entry = kinds.entry(doubt.kind).or_insert((0, doubt.severity, &doubt.what));
            entry.0 += usize::from(!seen.contains(&doubt.kind));
            seen.push(doubt.kind);
            if doubt.severity > entry.1 {
                (entry.1, entry.2) = (doubt.severity, &doubt.what);
            }
        }
    }
    kinds
        .values()
        .map(|(count, _, what)| format!("{count} of {total} points: {}", record::text::plain(what, 300)))
        .collect()
}

/// Whether the client or the path, not the server, determined a point's result.
pub(crate) fn missed_the_server(point: &Point) -> bool {
    let is_the_servers =
        |kind| matches!(kind, DoubtKind::ServerErrors | DoubtKind::SilentConnections | DoubtKind::Censored);
    point.doubts.iter().any(|doubt| doubt.severity == Severity::Invalid && !is_the_servers(doubt.kind))
}
