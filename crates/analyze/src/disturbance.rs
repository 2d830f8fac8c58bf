//! Finds points that were disturbed by other work on the machine. Such a point is measured again, weighs less, and is
//! no evidence for a cause.

use record::{DoubtKind, Point, Severity, names};

/// The weight of a disturbed point; 1 for others.
pub(crate) const DISTURBED_WEIGHT: f64 = 0.25;
/// With less other work than this, no other program kept the client from its CPU, but the server, if they share it, or
/// the CPU's own waking up, which takes tens of microseconds on a virtual machine.
const OTHERS_CPUS: f64 = 0.05;

/// Whether the point's own doubts show that a hypervisor, other work or a client kept waiting disturbed it.
pub fn is_disturbed(point: &Point) -> bool {
    why(point).is_some()
}

/// Whether it is known that no other program ran in the window to speak of.
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

/// The points whose figures count, by the one rule of all tables, charts and sentences: those that were not disturbed,
/// where these are at least half of them; otherwise all. One undisturbed point among several is often just the best
/// one.
pub fn counted<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let quiet: Vec<&Point> = points.iter().copied().filter(|point| !is_disturbed(point)).collect();
    if 2 * quiet.len() < points.len() { points.to_vec() } else { quiet }
}

/// The points on which a cause may rest: those that were not disturbed; all, if every one was.
pub(crate) fn quiet_first<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let quiet: Vec<&Point> = points.iter().copied().filter(|point| !is_disturbed(point)).collect();
    if quiet.is_empty() { points.to_vec() } else { quiet }
}
