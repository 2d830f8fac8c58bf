//! The cost of a command that ran with the server, for a terminal.

use crate::compare::{by_load, headings};
use crate::text::table::Table;
use crate::text::{list, wrap_at};
use analyze::compare::{Comparison, Price, price_words, server_words};
use analyze::zones::{self, PointFinding};
use record::units::format_bytes;
use record::{Estimate, RunDir, Sweep};

const WIDTH: usize = 80;
pub(crate) const SIDES: [&str; 2] = ["without", "with"];

/// Sentences, the cost over all loads, ratios by load, doubts.
pub fn text(a: &RunDir, b: &RunDir, price: &Price, comparison: &Comparison) -> String {
    let title = format!("The price of '{}' for {}", price.command, server_words(a));
    let mut out = wrap_at(WIDTH, &title, "", "  ") + &wrap_at(WIDTH, &price_words(price, comparison), "", "");
    out.push_str("\nover all loads\n");
    out.push_str(&table(a, b, price, comparison).lines());
    out.push_str(&by_load(SIDES, comparison));
    out + &list("doubts", &comparison.doubts)
}

pub(crate) fn table(a: &RunDir, b: &RunDir, price: &Price, comparison: &Comparison) -> Table {
    let units = ["", "geometric mean", "geometric mean", "with / without", "", "rounds"];
    let columns = headings(SIDES).into_iter().zip(units);
    Table::titled("Over all loads", columns, rows(a, b, price, comparison), "").aligned(1)
}

/// Each figure over all loads, the yield point, and the command's own CPU time and memory.
fn rows(a: &RunDir, b: &RunDir, price: &Price, comparison: &Comparison) -> Vec<Vec<String>> {
    let cells = |figure| {
        let mut cells = crate::compare::row(figure);
        cells.truncate(6);
        cells
    };
    let mut rows: Vec<Vec<String>> = comparison.figures.iter().map(cells).collect();
    let yields = [a, b].map(|run| zones::of_run(run).connections.map(|found| yield_words(&found.yield_point)));
    if let [Some((without, ends)), Some((with, ends_with))] = yields {
        rows.push(vec!["yield point".into(), without, String::new(), String::new(), ends]);
        rows.push(vec![String::new(), String::new(), with, String::new(), ends_with]);
    }
    let mut own = |name: &str, own: Option<Estimate>, words: &dyn Fn(f64) -> String| {
        let Some(own) = own else { return };
        let ends = own.interval().map(|(low, high)| format!("{} to {}", words(low), words(high)));
        let cells = ["", &words(own.value), "", &ends.unwrap_or_default(), &own.n.to_string()];
        rows.push(std::iter::once(name).chain(cells).map(String::from).collect());
    };
    own("its own CPU", price.own_cpus, &|cpus| format!("{:.2} %", cpus * 100.0));
    own("its memory", price.own_memory_bytes, &format_bytes);
    rows
}

/// The yield point and its interval, each for its own row, because together they exceed 80 columns.
fn yield_words(point: &PointFinding) -> (String, String) {
    let ends = zones::interval(point, Sweep::Connections);
    let ends = ends.trim_start_matches(" (").trim_end_matches(')').to_string();
    let number = zones::estimate_number(point, Sweep::Connections);
    number.map_or_else(|| ("none".into(), String::new()), |number| (number, ends))
}
