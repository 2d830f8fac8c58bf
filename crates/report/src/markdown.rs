//! A run as one screen of Markdown for CI systems (GitHub's dialect, which GitLab reads too): the verdict, key
//! numbers, checks, the most severe doubts, and the path of the page.

use crate::check::Case;
use crate::page::key_numbers;
use crate::run::{gravest, heading};
use crate::text::table::Table;
use crate::text::{at_least, escaped, not_measured, percentile};
use analyze::Refused;
use analyze::compare::{Comparison, Price, headline, price_words, server_words};
use analyze::zones::{Findings, cpu_figure, percent};
use record::text::plain;
use record::units::{count, format_nanos, format_si};
use record::{Doubt, Point, RunDir, Sweep, names};
use verdict::Verdict;

/// Maximum causes, and sentences of doubt about a comparison.
const MOST_SENTENCES: usize = 5;

/// A run of `find` or `load`: verdict, causes, key numbers, checks, doubts.
pub fn run(run: &RunDir, findings: &Findings, verdict: &Verdict, checks: &[Case]) -> String {
    let title = format!("straingauge {}: {}", run.record.scenario.kind.command(), run.record.scenario.url());
    let mut out = headed(&title, &verdict.headline);
    out += &items(verdict.causes.iter().map(|cause| escaped(&cause.sentence())));
    out += &numbers(run, findings, verdict).markdown();
    out += &items(verdict.answer.iter().flat_map(|answer| &answer.settings).map(|setting| escaped(setting)));
    out += &checked(checks);
    out += &doubts(&verdict.doubts);
    out + &end(run)
}

/// A point that is not kept: key numbers, checks, doubts.
pub fn point(url: &str, point: &Point, checks: &[Case]) -> String {
    let out = headed(&format!("straingauge load: {url}"), &heading(point));
    out + &numbers_of_point(point).markdown() + &checked(checks) + &doubts(&point.doubts)
}

/// Two runs measured in turn: the comparison, then the verdict on each.
pub fn side_by_side(
    runs: (&RunDir, &RunDir),
    verdicts: (&Verdict, &Verdict),
    compared: Result<&Comparison, &Refused>,
    checks: &[Case],
) -> String {
    let title = format!("straingauge find: {}, in turn", runs.0.record.scenario.url());
    let of = |name: &str, run: &RunDir, verdict: &Verdict| {
        escaped(&format!("{name}, {}: {}", server_words(run), verdict.headline))
    };
    let said = [of("A", runs.0, verdicts.0), of("B", runs.1, verdicts.1)];
    let out = match compared {
        Ok(comparison) => headed(&title, &headline(comparison)) + &differences(comparison),
        Err(why) => headed(&title, &format!("Cannot compare: {why}")),
    };
    out + &items(said.into_iter()) + &checked(checks) + &doubts(&verdicts.0.doubts) + &end(runs.0)
}

/// A server without and with a command that runs with it.
pub fn price(
    (a, b): (&RunDir, &RunDir),
    verdict: &Verdict,
    price: &Price,
    comparison: &Comparison,
    checks: &[Case],
) -> String {
    let table = crate::price::table(a, b, price, comparison).markdown();
    let title = format!("straingauge find: {}, the price of '{}'", a.record.scenario.url(), price.command);
    let head = headed(&title, &price_words(price, comparison));
    head + &table + &checked(checks) + &doubts(&verdict.doubts) + &end(a)
}

/// Two kept runs, by name.
pub fn comparison(names: [&str; 2], comparison: &Comparison) -> String {
    let out = headed("straingauge compare", &headline(comparison)) + &differences(comparison);
    let shown = comparison.doubts.iter().take(MOST_SENTENCES).map(|doubt| escaped(doubt));
    let rest = comparison.doubts.len().saturating_sub(MOST_SENTENCES);
    let rest = (rest > 0).then(|| format!("and {} in the command's output", count(rest, "more doubt")));
    out + &items(names.iter().zip(["A", "B"]).map(|(name, which)| escaped(&format!("{which}: {name}"))))
        + &items(shown.chain(rest))
}

fn differences(comparison: &Comparison) -> String {
    let mut out = crate::compare::figures(["A", "B"], comparison).markdown();
    out.extend(crate::compare::left_out(comparison).map(|said| said + "\n\n"));
    out
}

/// The numbers at the top of the page; for a run without sweeps, those of its point.
fn numbers(run: &RunDir, findings: &Findings, verdict: &Verdict) -> Table {
    let mut table = Table::new(["figure", "value", "95 % interval, and why"], 3);
    let found = key_numbers(findings, verdict.answer.as_ref());
    if found.is_empty() {
        let single = run.points.iter().find(|point| point.sweep == Sweep::Single);
        return single.map_or(table, numbers_of_point);
    }
    for number in found {
        table.row(vec![number.name.into(), number.value_and_unit(), number.details()]);
    }
    table
}

fn numbers_of_point(point: &Point) -> Table {
    let mut table = Table::new(["figure", "value", "n"], 1);
    let time = |us: f64| format_nanos(us * 1e3);
    type Format<'a> = &'a dyn Fn(f64) -> String;
    let rows: [(&str, &str, Format<'_>); 4] = [
        ("throughput", names::THROUGHPUT, &|rate| format!("{}/s", format_si(rate))),
        ("p50", names::RESPONSE_P50, &time),
        ("p99", names::RESPONSE_P99, &time),
        ("CPU per request", names::SERVER_CPU, &|us| format!("{us:.1} us")),
    ];
    for (word, name, words) in rows {
        let figure = if name == names::SERVER_CPU { cpu_figure(point) } else { point.figures.get(name).cloned() };
        let figure = figure.as_ref();
        let value = match figure.and_then(|figure| figure.value) {
            Some(_) if word == "p99" => figure.and_then(|figure| percentile(figure, 0.99)).unwrap_or_default(),
            Some(value) => at_least(figure.is_some_and(|figure| figure.at_least), words(value)),
            None => not_measured(figure.and_then(|figure| figure.not_measured.as_deref()), 120),
        };
        let n = figure.and_then(|figure| figure.n).map(|n| record::units::grouped(n as f64));
        table.row(vec![word.into(), value, n.unwrap_or_default()]);
    }
    let outcomes = &point.outcomes;
    let finished = outcomes.completed().saturating_add(outcomes.errors());
    table.row(vec!["failed".into(), percent(outcomes.failed_ratio()), record::units::grouped(finished as f64)]);
    table
}

fn checked(checks: &[Case]) -> String {
    let mut table = Table::new(["check", "result", ""], 3);
    for case in checks {
        table.row(vec![case.name.clone(), case.result.word().into(), case.words.clone()]);
    }
    table.markdown()
}

fn doubts(all: &[Doubt]) -> String {
    let (shown, rest) = gravest(all);
    let item = |doubt: &Doubt| {
        format!("**{}** {} \u{2192} {}", doubt.severity.word(), escaped(&doubt.what), escaped(&doubt.remedy))
    };
    items(shown.iter().map(item).chain(rest.map(|rest| escaped(&rest))))
}

/// The path of the page, and the command that repeats the run.
fn end(run: &RunDir) -> String {
    let page = run.path.join("report.html");
    format!(
        "Page: {}\n\nRepeat:\n\n    {}\n",
        escaped(&page.display().to_string()),
        plain(run.record.scenario.repeat_command.trim(), 1000)
    )
}

fn headed(title: &str, sentence: &str) -> String {
    format!("### {}\n\n**{}**\n\n", escaped(title), escaped(sentence))
}

fn items(items: impl Iterator<Item = String>) -> String {
    let mut out: String = items.map(|item| format!("- {item}\n")).collect();
    if !out.is_empty() {
        out.push('\n');
    }
    out
}
