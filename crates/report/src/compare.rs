//! A comparison as text for a terminal: the verdict, each figure over all loads, then ratios by load.

use crate::json::{Content, Output};
use crate::text::table::Table;
use crate::text::{list, wrap};
use analyze::compare::{AtLoad, Comparison, Difference, headline, load_words};
use record::Estimate;
use record::units::{count, format_nanos, format_si};

/// Headline, tables, doubts.
pub fn text(comparison: &Comparison) -> String {
    let mut out = wrap(&headline(comparison), "", "");
    out.push('\n');
    out.push_str(&figures(["A", "B"], comparison).lines());
    out.push_str(&by_load(["A", "B"], comparison));
    out.extend(left_out(comparison).map(|said| format!("  {said}\n")));
    out + &list("doubts", &comparison.doubts)
}

/// Loads that only one run measured, and disturbed points.
pub(crate) fn left_out(comparison: &Comparison) -> Option<String> {
    let (were, are) = if comparison.unmatched == 1 { ("was", "is") } else { ("were", "are") };
    let loads = count(comparison.unmatched, "load");
    let loads =
        (comparison.unmatched > 0).then(|| format!("{loads} {were} measured in one run only and {are} left out"));
    let points = comparison.figures.iter().map(|figure| figure.ratio.left_out).max().unwrap_or(0);
    let (were, are) = if points == 1 { ("was", "is") } else { ("were", "are") };
    let again = count(points, "disturbed point");
    let again = (points > 0).then(|| format!("{again} {were} measured again and {are} left out"));
    let said: Vec<String> = loads.into_iter().chain(again).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The columns of [`figures`]; `a` and `b` name the sides.
pub(crate) fn headings([a, b]: [&str; 2]) -> [&str; 7] {
    let ratio = if (a, b) == ("A", "B") { "B / A" } else { "ratio" };
    ["", a, b, ratio, "interval", "n", ""]
}

pub(crate) fn figures(names: [&str; 2], comparison: &Comparison) -> Table {
    let units = ["", "geometric mean", "geometric mean", "ratio", "", "repeats", ""];
    let rows = comparison.figures.iter().map(row).collect();
    Table::titled("Over all loads", headings(names).into_iter().zip(units), rows, "").aligned(1)
}

pub(crate) fn row(figure: &Difference) -> Vec<String> {
    let value = value(figure.word);
    vec![
        figure.word.into(),
        value(figure.a),
        value(figure.b),
        format!("{:.3}", figure.ratio.value),
        interval(&figure.ratio),
        figure.ratio.n.to_string(),
        figure.outcome.word().into(),
    ]
}

fn value(word: &str) -> impl Fn(f64) -> String {
    move |value: f64| match word {
        "throughput" | "plan" => format!("{}/s", format_si(value)),
        "good answers" => format!("{:.1} %", 100.0 * value),
        _ => format_nanos(value * 1e3),
    }
}

fn interval(ratio: &Estimate) -> String {
    // Beyond a factor of thousand the exact number is noise.
    let end = |ratio: f64| if ratio > 1000.0 { "over 1000".into() } else { format!("{ratio:.3}") };
    ratio.interval().map(|(low, high)| format!("{} to {}", end(low), end(high))).unwrap_or_default()
}

/// The ratios at each load; empty with a single load. A star marks ratios that differ from those of the other loads.
pub(crate) fn by_load([a, b]: [&str; 2], comparison: &Comparison) -> String {
    if comparison.loads.len() < 2 {
        return String::new();
    }
    let figures: Vec<&Difference> = comparison.figures.iter().filter(|figure| !figure.loads.is_empty()).collect();
    let mut table = Table::new(std::iter::once("").chain(figures.iter().map(|figure| figure.word)), 1);
    let of_load = |figure: &&Difference, load: f64| {
        let at = figure.loads.iter().find(|at| at.load == load);
        at.map_or(String::new(), |at| format!("{:.3}{}", at.ratio.value, if at.departs { "*" } else { " " }))
    };
    for load in &comparison.loads {
        let Some(at) = figures.iter().flat_map(|figure| &figure.loads).find(|at| at.load == *load) else { continue };
        table.row(std::iter::once(load_words(at)).chain(figures.iter().map(|figure| of_load(figure, *load))).collect());
    }
    let departs = figures.iter().flat_map(|figure| &figure.loads).any(|at| at.departs);
    let star = if departs { "; * differs significantly from the other loads" } else { "" };
    format!("\n{b} / {a} by load{star}\n{}", table.lines())
}

pub(crate) fn load_row(figure: &Difference, at: &AtLoad) -> Vec<String> {
    let value = value(figure.word);
    vec![
        load_words(at),
        figure.word.into(),
        value(at.a),
        value(at.b),
        format!("{:.3}", at.ratio.value),
        interval(&at.ratio),
        at.ratio.n.to_string(),
        if at.departs { "otherwise".into() } else { String::new() },
    ]
}

/// The comparison as JSON.
pub fn json(comparison: &Comparison) -> serde_json::Value {
    Output::from(Content::Comparison { comparison }).value()
}
