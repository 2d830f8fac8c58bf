//! The cost of a command that runs with a server: the server is measured without and with it, in turn, round by
//! round. A significant difference is reported; the threshold decides only the exit code.

use super::words::{change_words, ends_words, limit_words, percent, range_words};
use super::{Better, Comparison, Difference, Outcome};
use crate::shown::in_brackets;
use record::units::{count, format_bytes, grouped};
use record::{Estimate, Point, RunDir, names};
use serde::Serialize;
use statistics::{mean, mean_estimate};
use std::collections::BTreeMap;

/// The cost of the command of `find --beside`.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Price {
    /// The command as typed; made safe to print.
    pub command: String,
    /// CPU time of the command's own processes, in CPUs: mean over its windows, with Student's interval.
    pub own_cpus: Option<Estimate>,
    /// Memory of the command's processes (proportional set size), bytes.
    pub own_memory_bytes: Option<Estimate>,
}

/// The cost of the command in run B; `None` if there was none.
pub fn price(b: &RunDir, confidence: f64) -> Option<Price> {
    let command = b.record.scenario.beside();
    (!command.is_empty()).then(|| Price {
        command: record::text::plain(&command.join(" "), 120),
        own_cpus: own(&b.points, names::BESIDE_CPUS, confidence),
        own_memory_bytes: own(&b.points, names::BESIDE_MEMORY, confidence),
    })
}

fn own(points: &[Point], name: &str, confidence: f64) -> Option<Estimate> {
    let mut by_round: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for point in points {
        by_round.entry(point.repeat).or_default().extend(point.value(name));
    }
    let rounds: Vec<f64> = by_round.values().filter_map(mean).collect();
    let found = mean_estimate(&rounds, confidence)?;
    Some(Estimate { low: found.low.map(|low| low.max(0.0)), ..found })
}

/// Describes the cost in a few sentences: the changes, the smallest change that would have been found, and what the
/// command itself used.
pub fn price_words(price: &Price, comparison: &Comparison) -> String {
    let mut all: Vec<&Difference> = comparison.figures.iter().collect();
    all.sort_by_key(|figure| figure.figure != names::SERVER_CPU);
    let (found, others): (Vec<&Difference>, Vec<&Difference>) = all.into_iter().partition(|figure| figure.is_found());
    let rounds = count(comparison.repeats, "round");
    let loads = match comparison.loads.as_slice() {
        [one] => format!("at {}", count(one.round() as u64, "connection")),
        [first, .., last] => format!("from {} to {} connections", grouped(*first), grouped(*last)),
        [] => String::new(),
    };
    let mut said = Vec::new();
    if comparison.figures.iter().all(|figure| figure.outcome == Outcome::Untested) {
        let are = if comparison.repeats == 1 { "is" } else { "are" };
        said.push(format!("Could not tell: {rounds} {loads} {are} too few for a test."));
    } else if comparison.figures.iter().all(|figure| figure.is_invalid) {
        said.push(format!(
            "Could not tell: the points of {rounds} {loads} did not measure the server; see the doubts."
        ));
    } else if !found.is_empty() {
        let change =
            |figure: &&Difference| format!("{} ({})", change_words(figure), ends_words(figure).unwrap_or_default());
        let all: Vec<String> = found.iter().map(change).collect();
        said.push(format!("With it, the server {}, in {rounds} {loads}.", all.join("; ")));
    }
    let unchanged: Vec<String> =
        others.iter().filter(|figure| !figure.is_invalid).filter_map(|figure| within(figure)).collect();
    let unchanged = unchanged.join(", ");
    match (unchanged.is_empty(), found.is_empty()) {
        (true, _) => {}
        (false, true) => said.push(format!("No change of the server was found in {rounds} {loads}: {unchanged}.")),
        (false, false) => said.push(format!("No change was found in {unchanged}.")),
    }
    let worse: Vec<&str> = comparison.regressions().map(|figure| figure.word).collect();
    if !worse.is_empty() {
        let limit = limit_words(comparison.regressions());
        said.push(format!("A regression at a threshold of {limit}: {}.", worse.join(", ")));
    }
    let own = price.own_cpus.map(|own| {
        let percent = |cpus: f64| format!("{:.2}", cpus * 100.0);
        format!("{} % of a CPU{}", percent(own.value), in_brackets(&own, percent))
    });
    let memory = price.own_memory_bytes.map(|own| format!(" and {} of memory", format_bytes(own.value)));
    said.extend(own.map(|own| format!("The command itself used {own}{}.", memory.unwrap_or_default())));
    said.join(" ")
}

/// Describes a figure without a significant change: its interval, and the smallest change that would have been found.
fn within(figure: &Difference) -> Option<String> {
    let seen = figure.detectable_ratio.filter(|ratio| *ratio < 10.0).map_or(String::new(), |ratio| {
        let sign = if figure.better == Better::Higher { '-' } else { '+' };
        format!(" (a change of {sign}{} would have been found)", percent(ratio))
    });
    Some(range_words(figure)? + &seen)
}
