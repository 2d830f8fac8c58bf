//! The first screen of `find`: the answer, its basis, the remedies, selected loads.

use super::{load_cell, response_cells};
use crate::page::KeyNumber;
use crate::text::table::Table;
use crate::text::wrap;
use analyze::zones::{Findings, Level, Spread, SweepFindings, load_words, percent};
use record::text::plain;
use record::units::{count, format_si, grouped};
use record::{Estimate, RunDir, Severity, Sweep};
use verdict::answer::{Answer, interval_words};
use verdict::{Cause, Verdict};

/// Maximum lines of the first screen.
pub const MOST_LINES: usize = 25;
/// Limits from the widest to the narrowest; the first one that leaves room for the first cause and its remedy is used.
/// Remedies are cut last, because they may end in a command.
const ROOM: [Room; 7] = [
    Room { row: 2, cause: 4, remedy: 6, loads: 5 },
    Room { row: 1, cause: 4, remedy: 6, loads: 5 },
    Room { row: 1, cause: 3, remedy: 6, loads: 5 },
    Room { row: 1, cause: 2, remedy: 6, loads: 5 },
    Room { row: 1, cause: 2, remedy: 6, loads: 4 },
    Room { row: 1, cause: 2, remedy: 6, loads: 3 },
    Room { row: 1, cause: 2, remedy: 2, loads: 5 },
];
const LABEL: usize = 13;

/// Maximum lines of a row of the answer, of a cause and of a remedy, and maximum rows of the table of loads.
struct Room {
    row: usize,
    cause: usize,
    remedy: usize,
    loads: usize,
}

pub(super) fn text(run: &RunDir, findings: &Findings, verdict: &Verdict, answer: &Answer) -> String {
    let end = end(run, verdict);
    let back = findings.unloading.as_ref().map(|unloading| wrap(&unloading.sentence(), "", ""));
    let checked = cut(&wrap(&super::account::checked(verdict), "     ", "     "), 2);
    let checked = Some(checked).filter(|_| !verdict.causes.is_empty());
    let left = |parts: &[&str]| MOST_LINES.saturating_sub(parts.iter().map(|part| part.lines().count()).sum());
    let mut parts = ROOM.iter().map(|room| {
        let head = wrap(&verdict.headline, "", "") + "\n" + &rows(answer, findings, room.row);
        let table = loads(findings, room.loads).map_or(String::new(), |table| format!("\n{}", table.lines()));
        (head, todo(verdict, answer, room), table)
    });
    // The function that fills a CPU and its remedy are two paragraphs; a cause and its remedy are one.
    let first = 1 + usize::from(verdict.saturated.is_some());
    let fits = |(head, todo, table): &(String, Vec<String>, String)| {
        let lines: usize = todo.iter().take(first).map(|paragraph| paragraph.lines().count() + 1).sum();
        lines <= left(&[head, table, &end])
    };
    let least = parts.next_back();
    let (mut out, todo, table) = parts.find(fits).or(least).unwrap_or_default();
    let todo: Vec<String> = back.into_iter().chain(todo).chain(checked).collect();
    for paragraph in todo.iter().filter(|paragraph| !paragraph.is_empty()) {
        let gap = if out.ends_with("\n\n") || paragraph.starts_with("  ") { "" } else { "\n" };
        let lines = paragraph.lines().count() + gap.len();
        if lines > left(&[&out, &table, &end]) {
            break;
        }
        out.push_str(gap);
        out.push_str(paragraph);
    }
    out + &table + &end
}

pub(super) fn rows(answer: &Answer, findings: &Findings, most: usize) -> String {
    let row = |number: KeyNumber| {
        let interval = if number.interval.is_empty() { String::new() } else { format!(" ({})", number.interval) };
        let gap = match number.detail.as_str() {
            "" => "",
            detail if detail.starts_with("with ") => " ",
            _ if number.value.is_empty() => "",
            _ => ": ",
        };
        let words = format!("{}{interval}{gap}{}", number.value_and_unit(), number.detail);
        cut(&wrap(&words, &format!("  {:LABEL$}", number.name), &" ".repeat(LABEL + 2)), most)
    };
    numbers(answer, findings).into_iter().map(row).collect()
}

pub(crate) fn numbers(answer: &Answer, findings: &Findings) -> Vec<KeyNumber> {
    let mut rows = Vec::new();
    let mut row = |name, value: String, unit, interval: String, detail: String| {
        rows.push(KeyNumber { name, value, unit, interval, detail });
    };
    let mut rate = |name, estimate: Option<&Estimate>, why: &str| match estimate {
        Some(estimate) => row(name, format_si(estimate.value), "/s", interval_words(estimate), why.into()),
        None => {
            row(name, "not known".into(), "", String::new(), why.trim_start_matches("not known: ").into());
        }
    };
    if let Some(open) = &findings.rate {
        rate("plan for", answer.plan_per_sec.as_ref(), &answer.plan_why);
        rate("breaks at", answer.breaks_per_sec.as_ref(), &answer.breaks_why);
        if let Some((estimate, found)) = answer.capacity_per_sec.as_ref().zip(open.capacity.as_ref()) {
            rate("capacity", Some(estimate), &found.reason);
        }
    }
    if !answer.connections.is_empty() {
        row("connections", String::new(), "", String::new(), answer.connections.clone());
    }
    let is_higher = |per_sec: f64| answer.capacity_per_sec.is_none_or(|capacity| per_sec > 1.05 * capacity.value);
    if let Some(peak) = answer.peak.as_ref().filter(|peak| peak.sweep == Sweep::Connections && is_higher(peak.per_sec))
    {
        let detail = format!("with {} in a closed loop", load_words(peak.load, peak.sweep));
        row("peak", format_si(peak.per_sec), "/s", String::new(), detail);
    }
    if let Some((value, detail)) = findings.sweeps().find_map(cost) {
        row("a request", value, "us of CPU", String::new(), detail);
    }
    row("sure", answer.sure.word().into(), "", String::new(), answer.sure_why.clone());
    rows
}

fn cut(paragraph: &str, most: usize) -> String {
    if paragraph.lines().count() <= most {
        return paragraph.into();
    }
    let lines: Vec<&str> = paragraph.lines().take(most).collect();
    format!("{} ...\n", lines.join("\n").trim_end_matches(['.', ',', ';', ':']))
}

/// Lowest and highest CPU time per request, with their loads.
fn cost(sweep: &SweepFindings) -> Option<(String, String)> {
    let cpu = sweep.cpu.as_ref()?;
    let at = |load: f64| load_words(load, sweep.sweep);
    let detail = if cpu.is_growth() {
        let more = percent(cpu.ratio - 1.0);
        let highest = if sweep.sweep == Sweep::Rate { at(cpu.highest_load) } else { grouped(cpu.highest_load) };
        format!("with {}; {more} more with {highest}", at(cpu.lowest_load))
    } else {
        format!("with {}; not more at other loads", at(cpu.lowest_load))
    };
    Some((format!("{:.1}", cpu.lowest_us), detail))
}

/// The causes with their remedies, then the settings.
fn todo(verdict: &Verdict, answer: &Answer, room: &Room) -> Vec<String> {
    let cause = |cause: &Cause| {
        let because = cut(&wrap(&cause.because, "why  ", "     "), room.cause);
        because + &cut(&wrap(&cause.remedy, "do   ", "     "), room.remedy)
    };
    let causes = verdict.causes.iter().map(cause);
    let settings = answer.settings.iter().enumerate().map(|(at, setting)| {
        let first = if at == 0 && verdict.causes.is_empty() {
            "do   "
        } else if at == 0 {
            "set  "
        } else {
            "     "
        };
        wrap(setting, first, "     ")
    });
    let because = verdict.why_no_cause.iter().chain(&verdict.saturated);
    let unnamed = because.map(|why| cut(&wrap(why, "why  ", "     "), room.cause));
    causes.chain(unnamed).chain(settings).collect()
}

fn loads(findings: &Findings, most: usize) -> Option<Table> {
    let sweep = findings.rate.as_ref().or(findings.connections.as_ref())?;
    let found = &sweep.failure_point;
    let at_most = |load: f64| sweep.levels.iter().rposition(|level| level.load <= load * (1.0 + 1e-9));
    let turn = sweep.yield_point.estimate.and_then(at_most);
    let held = found.held.and_then(at_most);
    let failed = found.failed.and_then(|failed| sweep.levels.iter().position(|level| level.load >= failed));
    let last = sweep.levels.len().checked_sub(1)?;
    let half = turn.or(held).map(|at| at / 2);
    let mut wanted: Vec<usize> = [turn, held, failed, Some(0), Some(last), half].into_iter().flatten().collect();
    let mut seen = Vec::new();
    wanted.retain(|at| {
        !seen.contains(at) && {
            seen.push(*at);
            true
        }
    });
    wanted.truncate(most);
    wanted.sort_unstable();
    let mut table = Table::new(
        [
            if sweep.sweep == Sweep::Rate { "offered/s" } else { "connections" },
            "answered/s",
            "p50",
            "p99",
            "CPU busy",
            "zone",
            "",
        ],
        0,
    );
    for at in wanted {
        let level = &sweep.levels[at];
        let mark = match at {
            at if Some(at) == failed => "breaks",
            at if Some(at) == turn => "plan",
            at if Some(at) == held => "held",
            _ => "",
        };
        table.row(row(level, sweep.sweep, mark));
    }
    Some(table)
}

fn row(level: &Level, sweep: Sweep, mark: &str) -> Vec<String> {
    let median = |spread: Option<Spread>, words: fn(f64) -> String| spread.map(|spread| words(spread.median));
    let [p50, p99] = response_cells(level);
    let cells = [median(level.throughput_per_sec, format_si), p50, p99, median(level.cpus_busy_ratio, percent)];
    let [throughput, p50, p99, busy] = cells.map(|cell| cell.unwrap_or("-".into()));
    vec![load_cell(level.load, sweep), throughput, p50, p99, busy, level.zone.word().into(), mark.into()]
}

/// Pointers to all tables and to the page.
fn end(run: &RunDir, verdict: &Verdict) -> String {
    let graver = verdict.doubts.iter().filter(|doubt| doubt.severity > Severity::Note).count();
    let doubts = match (verdict.doubts.len(), graver) {
        (0, _) => String::new(),
        (all, 0) => format!(", {}", count(all, "note")),
        (all, graver) => format!(", {} ({})", count(all, "doubt"), count(graver, "warning")),
    };
    let path = plain(&run.path.display().to_string(), 200);
    format!("\nall tables{doubts}: straingauge report {path} --full\npage: {path}/report.html\n")
}
