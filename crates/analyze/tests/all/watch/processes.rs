//! A watched server's work by process.

use analyze::watch::Recording;
use analyze::watch::tables::{Table, tables};
use record::watch::{CpuTotals, PHASES, ProcessCounts, ProcessTotals, Reading};

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

fn table(last: &Reading) -> Option<Table> {
    let last = Reading { elapsed_ns: 1_000_000_000, ..last.clone() };
    let found = tables(&Recording { last, ..Recording::default() });
    found.tables.into_iter().find(|table| table.title == "By process")
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
