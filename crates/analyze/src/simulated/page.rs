//! The report over a simulation: one HTML file without script, as for the other runs.

use super::{Simulation, figures, tables, text};
use crate::report::{DrawnFigure, FactGroup, STYLE, draw, facts, unbroken};
use crate::text::plain;
use minijinja::Environment;
use minijinja::value::{Serde, Value};
use record::{RunDir, Status};
use serde::Serialize;

const TEMPLATE: &str = include_str!("../report/simulated.html");

#[derive(Serialize)]
struct Page {
    style: &'static str,
    name: String,
    started: String,
    status: &'static str,
    is_complete: bool,
    headline: String,
    sentences: Vec<String>,
    figures: Vec<DrawnFigure>,
    tables: Vec<tables::Table>,
    facts: Vec<FactGroup>,
    repeat_command: String,
    version: &'static str,
}

/// The page.
pub fn html(run: &RunDir, simulation: &Simulation) -> String {
    let record = &run.record;
    let page = Page {
        style: STYLE,
        name: plain(&record.scenario.name, 120),
        started: record::time::utc_iso(record.started_unix_ms).replace('T', " ").replace('Z', " UTC"),
        status: match record.status {
            Status::Complete => "complete",
            Status::Interrupted => "interrupted; what was simulated is here",
            Status::Running if run.is_abandoned() => "its process was killed; what was simulated is here",
            Status::Running => "still running",
        },
        is_complete: record.status == Status::Complete,
        headline: text::headline(simulation),
        sentences: super::sentences(simulation).iter().map(|sentence| unbroken(sentence)).collect(),
        figures: draw(figures::of(simulation), &mut 0),
        tables: tables::of(simulation),
        facts: facts(run),
        repeat_command: plain(&record.scenario.repeat_command, 4000),
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut environment = Environment::new();
    // The name's ending turns on escaping for HTML.
    environment.add_template("simulated.html", TEMPLATE).expect("the template is part of the program and is tested");
    let template = environment.get_template("simulated.html").expect("it was added above");
    template.render(Value::from(Serde(&page))).unwrap_or_else(|error| {
        let text = text::run(simulation).replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><meta charset=\"utf-8\"><title>straingauge</title><pre>{text}</pre><!-- {} -->",
            error.kind()
        )
    })
}
