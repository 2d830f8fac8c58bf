//! Compares two runs. The ratio B / A of a figure is a mean over all loads that both measured, with an interval from
//! the repeats ([`mod@pooled`]). If the runs were measured in turn, the points of one round are compared with each
//! other, so drift cancels.
//!
//! A figure is worse if its whole interval is on the worse side of no change and reaches beyond the threshold; it is
//! not worse if the interval ends before the threshold; otherwise it is open. The intervals are wide enough that all
//! figures together raise a false alarm in at most 1 - confidence of the comparisons.

pub mod costs;
pub mod pooled;
mod price;
mod subjects;
mod words;

pub use price::{Price, price, price_words};
pub use subjects::{is_same_scenario, program, request_words, server_words};
pub use words::{headline, load_words};

use crate::disturbance;
use crate::point::{by_load, cpu_us, good_per_sec, lost_ratio};
use crate::{Refused, within, zones};
use pooled::{CommonLoad, PooledChange, StandardError, departing, pooled};
use record::{Criteria, Estimate, Point, RunDir, Severity, Sweep, names};
use serde::Serialize;
use statistics::student;

/// The direction in which a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

type ComparedFigure = (&'static str, &'static str, Better);

const FIGURES: [ComparedFigure; 4] = [
    (names::THROUGHPUT, "throughput", Better::Higher),
    (names::SERVER_CPU, "CPU/request", Better::Lower),
    (names::RESPONSE_P50, "p50", Better::Lower),
    (names::RESPONSE_P99, "p99", Better::Lower),
];
/// Share of good answers; compared if a run has requests or connections without a good answer.
const GOOD: ComparedFigure = ("outcomes.good_ratio", "good answers", Better::Higher);
/// The rate to plan with, if both runs have an open loop.
const PLAN: ComparedFigure = (names::FIND_PLAN, "plan", Better::Higher);

record::worded! {
    /// The result for one figure.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Outcome {
        /// Worse, and significantly so; a change beyond the threshold is possible.
        Regression = "worse",
        /// Better, and significantly so.
        Improvement = "better",
        /// The interval ends before the threshold, so the figure is not worse by more than that.
        NotWorse = "not worse",
        /// The interval contains both no change and the threshold, or the points did not measure the server.
        Unclear = "could not tell",
        /// No test, because a side has fewer than two repeats.
        Untested = "not tested",
    }
}

/// One figure over all loads.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// Name of the figure.
    pub figure: &'static str,
    /// Short name of the figure.
    pub word: &'static str,
    /// The direction of an improvement.
    pub better: Better,
    /// Geometric mean of the figure in run A.
    pub a: f64,
    /// Geometric mean of the figure in run B.
    pub b: f64,
    /// Ratio B / A; its interval decides. n: repeats, or rounds.
    pub ratio: Estimate,
    /// Change for the worse that counts as a regression.
    pub threshold_ratio: f64,
    /// The smallest worsening (0.1 = 10 %) that 8 of 10 comparisons with such scatter would have found; absent without
    /// an interval.
    pub detectable_ratio: Option<f64>,
    /// Whether half of a run's points at every load did not measure the server (the client was saturated).
    pub is_invalid: bool,
    /// Whether the conclusion depends on this figure: cost of a request, and throughput or good answers.
    pub is_main: bool,
    /// Outcome for this figure.
    pub outcome: Outcome,
    /// Results at each load, ascending.
    pub loads: Vec<AtLoad>,
}

/// A figure at one load, a part of the figure over all loads.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AtLoad {
    /// Sweep of the points.
    pub sweep: Sweep,
    /// Connections, or offered requests per second.
    pub load: f64,
    /// Figure of run A at this load, as in the run's own tables.
    pub a: f64,
    /// Figure of run B at this load, as in the run's own tables.
    pub b: f64,
    /// Ratio B / A within repeats, with an interval for this load only.
    pub ratio: Estimate,
    /// Whether the ratio differs from that of the other loads significantly and by more than the threshold.
    pub departs: bool,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// A figure is worse.
    Regression,
    /// No figure is worse, and throughput and CPU per request are not worse by more than the threshold.
    NoRegression,
    /// No regression was found, but one in throughput or CPU per request could not be excluded.
    CouldNotTell,
}

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Comparison {
    /// Change for the worse that counts as a regression (0.05 = 5 %).
    pub threshold_ratio: f64,
    /// One minus the chance of a false alarm.
    pub confidence_ratio: f64,
    /// Whether the runs were measured in turn, so that the points of one round are pairs.
    pub is_paired: bool,
    /// Conclusion over all figures.
    pub conclusion: Conclusion,
    /// The figures over all loads.
    pub figures: Vec<Difference>,
    /// Loads that both runs measured, ascending.
    pub loads: Vec<f64>,
    /// Repeats (rounds) of the run with fewer of them.
    pub repeats: u64,
    /// Budget of the runs' sweeps, seconds.
    pub budget_s: Option<f64>,
    /// Loads that only one of the runs measured.
    pub unmatched: usize,
    /// Reasons not to trust the comparison.
    pub doubts: Vec<String>,
}

impl Comparison {
    /// The figures that are worse.
    pub fn regressions(&self) -> impl Iterator<Item = &Difference> {
        self.figures.iter().filter(|figure| figure.outcome == Outcome::Regression)
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<&Difference> {
        self.figures.iter().find(|figure| figure.figure == name)
    }
}

impl Difference {
    /// Whether the change is significant.
    pub fn is_found(&self) -> bool {
        self.ratio.excludes(1.0) && !self.is_invalid
    }

    fn worse(&self, ratio: f64) -> f64 {
        if self.better == Better::Higher { -ratio.ln() } else { ratio.ln() }
    }

    fn judged(mut self) -> Difference {
        self.outcome = match self.ratio.interval().map(|(low, high)| [self.worse(low), self.worse(high)]) {
            None => Outcome::Untested,
            Some(_) if self.is_invalid => Outcome::Unclear,
            Some(ends) => {
                let (least, most) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
                if most < 0.0 {
                    Outcome::Improvement
                } else if most <= worse_by(self.better, self.threshold_ratio) {
                    Outcome::NotWorse
                } else if least > 0.0 {
                    Outcome::Regression
                } else {
                    Outcome::Unclear
                }
            }
        };
        self
    }
}

/// The logarithm of a loss of this share, or of a growth by it; positive.
fn worse_by(better: Better, ratio: f64) -> f64 {
    if better == Better::Higher { -(1.0 - ratio).ln() } else { ratio.ln_1p() }
}

fn conclusion(figures: &[Difference]) -> Conclusion {
    let is_open = |figure: &Difference| matches!(figure.outcome, Outcome::Unclear | Outcome::Untested);
    let mut main = figures.iter().filter(|figure| figure.is_main).peekable();
    if figures.iter().any(|figure| figure.outcome == Outcome::Regression) {
        Conclusion::Regression
    } else if main.peek().is_none() || main.any(is_open) {
        Conclusion::CouldNotTell
    } else {
        Conclusion::NoRegression
    }
}

type PointsAtLoad<'a> = ((Sweep, f64), Vec<&'a Point>);

/// Loads in ascending order. A single point with a rate counts as open loop.
fn levels(run: &RunDir) -> Vec<PointsAtLoad<'_>> {
    let sweep = |point: &Point| match point.sweep {
        Sweep::Single if point.offered_per_sec().is_some() => Sweep::Rate,
        sweep => sweep,
    };
    let of = |wanted: Sweep| {
        let there = run.points.iter().filter(move |point| sweep(point) == wanted).map(|point| (point.load(), point));
        let loads = by_load(there.filter(|(load, _)| load.is_finite() && *load > 0.0));
        loads.into_iter().map(move |(load, points)| ((wanted, load), points))
    };
    [Sweep::Single, Sweep::Connections, Sweep::Rate].into_iter().flat_map(of).collect()
}

/// The default threshold of a regression.
pub const THRESHOLD_RATIO: f64 = 0.05;

/// The folder in a run directory that contains the run measured in turn with it.
pub const BESIDE: &str = "with";

/// The run that was measured in turn with this one (`find --compare-with`), if it exists and can be read.
pub fn compared_run(run: &RunDir) -> Option<RunDir> {
    let path = run.path.join(BESIDE);
    path.join("run.json").is_file().then(|| RunDir::open(&path).ok()).flatten()
}

/// Compares run B with run A. `threshold_ratio` is how much worse counts as a regression.
pub fn runs(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, Refused> {
    compared(a, b, threshold_ratio, false)
}

/// Compares two runs that were measured in turn: points of one round (repeat) are pairs.
pub fn interleaved(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Result<Comparison, Refused> {
    compared(a, b, threshold_ratio, true)
}

type MatchedLoad<'a> = ((Sweep, f64), &'a [&'a Point], &'a [&'a Point]);

/// The loads that both runs measured.
fn matched<'a>(of_a: &'a [PointsAtLoad<'a>], of_b: &'a [PointsAtLoad<'a>]) -> Vec<MatchedLoad<'a>> {
    let with_other = |(key, points): &'a PointsAtLoad<'a>| {
        let (_, others) = of_b.iter().find(|(other, _)| same_load(*key, *other))?;
        Some((*key, points.as_slice(), others.as_slice()))
    };
    of_a.iter().filter_map(with_other).collect()
}

fn compared(a: &RunDir, b: &RunDir, threshold_ratio: f64, is_paired: bool) -> Result<Comparison, Refused> {
    let (of_a, of_b) = (levels(a), levels(b));
    let matched = matched(&of_a, &of_b);
    let plan = a.record.scenario.sweep();
    let criteria = plan.map_or_else(Criteria::default, |sweep| sweep.criteria);
    let confidence = criteria.confidence_ratio;
    let threshold_ratio = threshold_ratio.clamp(0.0, 1.0);
    if matched.is_empty() {
        return Err(Refused(format!(
            "{} and {} have no load in common: measure both with the same --connections, --rate or sweep",
            a.path.display(),
            b.path.display()
        )));
    }
    let asked_once: Vec<String> = matched.iter().filter_map(asked_once).collect();
    let unmatched = of_a.len() + of_b.len() - 2 * matched.len();
    let (loads, left_out) = pool(&matched);
    let is_invalid = loads.iter().all(missed);
    let mut figures = differences(&loads, is_paired, &criteria, threshold_ratio);
    figures.iter_mut().for_each(|figure| figure.is_invalid = is_invalid);
    if !figures.is_empty() {
        figures.extend(planned(a, b, threshold_ratio));
    }
    let figures: Vec<Difference> = figures.into_iter().map(Difference::judged).collect();
    let mut doubts = doubts(a, b, &figures);
    doubts.extend(asked_once.iter().cloned());
    doubts.extend(left_out);
    let (points_a, points_b) = (matched.iter().flat_map(|one| one.1), matched.iter().flat_map(|one| one.2));
    doubts.extend(doubts_of_points((a, points_a.copied().collect()), (b, points_b.copied().collect())));
    if !is_paired {
        // Servers that are compared in turn differ on purpose and get the same requests.
        doubts.extend(subjects::doubts(&a.record, &b.record));
    }
    Ok(Comparison {
        threshold_ratio,
        confidence_ratio: confidence,
        is_paired,
        conclusion: match conclusion(&figures) {
            Conclusion::NoRegression if !asked_once.is_empty() => Conclusion::CouldNotTell,
            found => found,
        },
        loads: loads.iter().map(|((_, load), ..)| *load).collect(),
        repeats: figures.iter().map(|figure| figure.ratio.n).max().unwrap_or(0),
        budget_s: plan.map(|sweep| sweep.budget_ns as f64 / 1e9),
        figures,
        unmatched,
        doubts,
    })
}

/// A sentence on a load at which only one of the runs sent requests.
fn asked_once((at, a, b): &MatchedLoad<'_>) -> Option<String> {
    let is_asked = |points: &[&Point]| points.iter().any(|point| log(point, names::THROUGHPUT).is_some());
    let without = match (is_asked(a), is_asked(b)) {
        (true, false) => "B",
        (false, true) => "A",
        _ => return None,
    };
    let at = zones::load_words(at.1, at.0);
    Some(format!("{without} sent no request at {at}, and the other run did, so this load is not compared"))
}

/// Whether half of the points of a side did not measure the server.
fn missed((_, a, b): &MatchedLoad<'_>) -> bool {
    half(a, disturbance::missed_the_server) || half(b, disturbance::missed_the_server)
}

/// The loads that are pooled, and a sentence about those left out. All belong to one kind of loop, because an open
/// loop's throughput is the offered rate. Loads whose points did not measure the server are left out, unless that
/// applies to all.
fn pool<'a>(matched: &[MatchedLoad<'a>]) -> (Vec<MatchedLoad<'a>>, Option<String>) {
    let is_open = |one: &&MatchedLoad<'_>| one.0.0 == Sweep::Rate;
    let closed: Vec<MatchedLoad<'_>> = matched.iter().filter(|one| !is_open(one)).copied().collect();
    let of_loop = if closed.is_empty() { matched.to_vec() } else { closed };
    let (out, kept): (Vec<MatchedLoad<'_>>, Vec<_>) = of_loop.iter().copied().partition(missed);
    if out.is_empty() || kept.is_empty() {
        return (of_loop, None);
    }
    let at: Vec<String> = out.iter().map(|((sweep, load), ..)| zones::load_words(*load, *sweep)).collect();
    let said = format!(
        "half of the points of a run did not measure the server at {}: these loads are left out",
        at.join(", ")
    );
    (kept, Some(said))
}

fn differences(
    loads: &[MatchedLoad<'_>],
    is_paired: bool,
    criteria: &Criteria,
    threshold_ratio: f64,
) -> Vec<Difference> {
    let is_open = loads.iter().any(|((sweep, _), ..)| *sweep == Sweep::Rate);
    // In a closed loop, the throughput determines the times.
    let answered = if is_open { names::RESPONSE_P50 } else { names::THROUGHPUT };
    let good = good_threshold(loads, criteria, threshold_ratio);
    let wanted = FIGURES.iter().map(|figure| (figure, threshold_ratio)).chain(good.map(|most| (&GOOD, most)));
    let found: Vec<_> = wanted
        .filter_map(|(figure, threshold)| {
            let logs = |points: &[&Point]| within::visits(points, |point| log(point, figure.0));
            let common = |(at, a, b): &MatchedLoad<'_>| CommonLoad { at: *at, a: logs(a), b: logs(b) };
            let common: Vec<_> = loads.iter().map(common).filter(|one| pooled(&[one], is_paired).is_some()).collect();
            Some((figure, threshold, pooled(&common, is_paired)?, common))
        })
        .collect();
    // Each end of an interval can raise a false alarm; all together may do so with probability 1 - confidence.
    let parts = (found.len() as f64 / 2.0).max(1.0);
    let confidence = 1.0 - (1.0 - criteria.confidence_ratio) / parts;
    let of_one =
        |((figure, word, better), threshold_ratio, all, common): (&ComparedFigure, f64, PooledChange, Vec<_>)| {
            Difference {
                figure,
                word,
                better: *better,
                a: all.a.exp(),
                b: all.b.exp(),
                ratio: all.ratio(confidence),
                threshold_ratio,
                detectable_ratio: detectable(&all, *better, confidence),
                is_invalid: false,
                is_main: [answered, names::SERVER_CPU, GOOD.0].contains(figure),
                outcome: Outcome::Untested,
                loads: at_loads(
                    (loads, figure),
                    &common,
                    &all,
                    (is_paired, criteria.confidence_ratio, confidence, threshold_ratio),
                ),
            }
        };
    found.into_iter().map(of_one).collect()
}

fn at_loads(
    (loads, figure): (&[MatchedLoad<'_>], &'static str),
    common: &[CommonLoad<(Sweep, f64)>],
    all: &PooledChange,
    (is_paired, confidence, of_all, threshold): (bool, f64, f64, f64),
) -> Vec<AtLoad> {
    let departs = departing(common, is_paired, of_all);
    let of_load = |(one, departs): (&CommonLoad<(Sweep, f64)>, bool)| {
        let found = pooled(&[one], is_paired)?;
        let is_far = (found.change.value - all.change.value).abs() > threshold.ln_1p();
        let (_, a, b) = loads.iter().find(|(at, ..)| *at == one.at)?;
        let value = |point: &Point| log(point, figure).map(f64::exp);
        let shown = |points: &[&Point]| zones::reduced(points, value).map(|spread| spread.median);
        Some(AtLoad {
            sweep: one.at.0,
            load: one.at.1,
            a: shown(a)?,
            b: shown(b)?,
            ratio: found.ratio(confidence),
            departs: departs && is_far,
        })
    };
    common.iter().zip(departs).filter_map(of_load).collect()
}

/// The smallest worsening that 8 of 10 comparisons with such scatter would find.
fn detectable(all: &PooledChange, better: Better, confidence: f64) -> Option<f64> {
    /// Two-sided share of Student's law up to its quantile of 80 %.
    const POWER: f64 = 0.6;
    let StandardError { value: error, freedom } = all.change.error?;
    let reach = (student(confidence, freedom)? + student(POWER, freedom)?) * error;
    let ratio = if better == Better::Higher { 1.0 - (-reach).exp() } else { reach.exp_m1() };
    Some(ratio).filter(|ratio| ratio.is_finite())
}

fn planned(a: &RunDir, b: &RunDir, threshold_ratio: f64) -> Option<Difference> {
    let (a, b) = (plan(a)?, plan(b)?);
    let ends = a.interval().zip(b.interval()).map(|((low_a, high_a), (low_b, high_b))| {
        // The interval of a ratio of two independent numbers (Donner and Zou, 2012).
        let off = |from: f64, to: f64| (to / from).ln();
        let low = off(b.value, low_b).hypot(off(a.value, high_a));
        let high = off(b.value, high_b).hypot(off(a.value, low_a));
        (b.value / a.value * (-low).exp(), b.value / a.value * high.exp())
    });
    Some(Difference {
        figure: PLAN.0,
        word: PLAN.1,
        better: PLAN.2,
        a: a.value,
        b: b.value,
        ratio: Estimate::new(b.value / a.value, ends, a.confidence, a.n.min(b.n) as usize),
        threshold_ratio,
        detectable_ratio: None,
        is_invalid: false,
        is_main: false,
        outcome: Outcome::Untested,
        loads: Vec::new(),
    })
}

fn plan(run: &RunDir) -> Option<Estimate> {
    if !run.points.iter().any(|point| point.sweep == Sweep::Rate) {
        return None;
    }
    let (plan, _) = zones::of_run(run).rate?.plan()?;
    // With one repeat, the interval is only the spacing of the loads.
    Some(if plan.n > 1 { plan } else { Estimate { low: None, high: None, ..plan } })
}

/// The threshold for the share of good answers: the common one if both runs mostly fail, else at most the error
/// limit; a mean over the loads. `None` if neither run ever fails.
fn good_threshold(loads: &[MatchedLoad<'_>], criteria: &Criteria, threshold_ratio: f64) -> Option<f64> {
    let fails = |point: &&&Point| zones::unserved(point, criteria).is_some_and(|reasons| !reasons.is_empty());
    let least = threshold_ratio.min(criteria.error_ratio);
    let mut is_any = false;
    let of_load = |(_, a, b): &MatchedLoad<'_>| {
        let failing = [a, b].map(|points| (points.iter().filter(fails).count(), points.len()));
        is_any |= failing.iter().any(|(failing, _)| *failing > 0);
        let both_mostly = failing.iter().all(|(failing, all)| 2 * failing > *all);
        if both_mostly { threshold_ratio } else { least }
    };
    let thresholds: Vec<f64> = loads.iter().map(of_load).collect();
    is_any.then(|| thresholds.iter().sum::<f64>() / thresholds.len().max(1) as f64)
}

/// Whether two loads are equal. Searched rates differ in their last digits between runs, by up to half a per mille.
fn same_load(a: (Sweep, f64), b: (Sweep, f64)) -> bool {
    a.0 == b.0 && (a.1 / b.1 - 1.0).abs() < 5e-4
}

fn half(points: &[&Point], is_so: fn(&Point) -> bool) -> bool {
    2 * points.iter().filter(|point| is_so(point)).count() >= points.len()
}

/// The logarithm of a point's figure. Zero counts as half a request.
fn log(point: &Point, figure: &str) -> Option<f64> {
    let outcomes = &point.outcomes;
    let value = match figure {
        // Errors are often quick, so only good answers count.
        names::THROUGHPUT => {
            let least = 0.5e9 / point.duration_ns as f64;
            let is_asked = zones::unserved(point, &Criteria::default()).is_some();
            good_per_sec(point).map(|rate| if is_asked { rate.max(least) } else { rate })
        }
        name if name == GOOD.0 => {
            let asked = outcomes.sum();
            (asked > 0).then(|| (1.0 - lost_ratio(outcomes)).max(0.5 / asked as f64))
        }
        names::SERVER_CPU => cpu_us(point),
        name => point.value(name),
    };
    value.filter(|value| value.is_finite() && *value > 0.0).map(f64::ln)
}

fn doubts_of_points(a: (&RunDir, Vec<&Point>), b: (&RunDir, Vec<&Point>)) -> Vec<String> {
    let of = |(run, points): (&RunDir, Vec<&Point>)| -> Vec<String> {
        let whole = run.record.doubts.iter().chain(&run.reading_doubts);
        let whole = whole
            .filter(|doubt| doubt.severity >= Severity::Warning)
            .map(|doubt| record::text::plain(&doubt.what, 300));
        whole.chain(disturbance::doubts_of_points(points.into_iter())).collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let both = of_a.iter().filter(|doubt| of_b.contains(doubt)).map(|doubt| format!("A and B: {doubt}"));
    let only_a = of_a.iter().filter(|doubt| !of_b.contains(doubt)).map(|doubt| format!("A: {doubt}"));
    let only_b = of_b.iter().filter(|doubt| !of_a.contains(doubt)).map(|doubt| format!("B: {doubt}"));
    both.chain(only_a).chain(only_b).collect()
}

fn doubts(a: &RunDir, b: &RunDir, figures: &[Difference]) -> Vec<String> {
    let mut doubts: Vec<String> = subjects::machines(a, b).into_iter().collect();
    let apart = a.record.started_unix_ms.abs_diff(b.record.started_unix_ms) / 60_000;
    if apart > 30 {
        doubts.push(format!(
            "the runs began {apart} minutes apart: a machine's speed drifts; measure them in turn (find --compare-with)"
        ));
    }
    if figures.iter().all(|figure| figure.outcome == Outcome::Untested) {
        doubts.push("nothing could be tested, because both runs need two repeats: measure with --repeats".into());
    }
    doubts
}
