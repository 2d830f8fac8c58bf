//! The index of a folder of runs: a table for a terminal, JSON, and one HTML page ([`page`]).

pub mod page;
mod trends;

use crate::json::{Content, Output};
use crate::text::table::Table;
use crate::text::wrap_at;
use record::Estimate;
use record::text::plain;
use record::units::{count, format_nanos, format_si};
use serde_json::Value;
use std::collections::BTreeSet;
use verdict::answer::{Answer, Sure};
use verdict::index::{Index, RunRow};

/// Maximum columns of a line.
const WIDTH: usize = 80;
/// Minimum width of the column of scenarios.
const LEAST_WORDS: usize = 8;

/// The index as JSON.
pub fn json(index: &Index) -> Value {
    Output::from(Content::Runs(index)).value()
}

/// The runs, newest first, each followed by its changes since the preceding run.
pub fn text(index: &Index) -> String {
    let mut out = wrap_at(WIDTH, &headline(index), "", "");
    if !index.runs.is_empty() {
        let cells: Vec<[String; 6]> = index.runs.iter().map(cells).collect();
        let rest = |row: &[String; 6]| row.iter().map(|cell| cell.chars().count()).collect::<Vec<_>>();
        let widest = cells.iter().map(rest).chain([HEADER.map(str::len).to_vec()]);
        let widths = widest.reduce(|a, b| a.iter().zip(&b).map(|(a, b)| *a.max(b)).collect()).unwrap_or_default();
        // Columns without content are left out. The others have two spaces before them; the date has 16 characters.
        let shown = |at: &usize| cells.iter().any(|row| !row[*at].is_empty());
        let taken = 2 * 2 + 16 + (0..widths.len()).filter(shown).map(|at: usize| 2 + widths[at]).sum::<usize>();
        let room = WIDTH.saturating_sub(taken).max(LEAST_WORDS);
        let mut table =
            Table::new(["began, UTC", HEADER[0], "scenario", HEADER[1], HEADER[2], HEADER[3], HEADER[4], HEADER[5]], 3);
        for (row, [kind, rest @ ..]) in index.runs.iter().zip(cells) {
            let first = [began(row), kind, shortened(&scenario(row), room)];
            table.row(first.into_iter().chain(rest).collect());
        }
        out.push('\n');
        let lines = table.lines();
        let mut lines = lines.lines();
        out.extend(lines.next().map(|header| format!("{header}\n")));
        for (row, line) in index.runs.iter().zip(lines) {
            out.push_str(&format!("{line}\n"));
            let said = remark(row);
            if !said.is_empty() {
                out.push_str(&wrap_at(WIDTH, &said, "      ", "      "));
            }
        }
    }
    if !index.unreadable.is_empty() {
        out.push_str("\nnot read\n");
        for one in &index.unreadable {
            out.push_str(&wrap_at(WIDTH, &format!("{}: {}", shown(&one.path), one.why), "  - ", "    "));
        }
    }
    out
}

const HEADER: [&str; 6] = ["what", "plan/s", "breaks/s", "peak/s", "p99", "CPU us"];

/// The number of runs, and the number of those worse than the preceding one.
pub(crate) fn headline(index: &Index) -> String {
    let folder = shown(&index.folder);
    let left_out = match index.filtered_out {
        0 => String::new(),
        n => format!(" The filter leaves out {n} more."),
    };
    if index.runs.is_empty() {
        return format!("No run in {folder}.{left_out}");
    }
    let scenarios: BTreeSet<usize> = index.runs.iter().map(|row| row.scenario).collect();
    let before = || index.runs.iter().filter_map(|row| row.before.as_ref());
    let worse = before().filter(|before| before.is_worse()).count();
    let compared = match (before().count(), worse) {
        (0, _) => String::new(),
        (n, 0) => format!(" None of {n} is worse than the previous one."),
        (n, worse) => format!(" {worse} of {n} worse than the previous one."),
    };
    let (runs, scenarios) = (count(index.runs.len(), "run"), count(scenarios.len(), "scenario"));
    format!("{runs} of {scenarios} in {folder}.{compared}{left_out}")
}

/// Formats the start: `2026-11-23 19:45`.
pub(crate) fn began(row: &RunRow) -> String {
    record::time::utc_iso(row.started_unix_ms).replace('T', " ").chars().take(16).collect()
}

/// Formats the scenario: `3 nginx /1k.bin`; `GET` is omitted to save space.
fn scenario(row: &RunRow) -> String {
    let server = row.server.as_ref().map(|server| format!("{server} ")).unwrap_or_default();
    format!("{} {server}{}", row.scenario, row.request.strip_prefix("GET ").unwrap_or(&row.request))
}

/// The cells of the columns [`HEADER`].
pub(crate) fn cells(row: &RunRow) -> [String; 6] {
    [
        row.kind.clone(),
        row.answer.as_ref().map_or(String::new(), |answer| of_answer(answer, answer.plan_per_sec)),
        row.answer.as_ref().map_or(String::new(), |answer| of_answer(answer, answer.breaks_per_sec)),
        row.peak.map(|peak| format_si(peak.per_sec)).unwrap_or_default(),
        row.response_p99_us.map(|us| format_nanos(us * 1e3)).unwrap_or_default(),
        row.cpu_us_per_request.map(|us| format!("{us:.1}")).unwrap_or_default(),
    ]
}

/// Formats a number of the answer: `44.5k`, with a question mark if it is uncertain.
fn of_answer(answer: &Answer, number: Option<Estimate>) -> String {
    let doubt = if answer.sure == Sure::Low { "?" } else { "" };
    number.map_or(String::new(), |number| format!("{}{doubt}", format_si(number.value)))
}

/// The state of an incomplete run, and the changes; may be empty.
fn remark(row: &RunRow) -> String {
    let state = (row.state != "complete").then(|| row.state.to_string());
    let changed = row.before.as_ref().filter(|before| before.is_worse() || !before.better.is_empty());
    state.into_iter().chain(changed.map(|before| before.summary())).collect::<Vec<_>>().join("; ")
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(2)).collect::<String>() + ".."
}

pub(crate) fn shown(path: &std::path::Path) -> String {
    plain(&path.to_string_lossy(), 300)
}
