//! The recorded server's work by process. The last row has the rest, so that CPU time and requests add up to the
//! server's.

use super::tables::{Cell, FigureTable};
use record::watch::{PHASES, ProcessTotals, Reading};

pub(super) const PHASE_NAMES: [&str; PHASES] = ["parse", "process", "log"];

/// The table; `None` for a server of one process, or a recording without these rows.
pub(super) fn table(last: &Reading) -> Option<FigureTable> {
    let rows = &last.processes;
    if rows.iter().filter(|row| row.pid != 0).count() < 2 {
        return None;
    }
    let has_requests = rows.iter().any(|row| row.counted.is_some());
    let has_phases = rows.iter().any(|row| row.counted.is_some_and(|counts| counts.timed > 0));
    let mut columns = vec![("CPU", "s"), ("share", "%")];
    if has_requests {
        columns.extend([("requests", "n"), ("in", "B/request"), ("out", "B/request")]);
    }
    if has_phases {
        columns.extend(["us elapsed", "us CPU"].iter().flat_map(|unit| PHASE_NAMES.map(|phase| (phase, *unit))));
        columns.push(("timed", "n"));
    }
    let cells = |row: &ProcessTotals| {
        let cpu_ns = row.cpu_ns.map(|ns| ns as f64);
        let whole_ns = last.cpu.map_or(0.0, |cpu| cpu.group_ns as f64);
        let mut cells: Vec<Cell> =
            vec![cpu_ns.map(|ns| ns / 1e9).into(), cpu_ns.map(|ns| ns * 100.0 / whole_ns).into()];
        let counts = row.counted.unwrap_or_default();
        if has_requests {
            let requests = counts.requests as f64;
            let each = |bytes: u64| (requests > 0.0).then(|| bytes as f64 / requests);
            cells.push(row.counted.map(|counts| counts.requests as f64).into());
            cells.extend([each(counts.bytes_in), each(counts.bytes_out)].map(Cell::from));
        }
        if has_phases {
            let part = |of: [Option<f64>; PHASES]| of.map(|ns| Cell::from(ns.map(|ns| ns / 1e3)));
            cells.extend(part(counts.elapsed_ns));
            cells.extend(part(counts.phase_cpu_ns));
            cells.push((counts.timed as f64).into());
        }
        cells
    };
    let mut note =
        "Since the watch began. CPU time by the scheduler (- for a process that has ended; its time is in the last row)"
            .to_string();
    if has_requests {
        note.push_str("; requests and bytes counted");
    }
    if has_phases {
        note.push_str("; phases: means of the timed requests");
    }
    note.push('.');
    Some(FigureTable {
        title: "By process",
        note,
        columns,
        rows: rows.iter().map(|row| (process_name(row), cells(row))).collect(),
    })
}

fn process_name(row: &ProcessTotals) -> String {
    match (row.pid, row.processes) {
        (0, 0) => "ended, or unknown".into(),
        (0, others) => format!("{others} others, and ended ones"),
        (pid, _) if row.name.is_empty() => format!("{pid} (ended)"),
        (pid, _) => format!("{pid} {}", record::text::plain(&row.name, 15)),
    }
}
