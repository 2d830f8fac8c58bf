//! Renders a run of `straingauge simulate`: tables, figures, text, page and JSON. Every number is simulated, except
//! cycles, which are modelled from the counts by stated costs.

mod figures;
mod objects;
pub mod page;
mod tables;
pub mod text;

pub use tables::FUNCTIONS;

use crate::json::{Content, Output, Simulated};
use analyze::simulated::sentences;
use record::simulation::Simulation;

/// As JSON: the counts as stored, and the tables made of them.
pub fn json(run: &record::RunDir, simulation: &Simulation) -> serde_json::Value {
    let shown = Simulated {
        path: run.path.display().to_string(),
        record: &run.record,
        simulation,
        sentences: sentences(simulation),
        tables: tables::of(simulation, tables::FUNCTIONS),
    };
    Output::from(Content::Simulation(shown)).value()
}

#[cfg(test)]
mod tests;
