//! The recorded server's work by process. The last row has the rest, so that CPU time and requests add up to the
//! server's.

use super::tables::{Cell, Table};
use record::watch::{PHASES, ProcessTotals, Reading};

pub(super) const PHASE_NAMES: [&str; PHASES] = ["parse", "process", "log"];

/// The table; `None` for a server of one process, or a recording without these rows.
pub(super) fn table(last: &Reading) -> Option<Table> {
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
    Some(Table {
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::watch::{CpuTotals, ProcessCounts};

    fn process(pid: u32, name: &str, cpu_ns: Option<u64>, requests: u64, timed: u64) -> ProcessTotals {
        let mean = (timed > 0).then_some(2500.0);
        ProcessTotals {
            pid,
            name: name.into(),
            processes: u64::from(pid != 0),
            cpu_ns,
            counted: Some(ProcessCounts {
                requests,
                bytes_in: requests * 100,
                bytes_out: requests * 1000,
                timed,
                elapsed_ns: [mean; PHASES],
                phase_cpu_ns: [mean; PHASES],
            }),
        }
    }

    fn totals(processes: Vec<ProcessTotals>) -> Reading {
        let group_ns = processes.iter().filter_map(|row| row.cpu_ns).sum();
        Reading { processes, cpu: Some(CpuTotals { group_ns, ..CpuTotals::default() }), ..Reading::default() }
    }

    #[test]
    fn a_single_process_gets_no_table() {
        assert!(table(&totals(vec![process(7, "nginx", Some(5), 1, 0), process(0, "", Some(5), 0, 0)])).is_none());
        assert!(table(&Reading::default()).is_none());
    }

    #[test]
    fn each_process_has_its_work_with_units_and_counts() {
        let rows = vec![
            process(7, "nginx", Some(3_000_000_000), 30, 4),
            process(8, "nginx", Some(1_000_000_000), 10, 0),
            process(9, "", None, 5, 0),
            process(0, "", Some(0), 0, 0),
        ];
        let table = table(&totals(rows)).unwrap();
        let labels: Vec<&str> = table.rows.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["7 nginx", "8 nginx", "9 (ended)", "ended, or unknown"]);
        for (row, column, value) in [
            (0, ("CPU", "s"), Some(3.0)),
            (0, ("share", "%"), Some(75.0)),
            // What is not known is no zero.
            (2, ("CPU", "s"), None),
            (1, ("requests", "n"), Some(10.0)),
            (1, ("out", "B/request"), Some(1000.0)),
            (3, ("in", "B/request"), None),
            (0, ("log", "us CPU"), Some(2.5)),
            (0, ("timed", "n"), Some(4.0)),
            // Nothing was timed.
            (1, ("parse", "us elapsed"), None),
        ] {
            let at = table.columns.iter().position(|known| *known == column).expect("a column");
            assert_eq!(table.rows[row].1[at].value, value, "{column:?} of row {row}");
        }
        assert!(table.rows.iter().all(|(_, cells)| cells.len() == table.columns.len()));
    }

    #[test]
    fn uncounted_quantities_get_no_columns() {
        let bare = |pid| ProcessTotals { counted: None, ..process(pid, "worker", Some(1), 0, 0) };
        let table = table(&totals(vec![bare(1), bare(2)])).unwrap();
        assert_eq!(table.columns, [("CPU", "s"), ("share", "%")]);
        assert!(!table.note.contains("counted"), "{}", table.note);
    }
}
