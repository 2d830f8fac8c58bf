//! A run and its points as text for a terminal: the output of `straingauge find`, its progress line, and the tables of
//! a point.

pub(crate) mod account;
mod answer;
pub(crate) mod axis;
pub(crate) mod layers;
mod point;
pub(crate) mod slow_down;
pub(crate) mod slowest;
mod summary;
pub(crate) mod watched;
mod workload;

pub use answer::MOST_LINES;
pub(crate) use answer::numbers;
pub use point::point;
pub(crate) use point::{counts, heading};
pub use summary::{Answers, MAX_LINES, summary};
pub(crate) use workload::{replay_facts, tables as class_tables};

use crate::doubt;
use crate::text::table::Table;
use crate::text::{at_least, wrap};
use analyze::Refused;
use analyze::compare::Comparison;
use analyze::zones::unloading::Unloading;
use analyze::zones::{Findings, Level, Spread, SweepFindings, percent};
use record::text::plain;
use record::units::{count, format_nanos, format_si, grouped};
use record::{Doubt, Estimate, Point, RunDir, Severity, Sweep, names};
use verdict::{Cause, Certainty, Verdict};

const MAX_DOUBTS: usize = 5;

/// The first screen of a run, at most [`MOST_LINES`] lines; [`full`] if the run has no answer.
pub fn text(run: &RunDir, findings: &Findings, verdict: &Verdict) -> String {
    match &verdict.answer {
        Some(answer) if findings.axes.is_empty() => answer::text(run, findings, verdict, answer),
        _ => full(run, findings, verdict),
    }
}

/// The full output: headline, answer, causes, a table for each sweep, the most severe doubts, the run's directory.
pub fn full(run: &RunDir, findings: &Findings, verdict: &Verdict) -> String {
    let mut out = wrap(&verdict.headline, "", "");
    if let Some(answer) = &verdict.answer {
        out.push('\n');
        out.push_str(&answer::rows(answer, findings, usize::MAX));
    }
    if !verdict.sentences.is_empty() {
        out.push('\n');
    }
    let is_possible = |cause: &&Cause| cause.certainty == Certainty::Possibility;
    let causes = verdict.causes.iter().filter(|cause| !is_possible(cause)).map(Cause::sentence);
    let possible = verdict.causes.iter().filter(is_possible).map(Cause::sentence);
    for sentence in causes.chain(verdict.without_causes().map(String::from)).chain(possible) {
        out.push_str(&wrap(&sentence, "- ", "  "));
    }
    out.push_str(&wrap(&account::checked(verdict), "- ", "  "));
    for sweep in findings.sweeps() {
        out += &after_empty_line(sweep_table(sweep));
        out += &after_empty_line(account::text(run, sweep));
    }
    out += &after_empty_line(findings.unloading.as_ref().map(unloading_table).unwrap_or_default());
    for axis in findings.axes.iter().filter(|axis| axis.slowed.is_none()) {
        out += &after_empty_line(axis::table(axis));
    }
    out += &after_empty_line(slow_down::table(&findings.axes));
    out.push_str(&slowest::text(slowest::of_run(run, findings)));
    out.push_str(&watched::run(run));
    let (shown, rest) = gravest(&verdict.doubts);
    out.push_str(&doubt::text(&shown));
    out.push_str(&rest.map_or(String::new(), |rest| format!("  {rest}\n")));
    if let Some(path) = run.record.scenario.path() {
        out.push_str(&format!("\npath    {}\n", path.description()));
    }
    out.push_str(&format!("\nrun     {}\n", plain(&run.path.display().to_string(), 300)));
    out.push_str(&format!("repeat  {}\n", plain(&run.record.scenario.repeat_command, 1000)));
    out
}

/// A part of the output after an empty line; nothing if it is empty.
pub(crate) fn after_empty_line(part: String) -> String {
    if part.is_empty() { part } else { format!("\n{part}") }
}

/// The most severe doubts, and a sentence about the others.
pub(crate) fn gravest(all: &[Doubt]) -> (Vec<Doubt>, Option<String>) {
    let mut by_gravity: Vec<Doubt> = doubt::by_gravity(all).into_iter().cloned().collect();
    let rest = by_gravity.split_off(by_gravity.len().min(MAX_DOUBTS));
    let words = (!rest.is_empty()).then(|| {
        let warnings = rest.iter().filter(|doubt| doubt.severity > Severity::Note).count();
        let so_many = |n: usize, word: &str| (n > 0).then(|| count(n, word));
        let kinds = [so_many(warnings, "warning"), so_many(rest.len() - warnings, "note")];
        let what = kinds.into_iter().flatten().collect::<Vec<_>>().join(", ");
        format!("and {} more ({what}) in report.html and --json", rest.len())
    });
    (by_gravity, words)
}

/// Two runs measured in turn: the comparison, then each run's findings.
pub fn side_by_side(a: &RunDir, b: &RunDir, comparison: Result<&Comparison, &Refused>) -> String {
    let mut out = match comparison {
        Ok(comparison) => crate::compare::text(comparison),
        Err(why) => wrap(&format!("Cannot compare: {why}."), "", ""),
    };
    for (name, one) in [("A", a), ("B", b)] {
        let findings = analyze::zones::of_run(one);
        let verdict = verdict::sentences(one, &findings);
        out.push('\n');
        out.push_str(&wrap(&format!("{name}: {}", analyze::compare::server_words(one)), "", "   "));
        out.push_str(&text(one, &findings, &verdict));
    }
    out
}

fn sweep_table(sweep: &SweepFindings) -> String {
    let (title, load) = if sweep.sweep == Sweep::Rate { ("open loop", "offered") } else { ("closed loop", "conns") };
    let headings =
        [load, "zone", "req/s", "range", "p50", "p99", "reap", "CPU", "user", "sys", "soft", "busy", "failed"];
    let mut table = Table::new(headings, 0);
    for level in &sweep.levels {
        table.row(row(level, sweep.sweep));
    }
    let repeats = repeats_words(sweep.repeats);
    let has_reap = sweep.levels.iter().any(|level| level.reap_of_p99_ratio.is_some());
    let reap = if has_reap { " reap: client's share of p99;" } else { "" };
    let title =
        format!("{title}, {repeats}: medians;{reap} CPU, user, sys, soft(irq) in us per request; failed points");
    wrap(&title, "", "") + &table.lines()
}

/// Throughput on the way up and down; loads where they differ are marked.
fn unloading_table(unloading: &Unloading) -> String {
    let mut table = Table::new(["conns", "up req/s", "down req/s", "down/up", "interval", ""], 0);
    let rate = |estimate: Option<Estimate>| estimate.map_or("-".into(), |estimate| format_si(estimate.value));
    for level in &unloading.levels {
        let interval = level
            .change
            .and_then(|change| change.ratio.interval())
            .map(|(low, high)| format!("{}..{}", percent(low), percent(high)));
        table.row(vec![
            grouped(level.load),
            rate(level.loading_per_sec),
            rate(level.unloading_per_sec),
            level.change.map_or("-".into(), |change| percent(change.ratio.value)),
            interval.unwrap_or_default(),
            if level.is_apart { "apart" } else { "" }.into(),
        ]);
    }
    let repeats = repeats_words(unloading.repeats);
    let compared = if unloading.never_back {
        "if the server came down: up = before, down = since then, with the range of all visits since"
    } else {
        "down/up within repeats, if the load held on the way up"
    };
    let title = format!("loads going up and down, {repeats}: good answers, medians; {compared}");
    wrap(&title, "", "") + &table.lines()
}

fn repeats_words(repeats: impl Into<u64>) -> String {
    match repeats.into() {
        1 => "once".into(),
        repeats => format!("{repeats} repeats"),
    }
}

pub(crate) fn load_cell(load: f64, sweep: Sweep) -> String {
    if sweep == Sweep::Rate { format_si(load) } else { grouped(load) }
}

/// The medians of p50 and p99 at a load.
pub(crate) fn response_cells(level: &Level) -> [Option<String>; 2] {
    let cell = |spread: Option<Spread>, is_lower_bound: bool| {
        spread.map(|spread| at_least(is_lower_bound, format_nanos(spread.median * 1e3)))
    };
    [cell(level.response_p50_us, level.response_p50_at_least), cell(level.response_p99_us, level.response_p99_at_least)]
}

fn row(level: &Level, sweep: Sweep) -> Vec<String> {
    let [p50, p99] = response_cells(level).map(|cell| cell.unwrap_or("-".into()));
    let part = |spread: Option<Spread>| spread.map(|s| format!("{:.1}", s.median)).unwrap_or_default();
    let range = level
        .throughput_per_sec
        .filter(|spread| spread.n > 1)
        .map(|spread| format!("{}..{}", format_si(spread.min), format_si(spread.max)));
    vec![
        load_cell(level.load, sweep),
        level.zone.word().into(),
        level.throughput_per_sec.map_or("-".into(), |spread| format_si(spread.median)),
        range.unwrap_or_default(),
        p50,
        p99,
        level.reap_of_p99_ratio.map(|spread| percent(spread.median)).unwrap_or_default(),
        part(level.cpu_us_per_request),
        part(level.cpu_user_us_per_request),
        part(level.cpu_system_us_per_request),
        part(level.softirq_us_per_request),
        level.cpus_busy_ratio.map(|spread| percent(spread.median)).unwrap_or_default(),
        format!("{}/{}", level.failing, level.points),
    ]
}

/// A line about the point just measured.
pub fn progress_line(point: &Point, elapsed_ns: u64, budget_ns: u64) -> String {
    let load = match (point.sweep, point.offered_per_sec()) {
        (Sweep::Yardstick, _) => "yardstick".into(),
        (Sweep::Axis, _) if point.axis.is_some() => point.axis.map(analyze::axis::place_words).unwrap_or_default(),
        (_, Some(rate)) => format!("{}/s offered", format_si(rate)),
        (_, None) => {
            let down = if point.sweep == Sweep::Unloading { ", down" } else { "" };
            format!("{} conns{down}", grouped(point.connections as f64))
        }
    };
    let mut parts = Vec::new();
    if let Some(rate) = point.value(names::THROUGHPUT) {
        parts.push(format!("{:>8}/s", format_si(rate)));
    }
    if let Some(p99) = point.value(names::RESPONSE_P99) {
        parts.push(format!("p99 {:>7}", format_nanos(p99 * 1e3)));
    }
    if let Some(us) = analyze::axis::layers::stack_us(point) {
        parts.push(format!("stack {us:>5.2} us/packet"));
    }
    if let Some(cpu) = analyze::zones::cpu_us(point) {
        parts.push(format!("{cpu:>5.1} us CPU"));
    }
    let failed = point.outcomes.failed_ratio();
    if failed > 0.0 {
        parts.push(format!("{} failed", percent(failed)));
    }
    let seconds = |nanos: u64| nanos / 1_000_000_000;
    format!(
        "{:>4} of {} s  repeat {}  {load:<14}  {}",
        seconds(elapsed_ns),
        seconds(budget_ns),
        point.repeat,
        parts.join("  ")
    )
    .trim_end()
    .to_string()
}
