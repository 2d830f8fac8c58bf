//! A comparison in words.

use super::{Better, Comparison, Conclusion, Difference, GOOD, Outcome};
use record::Sweep;
use record::units::{count, exact_percent, format_si};

/// The result in a sentence, and the changes that these points would have shown.
pub fn headline(comparison: &Comparison) -> String {
    let of = |outcome| comparison.differences.iter().filter(move |difference| difference.outcome == outcome);
    let number = |outcome| of(outcome).count();
    let all = comparison.differences.len();
    let untested = number(Outcome::Untested);
    let tests = all - untested;
    let limit = |outcome| limit_words(of(outcome));
    let size = |difference: &Difference| difference.ratio.ln().abs();
    let most = |outcome: Outcome| {
        of(outcome).max_by(|a, b| size(a).total_cmp(&size(b))).map_or(String::new(), |most| {
            format!("; most in {} at {}: {:+.1} %", most.word, load_words(most), (most.ratio - 1.0) * 100.0)
        })
    };
    let mut words = match comparison.conclusion {
        Conclusion::Regression => format!(
            "B is worse than A by more than {} in {} of {}{}.",
            limit(Outcome::Regression),
            number(Outcome::Regression),
            count(tests as u64, "test"),
            most(Outcome::Regression)
        ),
        Conclusion::NoRegression => {
            let limit = limit_words(comparison.differences.iter());
            let where_ = if tests == 1 { "the one test".into() } else { format!("all {tests} tests") };
            format!("No regression: in {where_} B is worse by no more than {limit}.")
        }
        Conclusion::CouldNotTell if tests == 0 => "Could not tell: nothing could be tested.".into(),
        Conclusion::CouldNotTell if number(Outcome::Unclear) + untested == 0 => format!(
            "Could not tell: at some loads one of the runs sent no request; in the {} at others B is worse by no more \
             than {}.",
            count(tests as u64, "test"),
            limit_words(comparison.differences.iter())
        ),
        Conclusion::CouldNotTell => format!(
            "Could not tell: {} of {} neither show nor exclude that B is worse by more than {}.",
            number(Outcome::Unclear),
            count(tests as u64, "test"),
            limit(Outcome::Unclear)
        ),
    };
    if comparison.conclusion == Conclusion::Regression && number(Outcome::Unclear) > 0 {
        words.push_str(&format!(" {} could not tell.", count(number(Outcome::Unclear), "test")));
    }
    if number(Outcome::Improvement) > 0 {
        let better = most(Outcome::Improvement);
        let (better_in, limit) = (number(Outcome::Improvement), limit(Outcome::Improvement));
        words.push_str(&format!(" {better_in} better by more than {limit}{better}."));
    }
    if untested > 0 && tests > 0 {
        words.push_str(&format!(" {untested} of {all} figures have too few points for a test."));
    }
    let seen = detectable(comparison);
    if !seen.is_empty() {
        words.push_str(&format!(" Seen in 8 of 10 such comparisons: {}.", seen.join(", ")));
    }
    words
}

/// The thresholds of these differences: `5 %`, or `5 % (good answers: 0.1 %)`.
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

/// The worsening of each figure that these points would have shown: from the most sensitive load to the least.
fn detectable(comparison: &Comparison) -> Vec<String> {
    let mut words: Vec<&str> = comparison.differences.iter().map(|difference| difference.word).collect();
    let mut known = Vec::new();
    words.retain(|word| {
        !known.contains(word) && {
            known.push(*word);
            true
        }
    });
    words
        .into_iter()
        .filter_map(|word| {
            let of = || comparison.differences.iter().filter(|difference| difference.word == word);
            let ratios: Vec<f64> = of().filter_map(|difference| difference.detectable_ratio).collect();
            let (low, high) = crate::statistics::range(&ratios)?;
            let sign = if of().next()?.better == Better::Higher { '-' } else { '+' };
            // Beyond tenfold the exact number means nothing more.
            let percent = |ratio: f64| match ratio > 10.0 {
                true => format!("over {sign}1000 %"),
                false => format!("{sign}{:.0} %", (ratio * 100.0).ceil()),
            };
            let (low, high) = (percent(low), percent(high));
            Some(if low == high { format!("{word} {low}") } else { format!("{word} {low} to {high}") })
        })
        .collect()
}

/// The load of a difference: `64 conns`, `81.2k/s`, `all loads`.
pub fn load_words(difference: &Difference) -> String {
    match (difference.load, difference.sweep) {
        (None, _) => "all loads".into(),
        (Some(load), Sweep::Rate) => format!("{}/s", format_si(load)),
        (Some(load), _) => count(load.round() as u64, "conn"),
    }
}
