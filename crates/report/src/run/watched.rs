//! Requests counted on the server: a table by load for a run, lines for a point.

use crate::page::watched::tables;
use crate::text::table::Table;
use crate::text::{not_measured, wrap};
use analyze::watched::CLASS_COLUMNS;
use record::text::plain;
use record::units::{format_si, grouped};
use record::watch::Counter;
use record::{Axis, Point, RunDir, Sweep, names};
use std::fmt::Write;

const LISTED_CLASSES: usize = 16;

pub(super) fn run(run: &RunDir) -> String {
    let mut out = String::new();
    for side in analyze::watched::of_run(run) {
        let title = match side.sweep {
            Sweep::Rate => "the open loop",
            Sweep::Axis => "the axis",
            _ => "the closed loop",
        };
        out.push('\n');
        out.push_str(&wrap(&format!("{title} from the server's side. {}", analyze::watched::note(&side)), "", ""));
        for (table, of) in tables(run, side.sweep).into_iter().zip(["", "  by size class of the response\n"]) {
            out.push_str(of);
            out.push_str(&table.aligned(0).lines());
        }
    }
    out
}

pub(crate) fn load_words(load: f64, sweep: Sweep, axis: Option<Axis>) -> String {
    match axis.filter(|_| sweep == Sweep::Axis) {
        Some(axis) => analyze::axis::value_cell(load, axis),
        None => super::load_cell(load, sweep),
    }
}

/// The lines of one point; empty if it was not watched.
pub(super) fn point(point: &Point) -> String {
    let Some(watched) = &point.watched else { return String::new() };
    let mut out = String::from("\n");
    if let Some(why) = &watched.why_not {
        out.push_str(&wrap(&plain(why, 300), "  seen by the server  ", "                      "));
    }
    let value = |name: &str| point.value(name);
    if let Some(requests) = value(names::WATCH_REQUESTS) {
        let against = match (value(names::WATCH_WHOLE_DIFFERENCE), value(names::WATCH_CLIENT_DIFFERENCE)) {
            (Some(0.0), _) => ", exactly the client's answers over the whole load".into(),
            (Some(difference), _) => format!(
                ", {difference:+.0} compared with the client's answers over the whole \
                load"
            ),
            (None, Some(ratio)) => format!(", {:+.2} % compared with the client's", ratio * 100.0),
            (None, None) => String::new(),
        };
        let words = format!("{} requests{against}", grouped(requests));
        out.push_str(&wrap(&words, "  seen by the server  ", "                      "));
    }
    let mut table = Table::new(["", "", "elapsed", "CPU", ""], 2);
    let cell = |name: &str| value(name).map(|us| format!("{us:.1} us")).unwrap_or_default();
    let rows = [
        ("a request", names::WATCH_ELAPSED, names::WATCH_CPU),
        ("  parse", names::WATCH_PARSE, names::WATCH_PARSE_CPU),
        ("  process", names::WATCH_PROCESS, names::WATCH_PROCESS_CPU),
        ("  log", names::WATCH_LOG, names::WATCH_LOG_CPU),
        ("  parse, by functions", names::WATCH_PACK_PARSE, names::WATCH_PACK_PARSE_CPU),
        ("  process, by functions", names::WATCH_PACK_PROCESS, names::WATCH_PACK_PROCESS_CPU),
        ("  log, by functions", names::WATCH_PACK_LOG, names::WATCH_PACK_LOG_CPU),
        ("connecting", names::WATCH_CONNECT, names::WATCH_CONNECT_CPU),
    ];
    for (label, elapsed, cpu) in rows {
        let figure = point.figures.get(elapsed).or_else(|| point.figures.get(cpu));
        let origin = figure.filter(|figure| figure.value.is_some()).map(super::point::origin).unwrap_or_default();
        if value(elapsed).is_some() || value(cpu).is_some() {
            table.row(vec![String::new(), label.into(), cell(elapsed), cell(cpu), origin]);
        }
    }
    if !table.is_empty() {
        out.push_str(&table.lines());
    }
    let mut more = Vec::new();
    if let (Some(mean), Some(most)) = (value(names::WATCH_IN_FLIGHT), value(names::WATCH_IN_FLIGHT_MAX)) {
        more.push(format!("{mean:.1} requests in flight, {} at most", grouped(most)));
    }
    let accepted = Counter::Accepted.declaration().figure.and_then(value);
    if let Some(accepted) = accepted.filter(|rate| *rate > 0.0) {
        more.push(format!("{} connections/s accepted", format_si(accepted)));
    }
    let pack = point.figures.get(names::WATCH_PACK_PARSE);
    if let Some(why) = pack.and_then(|figure| figure.not_measured.as_deref()) {
        more.push(format!("phases by functions: {}", not_measured(Some(why), 300)));
    }
    if let Some(us) = value(names::WATCH_PACK_COST) {
        more.push(format!("the probes added {us:.1} us to a request in their windows (modelled)"));
    }
    if let Some(cost) = value(names::WATCH_COST) {
        more.push(format!("the watch cost the server {:.2} % of its CPU time (modelled)", cost * 100.0));
    }
    if !more.is_empty() {
        out.push_str(&wrap(&more.join("; "), "  ", "  "));
    }
    if watched.classes.len() > 1 {
        let mut headings = vec!["class"];
        headings.extend(CLASS_COLUMNS.iter().map(|(heading, ..)| *heading));
        let mut table = Table::new(headings, 1);
        for class in watched.classes.iter().take(LISTED_CLASSES) {
            let mut cells = vec![plain(&class.name, 24)];
            cells.extend(
                CLASS_COLUMNS.iter().map(|(.., name, words)| class.figures.value(name).map(words).unwrap_or_default()),
            );
            table.row(cells);
        }
        out.push_str(&table.lines());
        if let more @ 1.. = watched.classes.len().saturating_sub(LISTED_CLASSES) {
            let _ = writeln!(out, "  {more} more");
        }
    }
    if out.trim().is_empty() { String::new() } else { out }
}
