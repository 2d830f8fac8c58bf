//! The server's work by process; the rows add up to the whole.

use super::screen::number;
use crate::text::table::Table;
use record::text::plain;
use record::units::{format_nanos, format_si};
use record::watch::{PHASES, ProcessTotals, Reading};
use std::fmt::Write;

/// Rows of the final tables, besides that of all others.
pub(super) const ROWS: usize = 8;

/// Shows the first `most` processes and the others as one row; nothing if there is one process.
pub(super) fn screen(out: &mut String, now: &Reading, most: usize) {
    if now.processes.iter().filter(|row| row.pid != 0).count() < 2 {
        return;
    }
    let rows = shortened(&now.processes, most);
    let has_phases = rows.iter().any(|row| row.counted.is_some_and(|counts| counts.timed > 0));
    let has_requests = rows.iter().any(|row| row.counted.is_some());
    let mut columns = vec!["", "CPU time", "%"];
    if has_requests {
        columns.push("requests");
    }
    if has_phases {
        columns.extend(["parse us", "process us", "log us", "parse cpu", "process cpu", "log cpu", "timed"]);
    }
    let mut table = Table::new(&columns, 1);
    for row in &rows {
        let share = row.cpu_ns.map(|ns| ns as f64 * 100.0 / now.group_ns().unwrap_or(0).max(1) as f64);
        let time = row.cpu_ns.map_or("ended".to_string(), |ns| format_nanos(ns as f64));
        let mut cells = vec![who(row), time, share.map_or("-".into(), |share| format!("{share:.1}"))];
        if let Some(counts) = row.counted.filter(|_| has_requests) {
            cells.push(format_si(counts.requests as f64));
            if has_phases {
                let means = counts.elapsed_ns.into_iter().chain(counts.phase_cpu_ns);
                cells.extend(means.map(|ns| number(ns.map(|ns| ns / 1e3))));
                cells.push(format_si(counts.timed as f64));
            }
        }
        table.row(cells);
    }
    let _ = write!(out, "\nby process since the start\n{}", table.lines());
}

/// The first `most` rows and the sum of the rest.
fn shortened(rows: &[ProcessTotals], most: usize) -> Vec<ProcessTotals> {
    let (first, rest) = rows.split_at(rows.len().min(most));
    // A sum of one row saves nothing.
    if rest.len() < 2 {
        return rows.to_vec();
    }
    let mut sum = ProcessTotals { cpu_ns: Some(0), ..ProcessTotals::default() };
    for row in rest {
        sum.processes += row.processes;
        sum.cpu_ns = Some(sum.cpu_ns.unwrap_or(0) + row.cpu_ns.unwrap_or(0));
        if let Some(theirs) = &row.counted {
            let mine = sum.counted.get_or_insert_default();
            let weighed = |mine_ns: [Option<f64>; PHASES], theirs_ns: [Option<f64>; PHASES]| {
                std::array::from_fn(|phase| {
                    let of = |mean: Option<f64>, timed: u64| mean.unwrap_or(0.0) * timed as f64;
                    let timed = mine.timed + theirs.timed;
                    let total = of(mine_ns[phase], mine.timed) + of(theirs_ns[phase], theirs.timed);
                    (timed > 0).then(|| total / timed as f64)
                })
            };
            (mine.elapsed_ns, mine.phase_cpu_ns) =
                (weighed(mine.elapsed_ns, theirs.elapsed_ns), weighed(mine.phase_cpu_ns, theirs.phase_cpu_ns));
            mine.requests += theirs.requests;
            mine.bytes_in += theirs.bytes_in;
            mine.bytes_out += theirs.bytes_out;
            mine.timed += theirs.timed;
        }
    }
    let mut short = first.to_vec();
    short.push(sum);
    short
}

fn who(row: &ProcessTotals) -> String {
    match (row.pid, row.processes) {
        (0, 0) => "of those that ended, and of no one's yet".into(),
        (0, others) => format!("{others} others, and those that ended"),
        (pid, _) => format!("{pid} {}", plain(&row.name, 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watch::{CpuTotals, ProcessCounts};

    fn row(pid: u32, cpu_ns: u64, timed: u64) -> ProcessTotals {
        let means = (timed > 0).then_some(2500.0);
        ProcessTotals {
            pid,
            name: "nginx".into(),
            processes: 1,
            cpu_ns: Some(cpu_ns),
            counted: Some(ProcessCounts {
                requests: 100,
                timed,
                elapsed_ns: [means; 3],
                phase_cpu_ns: [means; 3],
                ..ProcessCounts::default()
            }),
        }
    }

    fn shown(processes: Vec<ProcessTotals>) -> String {
        let group_ns = processes.iter().filter_map(|row| row.cpu_ns).sum();
        let cpu = Some(CpuTotals { group_ns, ..CpuTotals::default() });
        let mut out = String::new();
        screen(&mut out, &Reading { processes, cpu, ..Reading::default() }, ROWS);
        out
    }

    #[test]
    fn one_process_needs_no_table() {
        assert_eq!(shown(vec![row(7, 1000, 0)]), "");
    }

    #[test]
    fn the_shares_are_those_of_the_whole() {
        let text = shown((1..=20).map(|pid| row(pid, 5_000_000, u64::from(pid == 1))).collect());
        assert_eq!(text.lines().count(), 3 + ROWS + 1, "{text}");
        let shares: f64 = text
            .lines()
            .skip(3)
            .map(|line| line.split_whitespace().rev().nth(8).unwrap().parse::<f64>().unwrap())
            .sum();
        assert!((shares - 100.0).abs() < 0.11 * 9.0, "{shares}: {text}");
        assert!(text.contains("12 others") && text.contains("2.5"), "{text}");
    }

    #[test]
    fn a_short_list_has_the_sums_and_the_means_of_the_long_one() {
        let timed = [1, 3, 1, 0];
        let rows: Vec<ProcessTotals> =
            (1..=4).zip(timed).map(|(pid, timed)| row(pid, 100 - u64::from(pid), timed)).collect();
        let sums = |rows: &[ProcessTotals]| {
            let requests = rows.iter().map(|row| row.counted.unwrap().requests).sum::<u64>();
            (rows.iter().filter_map(|row| row.cpu_ns).sum::<u64>(), requests)
        };
        let short = shortened(&rows, 1);
        assert_eq!((short.len(), sums(&short)), (2, sums(&rows)));
        let rest = short[1].counted.unwrap();
        assert_eq!((short[1].pid, short[1].processes, rest.timed), (0, 3, 4));
        assert_eq!(rest.elapsed_ns[0], Some(2500.0), "weighed by what was timed");
        assert_eq!(shortened(&rows, 5), rows, "all have room");
        assert_eq!(shortened(&rows, 3), rows, "one other takes no more room than its row");
    }
}
