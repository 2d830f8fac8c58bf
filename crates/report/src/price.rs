//! The price of a command that ran beside the server, as text for a terminal.

use crate::text::table::Table;
use crate::text::{list, wrap_at};
use analyze::compare::{Comparison, Own, Price, price_words, server_words};
use analyze::statistics::Interval;
use analyze::zones::{self, PointFinding};
use record::units::format_bytes;
use record::{RunDir, Sweep};

/// Columns of a terminal.
const WIDTH: usize = 80;

/// The sentences, the price over all loads, the ratio at each load, doubts.
pub fn text(a: &RunDir, b: &RunDir, price: &Price, comparison: &Comparison) -> String {
    let title = format!("The price of '{}' beside {}", price.command, server_words(a));
    let mut out = wrap_at(WIDTH, &title, "", "  ") + &wrap_at(WIDTH, &price_words(price), "", "");
    out.push_str("\nover all loads\n");
    let mut table = Table::new(&HEADINGS, 1);
    rows(a, b, price).into_iter().for_each(|row| table.row(row));
    out.push_str(&table.lines());
    out.push_str("\nby load\n");
    let mut table = Table::new(&["load", "figure", "without", "with", "ratio", "interval", "p", "n"], 2);
    for difference in &comparison.differences {
        let mut cells = crate::compare::row(difference);
        cells.truncate(8);
        table.row(cells);
    }
    out.push_str(&table.lines());
    out + &list("doubts", &comparison.doubts)
}

/// The columns of [`rows`].
pub(crate) const HEADINGS: [&str; 7] = ["", "without", "with", "ratio", "95 % interval", "p", "n"];

/// Each figure over all loads; the yield point; what the command used itself.
pub(crate) fn rows(a: &RunDir, b: &RunDir, price: &Price) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = price
        .figures
        .iter()
        .map(|figure| {
            let mut cells = crate::compare::row(figure);
            cells.truncate(8);
            cells.split_off(1)
        })
        .collect();
    let yields = [a, b].map(|run| zones::of_run(run).connections.map(|found| yield_words(&found.yield_point)));
    if let [Some((without, ends)), Some((with, ends_with))] = yields {
        rows.push(vec!["yield point".into(), without, String::new(), String::new(), ends]);
        rows.push(vec![String::new(), String::new(), with, String::new(), ends_with]);
    }
    let mut own = |name: &str, own: &Option<Own>, words: &dyn Fn(f64) -> String| {
        let Some(Own { mean, interval, n, .. }) = own else { return };
        let ends = interval.map(|Interval { low, high, .. }| format!("{} to {}", words(low), words(high)));
        let cells = ["", &words(*mean), "", &ends.unwrap_or_default(), "", &n.to_string()];
        rows.push(std::iter::once(name).chain(cells).map(String::from).collect());
    };
    own("its own CPU", &price.own_cpus, &|cpus| format!("{:.2} %", cpus * 100.0));
    own("its memory", &price.own_memory_bytes, &format_bytes);
    rows
}

/// The yield point and its interval. Each has a row: side by side they do not fit 80 columns.
fn yield_words(point: &PointFinding) -> (String, String) {
    let ends = zones::interval(point, Sweep::Connections);
    let ends = ends.trim_start_matches(" (").trim_end_matches(')').to_string();
    let number = zones::estimate_number(point, Sweep::Connections);
    number.map_or_else(|| ("none".into(), String::new()), |number| (number, ends))
}
