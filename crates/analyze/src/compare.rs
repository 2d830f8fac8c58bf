//! Two runs of one sweep against each other: at each load that both measured, the ratio B / A of each figure with its
//! interval and Welch's t-test on the logarithms; p-values are corrected for the number of tests (Holm, 1979). Of two runs
//! that were measured in turn, round by round, the points of a round are compared with each other: what drifts cancels.

mod subjects;
mod text;

pub use crate::report::beside::server_words;
pub use text::text;
pub(crate) use text::{headline, row};

use crate::predict::regression::student;
use crate::statistics::Interval;
use record::{Pace, Point, RunDir, Sweep, names};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// The figures that are compared: name, words, direction.
const FIGURES: [(&str, &str, Better); 4] = [
    (names::THROUGHPUT, "throughput", Better::Higher),
    (names::RESPONSE_P50, "p50", Better::Lower),
    (names::RESPONSE_P99, "p99", Better::Lower),
    (names::SERVER_CPU, "CPU/request", Better::Lower),
];

/// What was found for one figure at one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Worse by more than the threshold, and not by chance.
    Regression,
    /// Better by more than the threshold, and not by chance.
    Improvement,
    /// Different, by no more than the threshold.
    Small,
    /// Chance explains it.
    Same,
    /// Fewer than two points on a side: no test.
    Untested,
}

/// One figure at one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Sweep of the points.
    pub sweep: Sweep,
    /// Connections, or offered requests per second.
    pub load: f64,
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
    /// Two-sided p-value after Holm's correction; absent without a test.
    pub p_value: Option<f64>,
    /// What it comes to.
    pub outcome: Outcome,
}

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Worse by more than this is a regression (0.05 = 5 %).
    pub threshold_ratio: f64,
    /// Confidence of intervals and tests.
    pub confidence_ratio: f64,
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

type Level<'a> = ((Sweep, f64), Vec<&'a Point>);

fn levels(run: &RunDir) -> Vec<Level<'_>> {
    let mut loaded: Vec<((Sweep, f64), &Point)> = run
        .points
        .iter()
        .filter(|point| matches!(point.sweep, Sweep::Connections | Sweep::Rate | Sweep::Single))
        .map(|point| {
            let load = match point.pace {
                Pace::Open { rate_per_sec, .. } => rate_per_sec,
                Pace::Closed => point.connections as f64,
            };
            ((point.sweep, load), point)
        })
        .filter(|((_, load), _)| load.is_finite() && *load > 0.0)
        .collect();
    loaded.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let chunks = loaded.chunk_by(|(a, _), (b, _)| a == b);
    chunks.map(|same| (same[0].0, same.iter().map(|(_, point)| *point).collect())).collect()
}

/// Worse by more than this is a regression, unless another limit is typed.
pub const THRESHOLD_RATIO: f64 = 0.05;

/// The folder in a run directory in which the run lies that was measured beside it.
pub const BESIDE: &str = "with";

/// The run that was measured beside this one in turn (`find --compare-with`), if there is one that can be read.
pub fn beside(run: &RunDir) -> Option<RunDir> {
    let path = run.path.join(BESIDE);
    path.join("run.json").is_file().then(|| RunDir::open(&path).ok()).flatten()
}

/// Compares run B with run A. `threshold_ratio` is how much worse counts as a regression.
pub fn runs(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, CompareError> {
    compared(a, b, threshold_ratio, false)
}

/// The same for two runs that took turns: points of one round (repeat) are pairs, tested by Student's t on their differences.
pub fn interleaved(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, CompareError> {
    compared(a, b, threshold_ratio, true)
}

fn compared(a: &RunDir, b: &RunDir, threshold_ratio: f64, is_paired: bool) -> Result<Comparison, CompareError> {
    let (of_a, of_b) = (levels(a), levels(b));
    let confidence = a.record.scenario.sweep.as_ref().map_or(0.95, |sweep| sweep.criteria.confidence_ratio);
    let mut differences = Vec::new();
    let mut matched = 0;
    for (key, points) in &of_a {
        let Some((_, others)) = of_b.iter().find(|(other, _)| same_load(*key, *other)) else { continue };
        matched += 1;
        differences.extend(
            FIGURES.iter().filter_map(|figure| difference(*key, figure, (points, others), is_paired, confidence)),
        );
    }
    if matched == 0 {
        let name = |run: &RunDir| run.path.display().to_string();
        return Err(CompareError::NothingInCommon { a: name(a), b: name(b) });
    }
    holm(&mut differences);
    for difference in &mut differences {
        difference.outcome = outcome(difference, threshold_ratio, 1.0 - confidence);
    }
    let mut doubts = doubts(a, b, &differences);
    if !is_paired {
        // Servers that took turns in one run are different ones on purpose, and got the same requests.
        doubts.extend(subjects::doubts(a, b));
    }
    let unmatched = of_a.len() + of_b.len() - 2 * matched;
    Ok(Comparison { threshold_ratio, confidence_ratio: confidence, differences, unmatched, doubts })
}

/// Searched rates differ in their last digits between runs; half a per mille apart is the same load.
fn same_load(a: (Sweep, f64), b: (Sweep, f64)) -> bool {
    a.0 == b.0 && (a.1 / b.1 - 1.0).abs() < 5e-4
}

fn difference(
    (sweep, load): (Sweep, f64),
    (figure, word, better): &(&'static str, &'static str, Better),
    (a, b): (&[&Point], &[&Point]),
    is_paired: bool,
    confidence: f64,
) -> Option<Difference> {
    let log = |point: &Point| point.value(figure).filter(|value| value.is_finite() && *value > 0.0).map(f64::ln);
    let logs = |points: &[&Point]| -> Vec<f64> { points.iter().filter_map(|point| log(point)).collect() };
    let pairs: Vec<(f64, f64)> = a
        .iter()
        .filter(|_| is_paired)
        .filter_map(|point| Some((log(point)?, log(b.iter().find(|other| other.repeat == point.repeat)?)?)))
        .collect();
    let (a, b) = if is_paired { pairs.iter().copied().unzip() } else { (logs(a), logs(b)) };
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let tested = if is_paired { student_pairs(&pairs) } else { welch(&a, &b) };
    let interval = tested.and_then(|(error, freedom)| {
        let reach = student(confidence, freedom)? * error;
        let at = mean_b - mean_a;
        Some(Interval { low: (at - reach).exp(), high: (at + reach).exp(), confidence })
    });
    let p_value = tested.and_then(|(error, freedom)| p_value(mean_b - mean_a, error, freedom));
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
        p_value,
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
    // Without any scatter the difference is certain; one degree of freedom is never claimed beyond what there is.
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

/// Holm's step-down correction: the chance of any false alarm among all tests stays below the level.
fn holm(differences: &mut [Difference]) {
    let mut order: Vec<usize> = (0..differences.len()).filter(|at| differences[*at].p_value.is_some()).collect();
    let value = |differences: &[Difference], at: usize| differences[at].p_value.unwrap_or(1.0);
    order.sort_by(|a, b| value(differences, *a).total_cmp(&value(differences, *b)));
    let mut least: f64 = 0.0;
    for (rank, at) in order.iter().enumerate() {
        least = least.max((value(differences, *at) * (order.len() - rank) as f64).min(1.0));
        differences[*at].p_value = Some(least);
    }
}

fn outcome(difference: &Difference, threshold: f64, level: f64) -> Outcome {
    let Some(p) = difference.p_value else { return Outcome::Untested };
    if p >= level {
        return Outcome::Same;
    }
    let (worse, improved) = match difference.better {
        Better::Higher => (1.0 / difference.ratio - 1.0, difference.ratio - 1.0),
        Better::Lower => (difference.ratio - 1.0, 1.0 / difference.ratio - 1.0),
    };
    match () {
        () if worse > threshold => Outcome::Regression,
        () if improved > threshold => Outcome::Improvement,
        () => Outcome::Small,
    }
}

fn doubts(a: &RunDir, b: &RunDir, differences: &[Difference]) -> Vec<String> {
    let mut doubts = Vec::new();
    let facts = |run: &RunDir| (run.record.machine.kernel.clone(), run.record.machine.cpu_model.clone());
    if facts(a) != facts(b) {
        doubts.push("the runs are of different machines or kernels: the difference may be theirs".to_string());
    }
    let apart = a.record.started_unix_ms.abs_diff(b.record.started_unix_ms) / 60_000;
    if apart > 30 {
        doubts.push(format!(
            "the runs began {apart} minutes apart: a machine's speed drifts; measure them side by side, interleaved"
        ));
    }
    if differences.iter().all(|difference| difference.outcome == Outcome::Untested) {
        doubts.push("no load has two points in both runs, so nothing could be tested: measure with --repeats".into());
    }
    doubts
}

/// The comparison as JSON: `schema`, `kind`, `comparison`.
pub fn json(comparison: &Comparison) -> serde_json::Value {
    serde_json::json!({ "schema": crate::json::SCHEMA, "kind": "comparison", "comparison": comparison })
}
