//! The report over a simulation: one HTML file, as for the other runs.

use super::{figures, tables, text};
use crate::page::frame::render;
use crate::page::plain::{Ended, Plain};
use analyze::simulated::sentences;
use record::RunDir;
use record::simulation::Simulation;

/// The page of a run.
pub fn html(run: &RunDir, simulation: &Simulation) -> String {
    let said = (text::headline(simulation), sentences(simulation));
    let figures = ("Against rate, connections and delay", figures::of(simulation));
    let ended = Ended("interrupted; what was simulated is here", "simulated");
    let page = Plain::of(run, ended, said, figures, tables::of(simulation, tables::FUNCTIONS));
    render("simulated.html", &page, || text::run(simulation, tables::FUNCTIONS))
}
