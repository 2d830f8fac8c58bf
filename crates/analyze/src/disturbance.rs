//! Points that other work on the machine disturbed: they are measured again and weigh less.

use record::{DoubtKind, Point, Severity, names};

/// The weight of a disturbed point; 1 for others.
pub(crate) const DISTURBED_WEIGHT: f64 = 0.25;
/// Below this share of disturbed points, the undisturbed and repeated ones outweigh them.
pub(crate) const DISTURBED_RATIO: f64 = 0.2;
/// With less other work than this, the client waited for the server's CPU or a CPU's wake-up (tens of microseconds on a
/// virtual machine), not for another program.
const OTHERS_CPUS: f64 = 0.05;

/// Whether a doubt of the point shows that a hypervisor or other work disturbed it.
pub fn is_disturbed(point: &Point) -> bool {
    why(point).is_some()
}

/// Whether practically no other program ran in the window.
pub fn is_without_others(point: &Point) -> bool {
    point.value(names::MACHINE_OTHERS).is_some_and(|cpus| cpus <= OTHERS_CPUS)
}

/// Reason why the point is disturbed, in the words of its doubt.
pub(crate) fn why(point: &Point) -> Option<&str> {
    let disturbs = |kind: DoubtKind| match kind {
        DoubtKind::Steal | DoubtKind::NoisyNeighbour => true,
        DoubtKind::SharedCpus => !is_without_others(point),
        _ => false,
    };
    let found = point.doubts.iter().find(|doubt| doubt.severity >= Severity::Warning && disturbs(doubt.kind));
    found.map(|doubt| doubt.what.as_str())
}

/// The points that count, for all figures, tables and causes: the undisturbed ones if they are at least half; otherwise
/// all. A single undisturbed point among several is often just the best one.
pub fn counted<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let quiet: Vec<&Point> = points.iter().copied().filter(|point| !is_disturbed(point)).collect();
    if 2 * quiet.len() < points.len() { points.to_vec() } else { quiet }
}
