//! Doubts about conclusions from points.

use record::{DoubtKind, Point, Severity};
use std::collections::BTreeMap;

/// One sentence for each kind of doubt (notes left out): how many of the points have it, and the words of the gravest.
pub(crate) fn of_points<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<String> {
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

/// Whether a point measured something else because of the client or the path, not the server.
pub(crate) fn missed_the_server(point: &Point) -> bool {
    let is_the_servers =
        |kind| matches!(kind, DoubtKind::ServerErrors | DoubtKind::SilentConnections | DoubtKind::Censored);
    point.doubts.iter().any(|doubt| doubt.severity == Severity::Invalid && !is_the_servers(doubt.kind))
}
