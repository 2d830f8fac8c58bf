//! A comparison as text for a terminal: the sentence first, then a table.

use crate::json::{Content, Output};
use crate::text::table::Table;
use crate::text::{list, wrap};
use analyze::compare::{Comparison, Difference, Outcome, headline, load_words};
use record::units::{count, format_nanos, format_si};

/// Headline, table, doubts.
pub fn text(comparison: &Comparison) -> String {
    let mut out = wrap(&headline(comparison), "", "");
    out.push('\n');
    out.push_str(&table(comparison.differences.iter()).lines());
    out.extend(left_out(comparison).map(|said| format!("  {said}\n")));
    out + &list("doubts", &comparison.doubts)
}

/// The loads that only one of the runs measured.
pub(crate) fn left_out(comparison: &Comparison) -> Option<String> {
    let (were, are) = if comparison.unmatched == 1 { ("was", "is") } else { ("were", "are") };
    let loads = count(comparison.unmatched, "load");
    (comparison.unmatched > 0).then(|| format!("{loads} {were} measured in one run only and {are} left out"))
}

fn table<'a>(differences: impl Iterator<Item = &'a Difference>) -> Table {
    let mut table = Table::new(&["load", "figure", "A", "B", "B / A", "95 % interval", "p", "n", ""], 2);
    for difference in differences {
        table.row(row(difference));
    }
    table
}

/// The most rows where there is one screen for all.
const MOST_ROWS: usize = 16;

/// The same table with the gravest differences only, and the number of those left out.
pub(crate) fn most_grave(comparison: &Comparison) -> (Table, usize) {
    let mut by_gravity: Vec<&Difference> = comparison.differences.iter().collect();
    by_gravity.sort_by_key(|difference| match difference.outcome {
        Outcome::Regression => 0,
        Outcome::Unclear => 1,
        Outcome::Untested => 2,
        Outcome::Improvement => 3,
        Outcome::NotWorse => 4,
    });
    (table(by_gravity.iter().take(MOST_ROWS).copied()), by_gravity.len().saturating_sub(MOST_ROWS))
}

/// The comparison as JSON.
pub fn json(comparison: &Comparison) -> serde_json::Value {
    Output::from(Content::Comparison { comparison }).value()
}

/// The cells of a difference.
pub(crate) fn row(difference: &Difference) -> Vec<String> {
    let value = |value: f64| match difference.word {
        "throughput" => format!("{}/s", format_si(value)),
        "good answers" => format!("{:.1} %", 100.0 * value),
        _ => format_nanos(value * 1e3),
    };
    vec![
        load_words(difference),
        difference.word.into(),
        value(difference.means.0),
        value(difference.means.1),
        format!("{:.3}", difference.ratio),
        difference.interval.map(|i| format!("{:.3} to {:.3}", i.low, i.high)).unwrap_or_default(),
        difference.p_value.map(|p| if p < 0.001 { "<0.001".into() } else { format!("{p:.3}") }).unwrap_or_default(),
        format!("{}/{}", difference.n.0, difference.n.1),
        difference.outcome.word().into(),
    ]
}
