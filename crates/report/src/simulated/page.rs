//! The report over a simulation: one HTML file without script, as for the other runs.

use super::{figures, tables, text};
use crate::page::frame::{Frame, render};
use crate::page::{DrawnFigure, draw};
use analyze::simulated::sentences;
use record::simulation::Simulation;
use record::{RunDir, Status};
use serde::Serialize;

#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    frame: Frame,
    figures_title: &'static str,
    figures: Vec<DrawnFigure>,
    tables: Vec<tables::Table>,
}

/// The page of a run.
pub fn html(run: &RunDir, simulation: &Simulation) -> String {
    let status = match run.record.status {
        Status::Complete => "complete",
        Status::Interrupted => "interrupted; what was simulated is here",
        Status::Running if run.is_abandoned() => "its process was killed; what was simulated is here",
        Status::Running => "still running",
    };
    let page = Page {
        frame: Frame::of(run, status.into(), &text::headline(simulation), sentences(simulation)),
        figures_title: "Against rate, connections and delay",
        figures: draw(figures::of(simulation), &mut 0),
        tables: tables::of(simulation, tables::FUNCTIONS),
    };
    render("simulated.html", &page, || text::run(simulation, tables::FUNCTIONS))
}
