//! Renders a simulation as tables, figures, text, page and JSON. Every number is simulated, except cycles, which are
//! modelled from the counts with stated costs.

mod figures;
mod findings;
mod objects;
mod tables;
pub mod text;

pub use tables::FUNCTIONS;

use crate::simulation::Simulation;
use record::RunDir;
use report::page::tool::{self, ToolResults};
use serde_json::{Value, json};

/// Version of the JSON that `report --json` prints.
const SCHEMA: u32 = 1;

/// JSON with the counts as stored and the tables made from them.
pub fn json(run: &RunDir, simulation: &Simulation) -> Value {
    json!({
        "schema": SCHEMA,
        "kind": "simulation",
        "path": run.path.display().to_string(),
        "record": run.record,
        "simulation": simulation,
        "sentences": findings::sentences(simulation),
        "tables": tables::tables(simulation, FUNCTIONS),
    })
}

/// The page of a run: one HTML file.
pub fn page(run: &RunDir, simulation: &Simulation) -> String {
    let shown = ToolResults {
        headline: text::headline(simulation),
        sentences: findings::sentences(simulation),
        figures_title: "Against rate, connections and delay",
        figures: figures::figures(simulation),
        tables: tables::tables(simulation, FUNCTIONS),
        done: "simulated",
        how_to_read: "All figures here are simulated: counts of a cache model over the accesses of a guest, exact \
        for the model and repeatable. They do not show time and cannot be compared with measurements. A real \
                      processor has prefetchers, other replacement rules and speculative accesses.",
        meaning: "A packet is one that the server sent: a segment and its acknowledgement, only at the server's end.",
    };
    tool::html(run, shown, || text::run(simulation, FUNCTIONS))
}

#[cfg(test)]
mod tests;
