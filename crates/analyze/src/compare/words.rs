//! A comparison in words: first the answer, then its exceptions, then what to do if it is undecided.

use super::{AtLoad, Better, Comparison, Conclusion, Difference, GOOD, Outcome, PLAN};
use record::units::{count, exact_percent, format_si};
use record::{Sweep, names};

/// Largest suggested multiple of the budget.
const MOST_TIMES: f64 = 20.0;
/// Maximum loads that are named because B differs there.
const MOST_LOADS: usize = 3;

/// The result in a few sentences; the first one is the answer.
pub fn headline(comparison: &Comparison) -> String {
    let found = found_words(comparison);
    let limit = || limit_words(comparison.figures.iter().filter(|figure| figure.outcome != Outcome::Untested));
    let main = || comparison.figures.iter().filter(|figure| figure.is_main);
    let open = || main().filter(|figure| matches!(figure.outcome, Outcome::Unclear | Outcome::Untested));
    let mut words = match comparison.conclusion {
        Conclusion::Regression => {
            format!("B {found}. A regression: the threshold is {}.", limit_words(comparison.regressions()))
        }
        Conclusion::NoRegression if found.is_empty() => no_difference(comparison),
        Conclusion::NoRegression => format!("B {found}. No regression: the threshold is {}.", limit()),
        Conclusion::CouldNotTell if comparison.figures.iter().all(|figure| figure.outcome == Outcome::Untested) => {
            "Could not tell: no figure could be tested.".into()
        }
        Conclusion::CouldNotTell if main().any(|figure| figure.is_invalid) => {
            "Could not tell: at least half of the points of a run did not measure the server; see the doubts.".into()
        }
        Conclusion::CouldNotTell if open().next().is_none() => format!(
            "Could not tell: at some loads one of the runs sent no request; at the others B is worse by no more than \
             {}.",
            limit()
        ),
        Conclusion::CouldNotTell => {
            let ranges: Vec<String> = open().filter_map(range_words).collect();
            let mut words = format!(
                "Could not tell whether B is worse than A by more than {}: {} ({}).",
                limit_words(open()),
                ranges.join(", "),
                extent(comparison)
            );
            if !found.is_empty() {
                words.push_str(&format!(" B {found}."));
            }
            words.push_str(&advice(comparison, open()));
            words
        }
    };
    words.push_str(&otherwise(comparison));
    let times = comparison.figures.iter().filter(|figure| !figure.is_main && figure.outcome == Outcome::Unclear);
    let times: Vec<String> = times.filter(|figure| !figure.is_invalid).filter_map(range_words).collect();
    if comparison.conclusion == Conclusion::NoRegression && !times.is_empty() {
        words.push_str(&format!(" Less certain: {}.", times.join(", ")));
    }
    words
}

/// Describes the differences: `answers 8.1 % fewer requests than A (6.4 % to 9.2 %; 13 loads, 6 repeats) and costs
/// 9.0 % more CPU per request (7.1 % to 11 %)`; empty if there are none.
fn found_words(comparison: &Comparison) -> String {
    // In a closed loop, the median time adds nothing to the throughput.
    let is_found = |name: &str| comparison.figure(name).is_some_and(Difference::is_found);
    let repeats_it =
        |figure: &Difference| figure.figure == names::RESPONSE_P50 && !figure.is_main && is_found(names::THROUGHPUT);
    let mut all: Vec<&Difference> =
        comparison.figures.iter().filter(|figure| figure.is_found() && !repeats_it(figure)).collect();
    let order = [PLAN.0, GOOD.0, names::THROUGHPUT, names::SERVER_CPU];
    all.sort_by_key(|figure| order.iter().position(|name| *name == figure.figure).unwrap_or(order.len()));
    // Figures that decide the conclusion come first.
    all.sort_by_key(|figure| comparison.conclusion == Conclusion::Regression && figure.outcome != Outcome::Regression);
    let part = |(at, figure): (usize, &&Difference)| {
        let ends = ends_words(figure).unwrap_or_default();
        if at > 0 {
            return format!("{} ({ends})", change_words(figure));
        }
        let than = if is_many(figure) { "as" } else { "than" };
        format!("{} {than} A ({ends}; {})", change_words(figure), extent(comparison))
    };
    let parts: Vec<String> = all.iter().enumerate().map(part).collect();
    match parts.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

fn no_difference(comparison: &Comparison) -> String {
    let main: Vec<&Difference> = comparison.figures.iter().filter(|figure| figure.is_main).collect();
    let ends = main.iter().filter_map(|figure| figure.ratio.interval());
    let most = ends.flat_map(|(low, high)| [1.0 - low, high - 1.0]).fold(0.0, f64::max);
    let names: Vec<&str> = main.iter().map(|figure| name(figure)).collect();
    format!("No difference above {} in {} ({}).", percent(most), names.join(" and "), extent(comparison))
}

fn extent(comparison: &Comparison) -> String {
    format!("{}, {}", count(comparison.loads.len(), "load"), count(comparison.repeats, "repeat"))
}

fn name(figure: &Difference) -> &'static str {
    if figure.figure == names::SERVER_CPU { "CPU per request" } else { figure.word }
}

pub(super) fn percent(share: f64) -> String {
    let percent = share.abs() * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn is_many(figure: &Difference) -> bool {
    figure.ratio.value > 2.0
}

/// The change of a figure without its interval: `answers 8.1 % fewer requests`.
pub(super) fn change_words(figure: &Difference) -> String {
    let ratio = figure.ratio.value;
    let many = is_many(figure);
    let (verb, [times, up, down], what) = match figure.figure {
        names::SERVER_CPU => ("costs", ["as much", "more", "less"], " CPU per request"),
        names::RESPONSE_P50 => ("has a median time", ["as long", "longer", "shorter"], ""),
        names::RESPONSE_P99 => ("has a p99", ["as long", "longer", "shorter"], ""),
        name if name == GOOD.0 => ("gives", ["as many", "more", "fewer"], " good answers"),
        name if name == PLAN.0 => {
            (if many { "has" } else { "has a" }, ["the", "higher", "lower"], " rate to plan with")
        }
        _ => ("answers", ["as many", "more", "fewer"], " requests"),
    };
    match (percent(ratio - 1.0), ratio > 1.0) {
        _ if many => format!("{verb} {ratio:.1} times {times}{what}"),
        (size, true) => format!("{verb} {size} {up}{what}"),
        (size, false) => format!("{verb} {size} {down}{what}"),
    }
}

/// The interval for [`change_words`]: `6.4 % to 9.2 %`.
pub(super) fn ends_words(figure: &Difference) -> Option<String> {
    let (low, high) = figure.ratio.interval()?;
    if is_many(figure) {
        return Some(format!("{low:.1} to {high:.1}"));
    }
    let sign = |ratio: f64| if figure.ratio.value > 1.0 { ratio - 1.0 } else { 1.0 - ratio };
    let (least, most) = (sign(low).min(sign(high)), sign(low).max(sign(high)));
    Some(format!("{} to {}", percent(least), percent(most)))
}

/// The interval of a figure: `throughput -7.1 % to +2.3 %`.
pub(super) fn range_words(figure: &Difference) -> Option<String> {
    let (low, high) = figure.ratio.interval()?;
    let signed = |ratio: f64| match ratio {
        many if many > 3.0 => format!("{many:.1} times"),
        ratio => format!("{}{}", if ratio < 1.0 { '-' } else { '+' }, percent(ratio - 1.0)),
    };
    Some(format!("{} {} to {}", name(figure), signed(low), signed(high)))
}

/// Describes the smallest change that would have been detected, and how to detect smaller ones.
fn advice<'a>(comparison: &Comparison, open: impl Iterator<Item = &'a Difference>) -> String {
    let known = open.filter_map(|figure| Some((figure, figure.detectable_ratio?)));
    let far = |(figure, ratio): &(&Difference, f64)| ratio / figure.threshold_ratio.max(1e-3);
    let Some((figure, ratio)) = known.max_by(|a, b| far(a).total_cmp(&far(b))) else { return String::new() };
    let sign = if figure.better == Better::Higher { "less" } else { "more" };
    let mut words = format!(" {} {sign} would have been found in {}", percent(ratio), name(figure));
    // The width of an interval is inversely proportional to the square root of the time.
    let times = (ratio / figure.threshold_ratio.max(1e-3)).powi(2).max(2.0);
    words.push_str(&match (comparison.is_paired, comparison.budget_s) {
        (true, Some(budget)) if times < MOST_TIMES => format!("; repeat with --budget {}.", minutes(budget * times)),
        (true, _) => "; repeat on a quieter machine.".into(),
        (false, _) => "; measure both in turn, so that drift cancels: find --compare-with.".into(),
    });
    words
}

/// Formats a duration, rounded up: `90s`, `3m`.
fn minutes(seconds: f64) -> String {
    let halves = (seconds / 30.0).ceil() as u64;
    if halves.is_multiple_of(2) { format!("{}m", halves / 2) } else { format!("{}s", halves * 30) }
}

/// Describes the loads at which B differs from the overall result, for the deciding figures.
fn otherwise(comparison: &Comparison) -> String {
    let mut found: Vec<(f64, String)> = Vec::new();
    for figure in comparison.figures.iter().filter(|figure| figure.is_main) {
        for at in figure.loads.iter().filter(|at| at.departs) {
            let said = format!("{} {:+.0} % at {}", name(figure), (at.ratio.value - 1.0) * 100.0, load_words(at));
            found.push(((at.ratio.value / figure.ratio.value).ln().abs(), said));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let said: Vec<String> = found.iter().take(MOST_LOADS).map(|(_, said)| said.clone()).collect();
    match said.as_slice() {
        [] => String::new(),
        all => format!(" Otherwise: {}.", all.join(", ")),
    }
}

/// Formats the thresholds of these differences: `5 %`, or `5 % (good answers: 0.1 %)`.
pub(super) fn limit_words<'a>(differences: impl Iterator<Item = &'a Difference>) -> String {
    let (good, others): (Vec<_>, Vec<_>) = differences.partition(|difference| difference.figure == GOOD.0);
    let least = |some: &[&Difference]| some.iter().map(|one| one.threshold_ratio).reduce(f64::min);
    match (least(&others), least(&good)) {
        (Some(limit), Some(good)) if good != limit => {
            format!("{} ({}: {})", exact_percent(limit), GOOD.1, exact_percent(good))
        }
        (limit, good) => limit.or(good).map_or(String::new(), exact_percent),
    }
}

/// Formats a load: `64 conns`, `81.2k/s`.
pub fn load_words(at: &AtLoad) -> String {
    match at.sweep {
        Sweep::Rate => format!("{}/s", format_si(at.load)),
        _ => count(at.load.round() as u64, "conn"),
    }
}
