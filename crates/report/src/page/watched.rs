//! Requests counted on the server: charts of the phases over the load, tables by load and by class.

use super::charts::{CaptionedChart, stacked_figure};
use crate::run::watched::load_words;
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::watched::{CLASS_COLUMNS, COLUMNS, FigureColumn, LoadMedians, ServerSide};
use analyze::zones::SweepFindings;
use record::units::format_nanos;
use record::{RunDir, Sweep, names};

pub(super) fn figures(run: &RunDir, sweep: &SweepFindings) -> Vec<CaptionedChart> {
    let Some(side) = analyze::watched::of_sweep(run, sweep.sweep) else { return Vec::new() };
    let elapsed = [names::WATCH_PARSE, names::WATCH_PROCESS, names::WATCH_LOG];
    let cpu = [names::WATCH_PARSE_CPU, names::WATCH_PROCESS_CPU, names::WATCH_LOG_CPU];
    [
        phases(sweep, &side, elapsed, "Phases of a request, elapsed", "elapsed time of a request", |us| {
            format_nanos(us * 1e3)
        }),
        phases(sweep, &side, cpu, "Phases of a request, CPU time", "CPU time, us per request", number),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn phases(
    sweep: &SweepFindings,
    side: &ServerSide,
    names: [&'static str; 3],
    title: &'static str,
    y_name: &str,
    words: fn(f64) -> String,
) -> Option<CaptionedChart> {
    let at = |name: &'static str| -> Vec<Option<f64>> {
        let value = |load: f64| side.loads.iter().find(|row| row.load == load)?.medians.get(name).copied();
        sweep.levels.iter().map(|level| value(level.load)).collect()
    };
    let parts = [("parse", "n1", at(names[0])), ("process", "n2", at(names[1])), ("log", "n3", at(names[2]))];
    let mut figure = stacked_figure(sweep, title, y_name, words, parts)?;
    if figure.chart.layers.iter().all(|layer| layer.edges.len() < 2) {
        return None;
    }
    figure.chart.unit = if title.ends_with("CPU time") { "us/request" } else { "us" };
    figure.chart.origin = "timed, median of points";
    figure.caption = "Parse: first read to first send; process: to the last send; log: until the thread sleeps or \
                      serves another connection. Means of requests in windows, medians over the points of a load."
        .into();
    Some(figure)
}

pub(crate) fn tables(run: &RunDir, sweep: Sweep) -> Vec<Table> {
    let Some(side) = analyze::watched::of_sweep(run, sweep) else { return Vec::new() };
    let mut tables = vec![table(
        run,
        &side,
        COLUMNS,
        &side.loads,
        "Requests, from the server's side",
        analyze::watched::note(&side),
    )];
    if !side.classes.is_empty() {
        let note = "Classes by size of the whole response. CPU is exact by class, split into user and system like the \
                    whole group's; disk bytes and phases come from windows.";
        tables.push(table(run, &side, CLASS_COLUMNS, &side.classes, "Service demands by size class", note.into()));
    }
    tables
}

fn table(
    run: &RunDir,
    side: &ServerSide,
    columns: &[FigureColumn],
    rows: &[LoadMedians],
    title: &'static str,
    note: String,
) -> Table {
    let axis = run.points.iter().find_map(|point| Some(point.axis?.axis));
    let shown: Vec<&FigureColumn> =
        columns.iter().filter(|(.., name, _)| rows.iter().any(|row| row.medians.contains_key(name))).collect();
    let has_classes = rows.iter().any(|row| row.class.is_some());
    let mut columns = vec![(if side.sweep == Sweep::Rate { "offered/s" } else { "load" }, "")];
    if has_classes {
        columns.push(("class", "bytes"));
    }
    columns.extend(shown.iter().map(|(heading, unit, ..)| (*heading, *unit)));
    columns.push(("n", "points"));
    let rows = rows
        .iter()
        .map(|row| {
            let mut cells = vec![load_words(row.load, side.sweep, axis)];
            if has_classes {
                cells.push(row.class.clone().unwrap_or_default());
            }
            let value = |name: &str, words: fn(f64) -> String| row.medians.get(name).map(|value| words(*value));
            cells.extend(shown.iter().map(|(.., name, words)| value(name, *words).unwrap_or("\u{2013}".into())));
            cells.push(row.points.to_string());
            cells
        })
        .collect();
    Table::titled(title, columns, rows, unbroken(&note))
}
