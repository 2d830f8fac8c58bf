//! Which points show the machine's other work as much as the server. Such a point is measured again, weighs less, and is no
//! evidence for a cause.

use record::{DoubtKind, Point, Severity, names};

/// What a disturbed point weighs beside one that is not.
pub(crate) const DISTURBED_WEIGHT: f64 = 0.25;
/// With other work below this, what kept the client from its CPU was the server: they share it.
const OTHERS_CPUS: f64 = 0.05;

/// Whether a hypervisor, other work or a client that was kept waiting disturbed the point, by the point's own doubts.
pub fn is_disturbed(point: &Point) -> bool {
    why(point).is_some()
}

/// What disturbed the point, in the words of its doubt.
pub(crate) fn why(point: &Point) -> Option<&str> {
    let others = point.value(names::MACHINE_OTHERS);
    let disturbs = |kind: DoubtKind| match kind {
        DoubtKind::Steal | DoubtKind::NoisyNeighbour => true,
        DoubtKind::SharedCpus => others.is_none_or(|cpus| cpus > OTHERS_CPUS),
        _ => false,
    };
    let found = point.doubts.iter().find(|doubt| doubt.severity >= Severity::Warning && disturbs(doubt.kind));
    found.map(|doubt| doubt.what.as_str())
}

/// The points that nothing disturbed; all, where there is no other.
pub(crate) fn quiet_first<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let quiet: Vec<&Point> = points.iter().copied().filter(|point| !is_disturbed(point)).collect();
    if quiet.is_empty() { points.to_vec() } else { quiet }
}
