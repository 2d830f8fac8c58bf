//! A recorded server's work by process: which of them did how much. The last row holds what is missing to the sums, so that
//! CPU time and requests are the server's.

use super::recording::{Process, Totals};
use super::tables::{Cell, Table};

/// Phases: parse, process, log.
const PHASES: usize = 3;

/// The table; nothing where one process is the server, or where the recording is older than these rows.
pub(super) fn table(last: &Totals) -> Option<Table> {
    let rows = &last.processes;
    if rows.iter().filter(|row| row.pid != 0).count() < 2 {
        return None;
    }
    let has_requests = rows.iter().any(|row| row.requests.is_some());
    let has_phases = rows.iter().any(|row| row.timed > 0);
    let mut columns = vec![("CPU", "s"), ("share", "%")];
    if has_requests {
        columns.extend([("requests", "n"), ("in", "B/request"), ("out", "B/request")]);
    }
    if has_phases {
        columns.extend(["parse", "process", "log"].map(|phase| (phase, "us elapsed")));
        columns.extend(["parse", "process", "log"].map(|phase| (phase, "us CPU")));
        columns.push(("timed", "n"));
    }
    let cells = |row: &Process| {
        let cpu_ns = row.cpu_ns.map(|ns| ns as f64);
        let whole_ns = last.cpu.map_or(0.0, |cpu| cpu.group_ns as f64);
        let mut cells: Vec<Cell> =
            vec![cpu_ns.map(|ns| ns / 1e9).into(), cpu_ns.map(|ns| ns * 100.0 / whole_ns).into()];
        if has_requests {
            let requests = row.requests.unwrap_or(0) as f64;
            let each = |bytes: u64| (requests > 0.0).then(|| bytes as f64 / requests);
            cells.push(row.requests.map(|n| n as f64).into());
            cells.extend([each(row.bytes_in), each(row.bytes_out)].map(Cell::from));
        }
        if has_phases {
            let part = |of: &[Option<f64>], at: usize| Cell::from(of.get(at).copied().flatten().map(|ns| ns / 1e3));
            cells.extend((0..PHASES).map(|at| part(&row.elapsed_ns, at)));
            cells.extend((0..PHASES).map(|at| part(&row.phase_cpu_ns, at)));
            cells.push((row.timed as f64).into());
        }
        cells
    };
    let mut note =
        "Since the watch began. CPU time by the scheduler (- of a process that has ended: its time is the others')"
            .to_string();
    if has_requests {
        note.push_str("; requests and bytes are counted");
    }
    if has_phases {
        note.push_str("; phases are means of the requests that were timed, CPU as it was timed");
    }
    note.push('.');
    Some(Table { title: "By process", note, columns, rows: rows.iter().map(|row| (who(row), cells(row))).collect() })
}

/// Its number and its program's name, which is somebody's text.
fn who(row: &Process) -> String {
    match (row.pid, row.processes) {
        (0, 0) => "ended, or no one's yet".into(),
        (0, others) => format!("{others} others, and ended ones"),
        (pid, _) if row.name.is_empty() => format!("{pid} (ended)"),
        (pid, _) => format!("{pid} {}", crate::text::plain(&row.name, 15)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::recording::Cpu;

    fn process(pid: u32, name: &str, cpu_ns: Option<u64>, requests: u64, timed: u64) -> Process {
        let mean = (timed > 0).then_some(2500.0);
        Process {
            pid,
            name: name.into(),
            processes: u64::from(pid != 0),
            cpu_ns,
            requests: Some(requests),
            bytes_in: requests * 100,
            bytes_out: requests * 1000,
            timed,
            elapsed_ns: vec![mean; PHASES],
            phase_cpu_ns: vec![mean; PHASES],
        }
    }

    fn totals(processes: Vec<Process>) -> Totals {
        let group_ns = processes.iter().filter_map(|row| row.cpu_ns).sum();
        Totals { processes, cpu: Some(Cpu { group_ns, ..Cpu::default() }), ..Totals::default() }
    }

    fn value(table: &Table, row: usize, column: (&str, &str)) -> Option<f64> {
        let at = table.columns.iter().position(|known| *known == column).expect("a column");
        table.rows[row].1[at].value
    }

    #[test]
    fn one_process_needs_no_table() {
        assert!(table(&totals(vec![process(7, "nginx", Some(5), 1, 0), process(0, "", Some(5), 0, 0)])).is_none());
        assert!(table(&Totals::default()).is_none());
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
        assert_eq!(labels, ["7 nginx", "8 nginx", "9 (ended)", "ended, or no one's yet"]);
        assert_eq!((value(&table, 0, ("CPU", "s")), value(&table, 0, ("share", "%"))), (Some(3.0), Some(75.0)));
        assert_eq!(value(&table, 2, ("CPU", "s")), None, "what is not known is no zero");
        assert_eq!(
            (value(&table, 1, ("requests", "n")), value(&table, 1, ("out", "B/request"))),
            (Some(10.0), Some(1000.0))
        );
        assert_eq!(value(&table, 3, ("in", "B/request")), None);
        assert_eq!((value(&table, 0, ("log", "us CPU")), value(&table, 0, ("timed", "n"))), (Some(2.5), Some(4.0)));
        assert_eq!(value(&table, 1, ("parse", "us elapsed")), None, "nothing was timed");
        assert!(table.rows.iter().all(|(_, cells)| cells.len() == table.columns.len()));
    }

    #[test]
    fn what_was_not_counted_has_no_columns() {
        let bare = |pid| Process { requests: None, timed: 0, ..process(pid, "worker", Some(1), 0, 0) };
        let table = table(&totals(vec![bare(1), bare(2)])).unwrap();
        assert_eq!(table.columns, [("CPU", "s"), ("share", "%")]);
        assert!(!table.note.contains("counted"), "{}", table.note);
    }
}
