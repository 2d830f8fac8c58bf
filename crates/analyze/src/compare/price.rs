//! What a command that runs beside a server costs: the server without and with it, in turn, round by round.
//!
//! A price is a ratio over all loads: of each round, the mean over the loads of the logarithms of with / without. The
//! test is that of the comparison, Student's t over the rounds. Found is a price that differs from none, not one beyond
//! a threshold; the threshold decides the exit code alone.

use super::words::limit_words;
use super::{
    Better, Conclusion, Difference, FIGURES, GOOD, Outcome, conclusion, good_threshold, half, half_invalid, judge,
    levels, of_logs, pairs_of, same_load, student_pairs,
};
use crate::doubted::missed_the_server;
use crate::statistics::student;
use crate::statistics::{Interval, mean};
use record::units::{count, format_bytes, grouped};
use record::{Criteria, Origin, Point, RunDir, names};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a command costs the server, and what it uses itself.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Price {
    /// The command, as typed; made safe to print.
    pub command: String,
    /// The loads that the figures are over, ascending.
    pub loads: Vec<f64>,
    /// Rounds that measured both sides.
    pub rounds: usize,
    /// Worse by more than this is a regression (0.05 = 5 %).
    pub threshold_ratio: f64,
    /// Confidence of intervals and tests.
    pub confidence_ratio: f64,
    /// Whether a figure is worse by more than the threshold.
    pub conclusion: Conclusion,
    /// Each figure over all loads: without is A, with is B. `detectable_ratio` is the smallest worsening that would
    /// have been found as different from none.
    pub figures: Vec<Difference>,
    /// CPU time of the command's own processes, in CPUs.
    pub own_cpus: Option<Own>,
    /// Their memory (proportional set size), bytes.
    pub own_memory_bytes: Option<Own>,
}

/// What a command uses itself, over the windows in which it ran.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Own {
    /// Mean over the windows.
    pub mean: f64,
    /// Student's interval over the rounds; absent with fewer than two.
    pub interval: Option<Interval>,
    /// Windows.
    pub n: usize,
    /// How it was obtained.
    pub origin: Option<Origin>,
}

impl Price {
    /// Whether a figure differs with the command, and not by chance.
    pub fn is_found(&self, difference: &Difference) -> bool {
        difference.p_value.is_some_and(|p| p < 1.0 - self.confidence_ratio) && !difference.is_invalid
    }
}

/// The price of the command beside which run B was measured; `None` if there was none, or nothing was measured on both
/// sides. A load that was not measured as intended is left out, unless all were so; one that the server fails only with
/// the command is not: that is its price.
pub fn price(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Option<Price> {
    let command = b.record.scenario.beside();
    if command.is_empty() {
        return None;
    }
    let criteria = a.record.scenario.sweep().map_or_else(Criteria::default, |sweep| sweep.criteria);
    let confidence_ratio = criteria.confidence_ratio;
    let threshold_ratio = threshold_ratio.clamp(0.0, 1.0);
    let (of_a, of_b) = (levels(a), levels(b));
    let mut common: Vec<(f64, &[&Point], &[&Point])> = of_a
        .iter()
        .filter_map(|(key, points)| {
            let (_, others) = of_b.iter().find(|(other, _)| same_load(*key, *other))?;
            Some((key.1, points.as_slice(), others.as_slice()))
        })
        .collect();
    let sweep = of_a.first()?.0.0;
    let is_valid = |(_, a, b): &(f64, &[&Point], &[&Point])| !half_invalid(a) && !half(b, missed_the_server);
    let is_invalid = !common.iter().any(is_valid);
    if !is_invalid {
        common.retain(is_valid);
    }
    let good: Vec<_> = common.iter().map(|(_, a, b)| good_threshold(a, b, &criteria, threshold_ratio)).collect();
    // The mean over the loads is compared with the mean of their thresholds.
    let good = good.iter().any(Option::is_some).then(|| {
        let least = threshold_ratio.min(criteria.error_ratio);
        good.iter().map(|most| most.unwrap_or(least)).sum::<f64>() / good.len() as f64
    });
    let (cpu, others) = FIGURES.split_last()?;
    let mut rounds = 0;
    let mut figures: Vec<Difference> = std::iter::once(cpu)
        .chain(others)
        .map(|figure| (figure, threshold_ratio))
        .chain(good.map(|most| (&GOOD, most)))
        .filter_map(|(figure, threshold_ratio)| {
            let mut by_round: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
            for (round, pair) in common.iter().flat_map(|(_, a, b)| pairs_of(a, b, figure.0)) {
                by_round.entry(round).or_default().push(pair);
            }
            rounds = rounds.max(by_round.len());
            let mean_of = |pairs: &[(f64, f64)], side: fn(&(f64, f64)) -> f64| {
                pairs.iter().map(side).sum::<f64>() / pairs.len() as f64
            };
            let pairs: Vec<(f64, f64)> =
                by_round.values().map(|pairs| (mean_of(pairs, |pair| pair.0), mean_of(pairs, |pair| pair.1))).collect();
            let logs = pairs.iter().copied().unzip();
            let at = (sweep, None);
            of_logs(at, figure, logs, student_pairs(&pairs), is_invalid, (confidence_ratio, threshold_ratio))
        })
        .collect();
    if figures.is_empty() {
        return None;
    }
    judge(&mut figures, confidence_ratio, 0.0);
    let with: Vec<&Point> = common.iter().flat_map(|(_, _, with)| with.iter().copied()).collect();
    Some(Price {
        command: record::text::plain(&command.join(" "), 120),
        loads: common.iter().map(|(load, ..)| *load).collect(),
        rounds,
        threshold_ratio,
        confidence_ratio,
        conclusion: conclusion(&figures),
        figures,
        own_cpus: own(&with, names::BESIDE_CPUS, confidence_ratio),
        own_memory_bytes: own(&with, names::BESIDE_MEMORY, confidence_ratio),
    })
}

fn own(points: &[&Point], name: &str, confidence: f64) -> Option<Own> {
    let mut by_round: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for point in points {
        if let Some(value) = point.value(name) {
            by_round.entry(point.repeat).or_default().push(value);
        }
    }
    let all: Vec<f64> = by_round.values().flatten().copied().collect();
    let rounds: Vec<f64> = by_round.values().filter_map(|values| mean(values)).collect();
    let center = mean(&rounds)?;
    let interval = (rounds.len() > 1).then_some(()).and_then(|()| {
        let n = rounds.len() as f64;
        let variance = rounds.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (n - 1.0);
        let reach = student(confidence, n - 1.0)? * (variance / n).sqrt();
        Some(Interval { low: (center - reach).max(0.0), high: center + reach, confidence })
    });
    let origin = points.iter().find_map(|point| point.figures.get(name)?.origin);
    Some(Own { mean: mean(&all)?, interval, n: all.len(), origin })
}

/// The price in a few sentences: what was found, what would have been, and what the command used itself.
pub fn price_words(price: &Price) -> String {
    let found: Vec<&Difference> = price.figures.iter().filter(|figure| price.is_found(figure)).collect();
    let rounds = count(price.rounds, "round");
    let loads = match price.loads.as_slice() {
        [one] => format!("at {}", count(one.round() as u64, "connection")),
        [first, .., last] => format!("from {} to {} connections", grouped(*first), grouped(*last)),
        [] => String::new(),
    };
    let tested = price.figures.iter().any(|figure| figure.p_value.is_some());
    let mut words = match () {
        () if !tested => format!(
            "Could not tell: {rounds} {loads} {} too few for a test.",
            if price.rounds == 1 { "is" } else { "are" }
        ),
        () if price.figures.iter().all(|figure| figure.is_invalid) => {
            format!("Could not tell: the points of {rounds} {loads} measured something else; see the doubts.")
        }
        () if found.is_empty() => String::new(),
        () => {
            let all: Vec<String> = found.iter().map(|figure| change(figure)).collect();
            format!("{}, in {rounds} {loads}.", all.join("; "))
        }
    };
    let unchanged: Vec<String> = price
        .figures
        .iter()
        .filter(|figure| !price.is_found(figure) && !figure.is_invalid)
        .filter_map(within)
        .collect();
    let unchanged = unchanged.join(", ");
    match (unchanged.is_empty() || !tested, found.is_empty()) {
        (true, _) => {}
        (false, true) => {
            words.push_str(&format!("No change of the server was found in {rounds} {loads}: {unchanged}."));
        }
        (false, false) => words.push_str(&format!(" No change was found in {unchanged}.")),
    }
    let worse = || price.figures.iter().filter(|figure| figure.outcome == Outcome::Regression);
    if worse().count() > 0 {
        let (limit, count) = (limit_words(worse()), worse().count());
        words.push_str(&format!(" Worse by more than {limit}: {count} of {}.", price.figures.len()));
    }
    let own = price
        .own_cpus
        .as_ref()
        .map(|own| cpus_words(own) + &range(own.interval, |cpus| format!("{:.2}", cpus * 100.0)));
    let memory = price.own_memory_bytes.as_ref().map(|own| format_bytes(own.mean));
    match (own, memory) {
        (Some(own), Some(memory)) => words.push_str(&format!(" The command itself used {own} and {memory} of memory.")),
        (Some(own), None) => words.push_str(&format!(" The command itself used {own}.")),
        _ => {}
    }
    words
}

/// CPU time in words: `0.81 % of a CPU`.
fn cpus_words(own: &Own) -> String {
    format!("{:.2} % of a CPU", own.mean * 100.0)
}

fn range(interval: Option<Interval>, words: impl Fn(f64) -> String) -> String {
    interval.map_or(String::new(), |at| format!(" ({} to {})", words(at.low), words(at.high)))
}

/// What was found of a figure: `CPU/request rises by 3.1 % (2.2 to 4.0)`.
fn change(figure: &Difference) -> String {
    let is_up = figure.ratio > 1.0;
    let is_plural = figure.figure == GOOD.0;
    let is_cost = is_up && figure.figure == names::SERVER_CPU;
    let percent = |ratio: f64| (ratio - 1.0) * if is_up { 100.0 } else { -100.0 };
    let ends = figure.interval.map(|at| {
        let (low, high) = if is_up { (at.low, at.high) } else { (at.high, at.low) };
        format!(" ({:.1} to {:.1})", percent(low), percent(high))
    });
    let size = format!("{:.1} %{}", percent(figure.ratio), ends.unwrap_or_default());
    match (is_cost, is_up) {
        (true, _) => format!("It costs {size} of the server's CPU per request"),
        (_, true) if is_plural => format!("{} rise by {size}", figure.word),
        (_, false) if is_plural => format!("{} fall by {size}", figure.word),
        (_, true) => format!("{} rises by {size}", figure.word),
        (_, false) => format!("{} falls by {size}", figure.word),
    }
}

/// A figure in which no change was found: its interval, and the worsening that would have been found.
fn within(figure: &Difference) -> Option<String> {
    let at = figure.interval?;
    let seen = figure.detectable_ratio.filter(|ratio| *ratio < 10.0).map_or(String::new(), |ratio| {
        let sign = if figure.better == Better::Higher { '-' } else { '+' };
        format!("; {sign}{:.1} % would have been found", ratio * 100.0)
    });
    Some(format!("{} ({:+.1} to {:+.1} %{seen})", figure.word, (at.low - 1.0) * 100.0, (at.high - 1.0) * 100.0))
}
