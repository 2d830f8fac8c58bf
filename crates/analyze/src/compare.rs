//! Compares two runs of one sweep: at each load that both measured, the ratio B / A of each figure with its interval
//! and Welch's t-test on the logarithms; p-values are corrected for the number of tests (Holm, 1979). If the runs were
//! measured in turn, round by round, the points of a round are compared with each other, so drift cancels.
//!
//! A difference is a regression when its interval lies beyond the threshold, and none when it lies on the near side of
//! it. If the interval contains the threshold, the result is "could not tell".

pub mod costs;
mod price;
mod subjects;
mod words;

pub use price::{Own, Price, price, price_words};
pub use subjects::{is_same_scenario, program, request_words, server_words};
pub use words::{headline, load_words};

use crate::disturbance::quiet_first;
use crate::doubted;
use crate::point::{good_per_sec, lost_ratio};
use crate::statistics::Interval;
use crate::statistics::student;
use crate::zones;
use record::{Criteria, Point, RunDir, Severity, Sweep, names};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// The figures that are compared: name, words, direction.
const FIGURES: [Figure; 4] = [
    (names::THROUGHPUT, "throughput", Better::Higher),
    (names::RESPONSE_P50, "p50", Better::Lower),
    (names::RESPONSE_P99, "p99", Better::Lower),
    (names::SERVER_CPU, "CPU/request", Better::Lower),
];
/// Good answers as a share of the requests: compared where one of the runs leaves requests or connections without.
const GOOD: Figure = ("outcomes.good_ratio", "good answers", Better::Higher);

record::worded! {
    /// The result for one figure at one load.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Outcome {
        /// Worse by more than the threshold, and not by chance.
        Regression = "worse",
        /// Better by more than the threshold, and not by chance.
        Improvement = "better",
        /// The interval ends before the threshold: not worse by more than that.
        NotWorse = "not worse",
        /// The interval holds the threshold, or the points measured something else: a regression was neither shown nor
        /// excluded.
        Unclear = "could not tell",
        /// Fewer than two points on a side: no test.
        Untested = "not tested",
    }
}

/// One figure at one load.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// Sweep of the points.
    pub sweep: Sweep,
    /// Connections, or offered requests per second; absent where it is over all loads.
    pub load: Option<f64>,
    /// Name of the figure.
    pub figure: &'static str,
    /// The short word for it.
    pub word: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Geometric means of A and B, in the figure's unit.
    pub means: (f64, f64),
    /// Points of A and B.
    pub n: (usize, usize),
    /// B / A.
    pub ratio: f64,
    /// Its interval; absent without a test.
    pub interval: Option<Interval>,
    /// Two-sided p-value of no difference, after Holm's correction; absent without a test.
    pub p_value: Option<f64>,
    /// Two-sided p-value of a difference that is no larger than the threshold, after Holm's correction; absent without
    /// a test.
    pub p_beyond: Option<f64>,
    /// The smallest worsening (0.1 = 10 %) that these points would have shown as a regression in 8 of 10 comparisons;
    /// absent without a test, and where no worsening would have been shown.
    pub detectable_ratio: Option<f64>,
    /// Standard error of the logarithm of the ratio, and its degrees of freedom; absent without a test.
    #[serde(skip)]
    test: Option<(f64, f64)>,
    /// Worse by more than this is a regression.
    #[serde(skip)]
    pub threshold_ratio: f64,
    /// Half of the points of either run measured something else than intended (the client was saturated).
    pub is_invalid: bool,
    /// The result.
    pub outcome: Outcome,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// At least one figure is worse by more than the threshold.
    Regression,
    /// No regression at any figure at any common load.
    NoRegression,
    /// No regression was seen, and at least one test could not have excluded one.
    CouldNotTell,
}

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Worse by more than this is a regression (0.05 = 5 %).
    pub threshold_ratio: f64,
    /// Confidence of intervals and tests.
    pub confidence_ratio: f64,
    /// The result.
    pub conclusion: Conclusion,
    /// Ascending by sweep and load.
    pub differences: Vec<Difference>,
    /// Loads that only one of the runs measured.
    pub unmatched: usize,
    /// Reasons not to trust it.
    pub doubts: Vec<String>,
}

/// Why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// No load in common.
    #[error("{a} and {b} have no load in common: measure both with the same --connections, --rate or sweep")]
    NothingInCommon {
        /// First run.
        a: String,
        /// Second run.
        b: String,
    },
}

impl Comparison {
    /// The differences that are regressions.
    pub fn regressions(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.outcome == Outcome::Regression)
    }
}

fn conclusion(differences: &[Difference]) -> Conclusion {
    let has = |wanted: &[Outcome]| differences.iter().any(|difference| wanted.contains(&difference.outcome));
    match () {
        () if has(&[Outcome::Regression]) => Conclusion::Regression,
        () if differences.is_empty() || has(&[Outcome::Unclear, Outcome::Untested]) => Conclusion::CouldNotTell,
        () => Conclusion::NoRegression,
    }
}

type Level<'a> = ((Sweep, f64), Vec<&'a Point>);

/// A single point of a rate is an open loop's, as one of a search over rates is.
fn levels(run: &RunDir) -> Vec<Level<'_>> {
    let sweep = |point: &Point| match point.sweep {
        Sweep::Single if point.offered_per_sec().is_some() => Sweep::Rate,
        sweep => sweep,
    };
    let mut loaded: Vec<((Sweep, f64), &Point)> = run
        .points
        .iter()
        .filter(|point| matches!(point.sweep, Sweep::Connections | Sweep::Rate | Sweep::Single))
        .map(|point| ((sweep(point), point.load()), point))
        .filter(|((_, load), _)| load.is_finite() && *load > 0.0)
        .collect();
    loaded.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let chunks = loaded.chunk_by(|(a, _), (b, _)| a == b);
    chunks.map(|same| (same[0].0, same.iter().map(|(_, point)| *point).collect())).collect()
}

/// The default threshold of a regression.
pub const THRESHOLD_RATIO: f64 = 0.05;

/// The folder in a run directory with the run that was measured in turn with it.
pub const BESIDE: &str = "with";

/// The run that was measured in turn with this one (`find --compare-with`), if there is one that can be read.
pub fn beside(run: &RunDir) -> Option<RunDir> {
    let path = run.path.join(BESIDE);
    path.join("run.json").is_file().then(|| RunDir::open(&path).ok()).flatten()
}

/// Compares run B with run A. `threshold_ratio` is how much worse counts as a regression.
pub fn runs(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, CompareError> {
    compared(a, b, threshold_ratio, false)
}

/// The same for two runs that were measured in turn: points of one round (repeat) are pairs, tested by Student's t on
/// their differences.
pub fn interleaved(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, CompareError> {
    compared(a, b, threshold_ratio, true)
}

fn compared(a: &RunDir, b: &RunDir, threshold_ratio: f64, is_paired: bool) -> Result<Comparison, CompareError> {
    let (of_a, of_b) = (levels(a), levels(b));
    let criteria = a.record.scenario.sweep().map_or_else(Criteria::default, |sweep| sweep.criteria);
    let confidence = criteria.confidence_ratio;
    // A loss of more than everything is impossible.
    let threshold_ratio = threshold_ratio.clamp(0.0, 1.0);
    let mut differences: Vec<Difference> = Vec::new();
    let (mut points_a, mut points_b) = (Vec::new(), Vec::new());
    let mut matched = 0;
    let mut asked_once: Vec<String> = Vec::new();
    for (key, points) in &of_a {
        let Some((_, others)) = of_b.iter().find(|(other, _)| same_load(*key, *other)) else { continue };
        points_a.extend(points.iter().copied());
        points_b.extend(others.iter().copied());
        let good = good_threshold(points, others, &criteria, threshold_ratio).map(|most| (&GOOD, most));
        let figures = FIGURES.iter().map(|figure| (figure, threshold_ratio)).chain(good);
        let before = differences.len();
        differences.extend(figures.filter_map(|(figure, threshold)| {
            difference((key.0, Some(key.1)), figure, (points, others), is_paired, (confidence, threshold))
        }));
        let is_asked = |points: &[&Point]| points.iter().any(|point| log(point, names::THROUGHPUT).is_some());
        let without = match (is_asked(points), is_asked(others)) {
            (true, false) => Some("B"),
            (false, true) => Some("A"),
            _ => None,
        };
        let at = zones::load_words(key.1, key.0);
        let what = |run| format!("{run} sent no request at {at}, and the other run did: nothing is compared there");
        asked_once.extend(without.map(what));
        matched += usize::from(differences.len() > before || without.is_some());
    }
    if points_a.is_empty() {
        let name = |run: &RunDir| run.path.display().to_string();
        return Err(CompareError::NothingInCommon { a: name(a), b: name(b) });
    }
    judge(&mut differences, confidence, threshold_ratio);
    let mut doubts = doubts(a, b, &differences);
    doubts.extend(asked_once.iter().cloned());
    doubts.extend(doubts_of_points((a, points_a), (b, points_b)));
    if !is_paired {
        // Two servers in turn differ on purpose, and got the same requests.
        doubts.extend(subjects::doubts(&a.record, &b.record));
    }
    let unmatched = of_a.len() + of_b.len() - 2 * matched;
    Ok(Comparison {
        threshold_ratio,
        confidence_ratio: confidence,
        conclusion: match conclusion(&differences) {
            Conclusion::NoRegression if !asked_once.is_empty() => Conclusion::CouldNotTell,
            found => found,
        },
        differences,
        unmatched,
        doubts,
    })
}

/// Corrects the p-values for the number of tests, and gives each difference its outcome and the worsening that would
/// have been seen: one beyond `detected_beyond`.
fn judge(differences: &mut [Difference], confidence: f64, detected_beyond: f64) {
    let tests = differences.iter().filter(|difference| difference.p_value.is_some()).count();
    for difference in &mut *differences {
        let beyond = detected_beyond.min(difference.threshold_ratio);
        difference.detectable_ratio = detectable(difference, beyond, confidence, tests);
    }
    holm(differences, |difference| &mut difference.p_value);
    holm(differences, |difference| &mut difference.p_beyond);
    for difference in differences {
        difference.outcome = outcome(difference, 1.0 - confidence);
    }
}

/// Searched rates differ in their last digits between runs; half a per mille apart is the same load.
fn same_load(a: (Sweep, f64), b: (Sweep, f64)) -> bool {
    a.0 == b.0 && (a.1 / b.1 - 1.0).abs() < 5e-4
}

/// Of each repeat the last point, one that nothing disturbed where there is one: a disturbed point was measured again.
fn one_a_repeat<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let mut by_repeat: BTreeMap<u32, Vec<&Point>> = BTreeMap::new();
    for point in points {
        by_repeat.entry(point.repeat).or_default().push(point);
    }
    by_repeat.into_values().filter_map(|same| quiet_first(&same).last().copied()).collect()
}

type Figure = (&'static str, &'static str, Better);

/// Whether half of the points or more measured something else than intended.
fn half_invalid(points: &[&Point]) -> bool {
    half(points, doubted::is_invalid)
}

fn half(points: &[&Point], is_so: fn(&Point) -> bool) -> bool {
    2 * points.iter().filter(|point| is_so(point)).count() >= points.len()
}

/// The threshold for the share of good answers: that of the others where both runs mostly leave requests or connections
/// without, and no more than the limit of errors where one mostly does not. `None` where neither ever does.
fn good_threshold(a: &[&Point], b: &[&Point], criteria: &Criteria, threshold_ratio: f64) -> Option<f64> {
    let fails = |point: &&&Point| zones::unserved(point, criteria).is_some_and(|reasons| !reasons.is_empty());
    let failing = [a, b].map(|points| (points.iter().filter(fails).count(), points.len()));
    let both_mostly = failing.iter().all(|(failing, all)| 2 * failing > *all);
    let most = if both_mostly { threshold_ratio } else { threshold_ratio.min(criteria.error_ratio) };
    failing.iter().any(|(failing, _)| *failing > 0).then_some(most)
}

/// The logarithm of a figure of a point. None of many is less than one of them.
fn log(point: &Point, figure: &str) -> Option<f64> {
    let outcomes = &point.outcomes;
    let value = match figure {
        // Errors are often quick.
        names::THROUGHPUT => {
            let least = 0.5e9 / point.duration_ns as f64;
            let is_asked = zones::unserved(point, &Criteria::default()).is_some();
            good_per_sec(point).map(|rate| if is_asked { rate.max(least) } else { rate })
        }
        name if name == GOOD.0 => {
            let finished = outcomes.completed().saturating_add(outcomes.errors());
            let asked = finished.saturating_add(outcomes.unfinished);
            (asked > 0).then(|| (1.0 - lost_ratio(outcomes)).max(0.5 / asked as f64))
        }
        name => point.value(name),
    };
    value.filter(|value| value.is_finite() && *value > 0.0).map(f64::ln)
}

/// Round and logarithms of a figure in A and in B, of the points at one load.
fn pairs_of(a: &[&Point], b: &[&Point], figure: &str) -> Vec<(u32, (f64, f64))> {
    let (a, b) = (one_a_repeat(a), one_a_repeat(b));
    a.iter()
        .filter_map(|point| {
            let other = b.iter().find(|other| other.repeat == point.repeat)?;
            Some((point.repeat, (log(point, figure)?, log(other, figure)?)))
        })
        .collect()
}

fn difference(
    at: (Sweep, Option<f64>),
    figure: &Figure,
    (a, b): (&[&Point], &[&Point]),
    is_paired: bool,
    (confidence, threshold): (f64, f64),
) -> Option<Difference> {
    let is_invalid = half_invalid(a) || half_invalid(b);
    let logs = |points: &[&Point]| -> Vec<f64> { points.iter().filter_map(|point| log(point, figure.0)).collect() };
    if is_paired {
        let pairs: Vec<(f64, f64)> = pairs_of(a, b, figure.0).into_iter().map(|(_, pair)| pair).collect();
        let (a, b) = pairs.iter().copied().unzip();
        return of_logs(at, figure, (a, b), student_pairs(&pairs), is_invalid, (confidence, threshold));
    }
    let (a, b) = (logs(a), logs(b));
    let tested = welch(&a, &b);
    of_logs(at, figure, (a, b), tested, is_invalid, (confidence, threshold))
}

/// The difference of logarithms whose mean difference has this standard error and these degrees of freedom.
fn of_logs(
    (sweep, load): (Sweep, Option<f64>),
    (figure, word, better): &Figure,
    (a, b): (Vec<f64>, Vec<f64>),
    tested: Option<(f64, f64)>,
    is_invalid: bool,
    (confidence, threshold): (f64, f64),
) -> Option<Difference> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let interval = tested.and_then(|(error, freedom)| {
        let reach = student(confidence, freedom)? * error;
        let at = mean_b - mean_a;
        Some(Interval { low: (at - reach).exp(), high: (at + reach).exp(), confidence })
    });
    let p_of = |difference: f64| tested.and_then(|(error, freedom)| p_value(difference, error, freedom));
    let found = mean_b - mean_a;
    let (low, high) = bounds(threshold);
    let beyond = if found < low { found - low } else { (found - high).max(0.0) };
    Some(Difference {
        sweep,
        load,
        figure,
        word,
        better: *better,
        means: (mean_a.exp(), mean_b.exp()),
        n: (a.len(), b.len()),
        ratio: (mean_b - mean_a).exp(),
        interval,
        p_value: p_of(found),
        p_beyond: p_of(beyond),
        detectable_ratio: None,
        test: tested,
        threshold_ratio: threshold,
        is_invalid,
        outcome: Outcome::Untested,
    })
}

/// Standard error of the mean difference of pairs and its degrees of freedom (Student, 1908).
fn student_pairs(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    if pairs.len() < 2 {
        return None;
    }
    let n = pairs.len() as f64;
    let mean = pairs.iter().map(|(a, b)| b - a).sum::<f64>() / n;
    let variance = pairs.iter().map(|(a, b)| (b - a - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(((variance / n).sqrt(), n - 1.0))
}

/// Standard error of the difference of means and its degrees of freedom (Welch, 1947).
fn welch(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let share = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
    };
    let (va, vb) = (share(a), share(b));
    let variance = va + vb;
    let freedom = variance.powi(2) / (va.powi(2) / (a.len() - 1) as f64 + vb.powi(2) / (b.len() - 1) as f64);
    // Without any scatter the difference is certain; at most one degree of freedom is assumed then.
    let most = (a.len() + b.len() - 2) as f64;
    Some((variance.sqrt(), if freedom.is_finite() { freedom.clamp(1.0, most) } else { most }))
}

fn p_value(difference: f64, error: f64, freedom: f64) -> Option<f64> {
    if error <= 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let law = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((2.0 * law.cdf(-(difference / error).abs())).min(1.0))
}

/// Logarithms of the ratios at which a change crosses the threshold: a loss of that share, and a growth by it.
fn bounds(threshold: f64) -> (f64, f64) {
    ((1.0 - threshold).ln(), threshold.ln_1p())
}

/// The smallest worsening that is called a regression in 8 of 10 comparisons whose points scatter like these.
fn detectable(difference: &Difference, threshold: f64, confidence: f64, tests: usize) -> Option<f64> {
    /// Two-sided share of Student's law up to its quantile of 80 %.
    const POWER: f64 = 0.6;
    let (error, freedom) = difference.test?;
    let (low, high) = bounds(threshold);
    // The first step of Holm's correction, which every lone regression has to pass.
    let reach = (student(1.0 - (1.0 - confidence) / tests as f64, freedom)? + student(POWER, freedom)?) * error;
    let ratio = match difference.better {
        Better::Higher => 1.0 - (low - reach).exp(),
        Better::Lower => (high + reach).exp() - 1.0,
    };
    Some(ratio).filter(|ratio| ratio.is_finite())
}

/// Holm's step-down correction: the chance of any false alarm among all tests stays below the level.
fn holm(differences: &mut [Difference], p: impl Fn(&mut Difference) -> &mut Option<f64>) {
    let mut tested: Vec<&mut f64> = differences.iter_mut().filter_map(|difference| p(difference).as_mut()).collect();
    tested.sort_by(|a, b| a.total_cmp(b));
    let count = tested.len();
    let mut least: f64 = 0.0;
    for (rank, p) in tested.into_iter().enumerate() {
        least = least.max((*p * (count - rank) as f64).min(1.0));
        *p = least;
    }
}

fn outcome(difference: &Difference, level: f64) -> Outcome {
    let (Some(p), Some(interval)) = (difference.p_beyond, difference.interval) else { return Outcome::Untested };
    let (low, high) = bounds(difference.threshold_ratio);
    let found = difference.ratio.ln();
    let is_worse = match difference.better {
        Better::Higher => found < low,
        Better::Lower => found > high,
    };
    // The worse end of the interval is on the near side.
    let holds = match difference.better {
        Better::Higher => interval.low.ln() >= low,
        Better::Lower => interval.high.ln() <= high,
    };
    match () {
        () if p < level && is_worse => Outcome::Regression,
        () if p < level && (found < low || found > high) => Outcome::Improvement,
        () if holds && !difference.is_invalid => Outcome::NotWorse,
        () => Outcome::Unclear,
    }
}

/// The doubts of the two runs and of their compared points.
fn doubts_of_points(a: (&RunDir, Vec<&Point>), b: (&RunDir, Vec<&Point>)) -> Vec<String> {
    let of = |(run, points): (&RunDir, Vec<&Point>)| -> Vec<String> {
        let whole = run.record.doubts.iter().chain(&run.reading_doubts);
        let whole = whole
            .filter(|doubt| doubt.severity >= Severity::Warning)
            .map(|doubt| record::text::plain(&doubt.what, 300));
        whole.chain(doubted::of_points(points.into_iter())).collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let both = of_a.iter().filter(|doubt| of_b.contains(doubt)).map(|doubt| format!("A and B: {doubt}"));
    let only_a = of_a.iter().filter(|doubt| !of_b.contains(doubt)).map(|doubt| format!("A: {doubt}"));
    let only_b = of_b.iter().filter(|doubt| !of_a.contains(doubt)).map(|doubt| format!("B: {doubt}"));
    both.chain(only_a).chain(only_b).collect()
}

fn doubts(a: &RunDir, b: &RunDir, differences: &[Difference]) -> Vec<String> {
    let mut doubts: Vec<String> = subjects::machines(a, b).into_iter().collect();
    let apart = a.record.started_unix_ms.abs_diff(b.record.started_unix_ms) / 60_000;
    if apart > 30 {
        doubts.push(format!(
            "the runs began {apart} minutes apart: a machine's speed drifts; measure them in turn, interleaved"
        ));
    }
    if differences.iter().all(|difference| difference.outcome == Outcome::Untested) {
        doubts.push("no load has two points in both runs, so nothing could be tested: measure with --repeats".into());
    }
    doubts
}
