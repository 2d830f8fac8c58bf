//! The table of slow-downs.

use crate::text::table::Table;
use crate::text::wrap;
use analyze::axis::slow_down::{CHEAPER_RATIO, Effect};
use analyze::axis::{AxisFindings, effect_words, slowed_words};
use analyze::zones::percent;
use record::units::format_si;
use record::{Axis, Estimate};

/// A column: heading, unit on the page, and its cell.
pub(crate) type EffectColumn = (&'static str, &'static str, fn(&Effect) -> String);

pub(crate) const TITLE: &str = "What would help most";

fn slope(found: Option<Estimate>) -> String {
    let Some(found) = found else { return String::new() };
    let range = found.interval().map(|(low, high)| format!(" ({}..{})", short(low, 1), short(high, 1)));
    short(found.value, 2) + &range.unwrap_or_default()
}

fn short(value: f64, decimals: usize) -> String {
    if value.abs() < 100.0 { format!("{value:.decimals$}") } else { format_si(value) }
}

fn reached(found: Option<Estimate>) -> String {
    found.map(|found| format!("{:.2}", found.value)).unwrap_or_default()
}

pub(crate) const COLUMNS: &[EffectColumn] = &[
    ("reached", "times a request", |effect| reached(effect.reached_per_request)),
    ("added", "us per request, at most", |effect| format!("{:.1}", effect.most_added_us)),
    ("time", "us per us added", |effect| slope(effect.time)),
    ("p99", "us per us added", |effect| slope(effect.p99)),
    ("CPU", "us per us added", |effect| slope(effect.cpu)),
    ("linear", "", |effect| match effect.is_linear {
        Some(true) => "yes".into(),
        Some(false) => "no".into(),
        None => String::new(),
    }),
];

pub(crate) fn slow_downs(axes: &[AxisFindings]) -> Vec<&AxisFindings> {
    axes.iter().filter(|axis| axis.axis == Axis::SlowDown).collect()
}

pub(super) fn table(axes: &[AxisFindings]) -> String {
    let slowed = slow_downs(axes);
    let Some(first) = slowed.first() else { return String::new() };
    let headings = std::iter::once("place").chain(COLUMNS.iter().map(|(name, ..)| *name));
    let (mut table, mut forecasts) = (Table::new(headings, 1), String::new());
    for axis in &slowed {
        let Some(place) = axis.slowed else { continue };
        let cells = |(.., words): &EffectColumn| axis.effect.as_ref().map(words).unwrap_or_default();
        table.row(std::iter::once(place.word().to_string()).chain(COLUMNS.iter().map(cells)).collect());
        let forecast = format!("{}: {}", slowed_words(place), effect_words(axis.effect.as_ref()));
        forecasts.push_str(&wrap(&forecast, "  ", "    "));
    }
    let title = format!("{TITLE}: if a request took {} less of its CPU time at", percent(CHEAPER_RATIO));
    let explained = format!(
        "\nMeasured, {} repeats: change of each figure in us per us of CPU time added to a request at the place (95 % \
         interval); time is 1 / throughput",
        first.repeats
    );
    wrap(&title, "", "") + &forecasts + &wrap(&explained, "", "") + &table.lines()
}
