//! Renders a simulation for a terminal.

use super::findings::sentences;
use crate::simulation::Simulation;
use record::text::plain;
use record::units::count;
use report::text::wrap;

/// The subject of the simulation.
pub(super) fn headline(simulation: &Simulation) -> String {
    format!(
        "Simulated, nothing measured: Linux {} in {}, {}",
        plain(&simulation.kernel, 80),
        plain(&simulation.qemu, 120),
        count(simulation.points.len(), "point")
    )
}

/// Sentences and tables. `functions` is the number of listed functions of each point.
pub fn run(simulation: &Simulation, functions: usize) -> String {
    let mut out = format!("{}\n\n", headline(simulation));
    for sentence in sentences(simulation) {
        out.push_str(&wrap(&sentence, "- ", "  "));
    }
    for table in super::tables::tables(simulation, functions) {
        out.push_str(&format!("\n{}", table.text(false)));
    }
    out
}
