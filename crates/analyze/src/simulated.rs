//! What a run of `straingauge simulate` says: the tables and figures of Kim and Rixner ("Performance characterization of the
//! FreeBSD network stack", 2005; Tables 1 to 3, Figures 4 to 7) for the kernel that was simulated. Every number is simulated,
//! except cycles, which are modelled from them by stated costs; nothing measured stands beside them.
//!
//! [`stored`] reads `simulation.json`; the crate `report` draws the tables and figures.

pub mod stored;

pub use stored::{Simulation, SimulationError};

use stored::{Point, Sample};

/// The layers of the tables, in the paper's order, with their names in `simulation.json`.
pub const LAYERS: [(&str, &str); 8] = [
    ("user", "User"),
    ("system-call", "System Call"),
    ("tcp", "TCP"),
    ("ip", "IP"),
    ("ethernet", "Ethernet"),
    ("driver", "Driver"),
    ("other", "Other"),
    ("idle", "Idle"),
];

/// `256 KiB`.
pub fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1_048_576.0 && bytes % 1_048_576.0 == 0.0 => format!("{} MiB", bytes / 1_048_576.0),
        _ if bytes >= 1024.0 && bytes % 1024.0 == 0.0 => format!("{} KiB", bytes / 1024.0),
        _ => format!("{bytes} B"),
    }
}

/// The mean over a point's samples of a count per packet; `None` without a sample.
pub fn per_packet(point: &Point, count: impl Fn(&Sample) -> f64) -> Option<f64> {
    let each: Vec<f64> = point
        .samples
        .iter()
        .filter(|sample| sample.sent > 0.0)
        .map(|sample| count(sample) / sample.sent)
        .filter(|value| value.is_finite())
        .collect();
    if each.is_empty() { None } else { Some(each.iter().sum::<f64>() / each.len() as f64) }
}

/// The point with most misses of the stack: what objects and functions are shown of.
pub fn foremost(simulation: &Simulation) -> Option<&Point> {
    let misses = |point: &Point| per_packet(point, |sample| sample.stack.l2_misses(0)).unwrap_or(0.0);
    simulation.points.iter().max_by(|a, b| misses(a).total_cmp(&misses(b)))
}

/// What is worth a sentence.
pub fn sentences(simulation: &Simulation) -> Vec<String> {
    let mut said = Vec::new();
    let first_l2 = simulation.l2_bytes(0).map(size);
    if let Some(group) = simulation.along(|point| point.connections).into_iter().next()
        && let (Some(low), Some(high)) = (group.first(), group.last())
    {
        let instructions = |point: &Point| per_packet(point, |sample| sample.stack.instructions);
        if let (Some(few), Some(many)) = (instructions(low), instructions(high)) {
            let misses = |point: &Point| per_packet(point, |sample| sample.stack.l2_misses(0)).unwrap_or(0.0);
            let mut sentence = format!(
                "From {} to {} connections the stack's instructions for a packet go from {few:.0} to {many:.0} ({:+.1} %)",
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
    let at = point.words();
    if let (Some(small), Some(large), Some(l2)) = (
        per_packet(point, |sample| sample.stack.l2_misses(0)),
        per_packet(point, |sample| sample.stack.l2_misses(1)).filter(|_| simulation.l2_bytes(1).is_some()),
        simulation.l2_bytes(1),
    ) {
        said.push(format!("At {at} an L2 of {} makes {large:.2} of these {small:.2} misses.", size(l2)));
    }
    let Some(sample) = point.samples.first().filter(|sample| sample.sent > 0.0) else { return said };
    let all = sample.all.l2_misses(0);
    let most = sample.objects.iter().flatten().filter(|object| object.structure.is_some());
    if let Some(object) = most.max_by(|a, b| a.l2_misses(0).total_cmp(&b.l2_misses(0)))
        && all > 0.0
    {
        said.push(format!(
            "At {at} {:.0} % of all misses of that L2 ({:.2} of {:.2} for a packet) are in {}.",
            100.0 * object.l2_misses(0) / all,
            object.l2_misses(0) / sample.sent,
            all / sample.sent,
            object.title()
        ));
    }
    for packed in &sample.packed {
        let (before, after) = (packed.before(0) / sample.sent, packed.after(0) / sample.sent);
        said.push(format!(
            "With the fields of {} in the order of their accesses its misses go from {before:.2} to {after:.2}, its lines in use from {} to {}.",
            crate::text::plain(&packed.object, 60),
            packed.lines_before,
            packed.lines_after
        ));
    }
    said
}
