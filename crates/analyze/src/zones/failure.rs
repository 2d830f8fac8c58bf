//! Decides whether a trial failed, and between which loads failure begins.

use super::{PointFinding, PointPlace};
use crate::disturbance::DISTURBED_WEIGHT;
use crate::shown::{nanos_against, percent_against};
use rand::RngExt;
use record::units::{count, grouped};
use record::{Arrival, Criteria, Pace, Point, names};
use statistics::curve::isotonic;
use statistics::interval_of_draws;
use std::collections::{BTreeMap, BTreeSet};

/// A larger share of connections without a response byte is a failure, because the 99th percentile then has no
/// response.
const SILENT_RATIO: f64 = 0.01;
/// A backlog of more than this many standard deviations of the number in flight is certain; up to the next constant
/// it may be chance.
const SURE_DEVIATIONS: f64 = 3.0;
const CHANCE_DEVIATIONS: f64 = 1.0;
const RECOVERY_SEED: u64 = 0x5245;

/// Stalls that a window must contain before a backlog or a late percentile is typical of the server.
pub const STALLS: f64 = 30.0;
/// Requests that a window must contain for its 99th percentile.
pub const REQUESTS: u64 = 1_000;
/// Goodput below this share of the offered load is a failure in any window.
const HOPELESS_RATIO: f64 = 0.5;
/// Goodput below this share is also a failure if only [`EXPLAINING_STALLS`] of the longest stalls could explain it.
const FAR_BEHIND_RATIO: f64 = 0.9;
const EXPLAINING_STALLS: f64 = 4.0;

/// Whether a point failed: it crossed a criterion of failure in a window that was long enough to judge.
pub fn fails(point: &Point, criteria: &Criteria) -> bool {
    judged(point, criteria) == Some(TrialResult::Failed)
}

/// Judges a point's load; `None` if that is impossible (see [`crossed`]).
pub fn judged(point: &Point, criteria: &Criteria) -> Option<TrialResult> {
    if !unserved(point, criteria)?.is_empty() {
        return Some(TrialResult::Failed);
    }
    let is_beyond = |name| point.value(name).is_some_and(|us| us * 1e3 > criteria.p99_limit_ns as f64);
    let short = point.value(names::GOODPUT).and_then(|goodput| shortfall(point, goodput));
    let short = short.filter(|short| short.share < criteria.goodput_ratio);
    let is_hopeless = short.is_some_and(|short| {
        let is_far_behind = short.share < FAR_BEHIND_RATIO && short.stalls > EXPLAINING_STALLS;
        (short.share < HOPELESS_RATIO || is_far_behind) && short.deviations > SURE_DEVIATIONS
    });
    let is_late = is_beyond(names::RESPONSE_P99);
    // The guards of live traffic allow for chance themselves.
    let has_stepped_back = is_late && point.value(names::LIVE_STEPPED_BACK).is_some();
    if is_hopeless || has_stepped_back || is_late && is_beyond(names::RESPONSE_P90) {
        return Some(TrialResult::Failed);
    }
    let is_behind = short.is_some_and(|short| short.deviations_beyond_stall > SURE_DEVIATIONS);
    let may_be_behind = short.is_some_and(|short| short.deviations > CHANCE_DEVIATIONS);
    let sent_ratio = sent_ratio(point).unwrap_or(1.0);
    let holds_stalls = point.duration_ns as f64 >= STALLS * stall_ns(point);
    let is_failed = holds_stalls
        && (is_behind || is_late && point.outcomes.completed() >= REQUESTS)
        && sent_ratio <= 1.0 + criteria.bracket_ratio;
    Some(if is_failed {
        TrialResult::Failed
    } else if is_late || may_be_behind || sent_ratio < 1.0 - criteria.bracket_ratio {
        TrialResult::Unclear
    } else {
        TrialResult::Held
    })
}

/// The longest time without a response in a point's window, nanoseconds.
pub(crate) fn stall_ns(point: &Point) -> f64 {
    1e3 * point.value(names::STALL_MAX).unwrap_or(0.0)
}

/// Requests sent by a Poisson schedule as a share of the nominal rate.
fn sent_ratio(point: &Point) -> Option<f64> {
    let Pace::Open { rate_per_sec, arrival: Arrival::Poisson } = point.pace else { return None };
    let planned = rate_per_sec * point.duration_ns as f64 / 1e9;
    (planned > 0.0 && point.outcomes.sent > 0).then(|| point.outcomes.sent as f64 / planned)
}

/// Describes the criteria of failure that a point crossed, with value and limit, even in a short window. `None` if no
/// request was sent, or if a log offered a rate other than the point's.
pub fn crossed(point: &Point, criteria: &Criteria) -> Option<Vec<String>> {
    let mut found = unserved(point, criteria)?;
    if let Some(share) = point.value(names::GOODPUT).and_then(|goodput| behind_ratio(point, goodput, criteria)) {
        let (share, limit) = percent_against(share, criteria.goodput_ratio);
        found.push(format!("{share} of the offered load was answered in time (limit {limit})"));
    }
    if let Some(p99_us) = point.value(names::RESPONSE_P99)
        && p99_us * 1e3 > criteria.p99_limit_ns as f64
    {
        let (time, limit) = nanos_against(p99_us * 1e3, criteria.p99_limit_ns as f64);
        found.push(format!("response time p99 was {time} (limit {limit})"));
    }
    Some(found)
}

/// The crossed criteria that depend on no time: failed requests, no responses, connections without a response.
pub(crate) fn unserved(point: &Point, criteria: &Criteria) -> Option<Vec<String>> {
    let outcomes = &point.outcomes;
    // Connections of a closed loop always send.
    let is_asking = point.pace == Pace::Closed && point.connections > 0 && point.duration_ns > 0;
    if outcomes.requests() == 0 && outcomes.sum() == 0 && !is_asking || point.other_rate_ratio().is_some() {
        return None;
    }
    let mut found = Vec::new();
    let failed = server_failures(point);
    let finished = outcomes.completed().saturating_add(outcomes.errors());
    let failed_ratio = if finished == 0 { 0.0 } else { failed as f64 / finished as f64 };
    if failed_ratio > criteria.error_ratio {
        let mut kinds: Vec<String> = outcomes
            .failures()
            .iter()
            .filter(|(_, count)| *count as f64 >= 0.1 * failed as f64)
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        kinds.truncate(3);
        let (share, limit) = percent_against(failed_ratio, criteria.error_ratio);
        found.push(format!("{share} of the requests failed (limit {limit}): {}", kinds.join(", ")));
    }
    let is_the_clients = outcomes.local_limit > 0 && outcomes.unfinished == 0;
    if outcomes.completed() == 0 && failed == 0 && !is_the_clients {
        found.push("no request was answered".into());
    }
    if outcomes.completed() > 0
        && let Some(ratio) = outcomes.silent_ratio()
        && ratio > SILENT_RATIO
    {
        found.push(format!(
            "{} of {} connections got no answer in the whole window",
            grouped(outcomes.connections_silent as f64),
            grouped(outcomes.connections_used as f64)
        ));
    }
    Some(found)
}

/// Failed requests, except those for which the client had no port or descriptor.
fn server_failures(point: &Point) -> u64 {
    let outcomes = &point.outcomes;
    outcomes.errors().saturating_sub(outcomes.local_limit).saturating_add(outcomes.non_2xx)
}

/// Answered rate as a share of the offered rate, if it is below the criterion by more requests than chance leaves in
/// flight at the end of a window.
pub(super) fn behind_ratio(point: &Point, answered_per_sec: f64, criteria: &Criteria) -> Option<f64> {
    let short = shortfall(point, answered_per_sec)?;
    (short.share < criteria.goodput_ratio && short.deviations > SURE_DEVIATIONS).then_some(short.share)
}

/// The part of the offered load that was not answered in the window.
#[derive(Debug, Clone, Copy)]
struct Shortfall {
    share: f64,
    /// Missing answers in standard deviations of the number in flight.
    deviations: f64,
    /// The same, less the answers that one stall at the end of the window can explain.
    deviations_beyond_stall: f64,
    /// Missing answers as a multiple of those that the longest stall can explain.
    stalls: f64,
}

fn shortfall(point: &Point, answered_per_sec: f64) -> Option<Shortfall> {
    let offered_per_sec = offered_per_sec(point)?;
    // A damaged run may have any rate.
    let answered_per_sec = answered_per_sec.max(0.0);
    let seconds = point.duration_ns as f64 / 1e9;
    // By Little's law. If the server keeps up, the number in flight still varies by at least its square root.
    let response_us = point.value(names::RESPONSE_MEAN).or(point.value(names::RESPONSE_P50)).unwrap_or(0.0);
    let in_flight = (answered_per_sec * response_us / 1e6).max(1.0);
    let lacking = (offered_per_sec - answered_per_sec) * seconds;
    let of_stall = offered_per_sec * stall_ns(point) / 1e9;
    let deviation = (2.0 * in_flight).sqrt();
    Some(Shortfall {
        share: answered_per_sec / offered_per_sec,
        deviations: lacking / deviation,
        deviations_beyond_stall: (lacking - of_stall) / deviation,
        stalls: if of_stall > 0.0 { lacking / of_stall } else { f64::INFINITY },
    })
}

/// The offered rate: requests sent in the window, at most the nominal rate.
pub(super) fn offered_per_sec(point: &Point) -> Option<f64> {
    let nominal = point.offered_per_sec()?;
    let seconds = point.duration_ns as f64 / 1e9;
    let issued = point.outcomes.sent as f64 / seconds;
    Some(if seconds > 0.0 && issued > 0.0 { issued.min(nominal) } else { nominal }).filter(|rate| *rate > 0.0)
}

/// One trial of a load.
#[derive(Debug, Clone, Copy)]
pub struct LevelTrial {
    /// Connections, or requests per second.
    pub load: f64,
    /// Number of the repeat.
    pub repeat: u32,
    /// Result of the trial.
    pub judged: TrialResult,
    /// Share of a full-length point.
    pub weight: f64,
    /// Whether other work disturbed the trial.
    pub is_disturbed: bool,
    /// Number of requests of a random schedule, whose rate has a relative error of 1/sqrt of it; `None` for other
    /// schedules.
    pub random_requests: Option<f64>,
}

impl LevelTrial {
    /// An undisturbed trial of full length.
    pub fn new(load: f64, repeat: u32, is_failed: bool) -> LevelTrial {
        let judged = if is_failed { TrialResult::Failed } else { TrialResult::Held };
        LevelTrial { load, repeat, judged, weight: 1.0, is_disturbed: false, random_requests: None }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialResult {
    /// The server held the load.
    Held,
    /// The window was too short to judge; counts half as failed.
    Unclear,
    /// The server failed.
    Failed,
}

impl TrialResult {
    fn failing_ratio(self) -> f64 {
        match self {
            TrialResult::Held => 0.0,
            TrialResult::Unclear => 0.5,
            TrialResult::Failed => 1.0,
        }
    }
}

/// The bounds of the failure point: the highest load that holds and the lowest that fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bracket {
    /// Highest load that holds.
    pub lower: Option<f64>,
    /// Lowest load that fails.
    pub upper: Option<f64>,
}

/// Brackets the failure point. The share of failing trials by load, made monotone (pooled adjacent violators,
/// weighted by the trials' lengths), is below one half at `lower` and above it at `upper`. A load with exactly one
/// half is between them, as is one whose undisturbed trials contradict the result of all trials.
pub fn bracket(trials: &[LevelTrial]) -> Bracket {
    let fitted = |disturbed_weight: f64| {
        let shares = shares(trials, disturbed_weight);
        isotonic(&shares.iter().map(|one| (one.failed, one.weight)).collect::<Vec<_>>())
    };
    let mut bracket = Bracket { lower: None, upper: None };
    for (one, (all, undisturbed)) in
        shares(trials, 1.0).iter().zip(fitted(1.0).into_iter().zip(fitted(DISTURBED_WEIGHT)))
    {
        if all.max(undisturbed) < 0.5 - 1e-9 {
            bracket.lower = Some(one.load);
        } else if all.min(undisturbed) > 0.5 + 1e-9 && bracket.upper.is_none() {
            bracket.upper = Some(one.load);
        }
    }
    bracket
}

/// Describes the trials that failed above `from`: `1 of 2 trials failed at 8 connections`; empty if none.
pub fn some_failed(trials: &[LevelTrial], from: f64, words: impl Fn(f64) -> String) -> String {
    let sorted = by_load(trials);
    let above = sorted.chunk_by(|a, b| a.load == b.load).filter(|same| same[0].load > from);
    let said = above.filter_map(|same| {
        let failed: Vec<_> = same.iter().filter(|trial| trial.judged == TrialResult::Failed).collect();
        let disturbed = match failed.iter().filter(|trial| trial.is_disturbed).count() {
            0 => String::new(),
            n if n == failed.len() && n == 1 => ", while other work ran".into(),
            n if n == failed.len() => format!(", all {n} while other work ran"),
            n => format!(", {n} of them while other work ran"),
        };
        let trials = count(same.len(), "trial");
        (!failed.is_empty())
            .then(|| format!("{} of {trials} failed at {}{disturbed}", failed.len(), words(same[0].load)))
    });
    said.take(3).collect::<Vec<_>>().join("; ")
}

fn by_load(trials: &[LevelTrial]) -> Vec<&LevelTrial> {
    let mut sorted: Vec<&LevelTrial> = trials.iter().collect();
    sorted.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.repeat.cmp(&b.repeat)));
    sorted
}

/// The trials of one load.
struct FailedShare {
    load: f64,
    /// Weighted share of failing trials.
    failed: f64,
    /// Total weight.
    weight: f64,
}

/// Ascending loads.
fn shares(trials: &[LevelTrial], disturbed_weight: f64) -> Vec<FailedShare> {
    let mut shares: Vec<FailedShare> = Vec::new();
    for trial in trials {
        let at = shares.partition_point(|one| one.load < trial.load);
        if shares.get(at).is_none_or(|one| one.load != trial.load) {
            shares.insert(at, FailedShare { load: trial.load, failed: 0.0, weight: 0.0 });
        }
        let weight = trial.weight * if trial.is_disturbed { disturbed_weight } else { 1.0 };
        shares[at].failed += weight * trial.judged.failing_ratio();
        shares[at].weight += weight;
    }
    shares.iter_mut().for_each(|one| one.failed /= one.weight);
    shares
}

/// Loads whose trials disagree, and loads that mostly failed while a higher one mostly held.
pub fn inconsistent(trials: &[LevelTrial]) -> Vec<f64> {
    let clear: Vec<LevelTrial> = trials.iter().filter(|trial| trial.judged != TrialResult::Unclear).copied().collect();
    let shares = shares(&clear, 1.0);
    let highest_held = shares.iter().filter(|one| one.failed < 0.5).map(|one| one.load).fold(0.0, f64::max);
    let is_mixed = |one: &&FailedShare| one.failed > 0.0 && one.failed < 1.0;
    let is_below = |one: &&FailedShare| one.failed > 0.5 && one.load < highest_held;
    shares.iter().filter(|one| is_mixed(one) || is_below(one)).map(|one| one.load).collect()
}

/// Interval of the failure point: the bracket, widened by a bootstrap. With three or more repeats it draws whole
/// repeats (their trials share the machine's speed), otherwise single trials.
fn bracket_interval(trials: &[LevelTrial], confidence: f64, seed: u64) -> Option<(f64, Option<f64>)> {
    let found = bracket(trials);
    let lowest = trials.iter().map(|trial| trial.load).fold(f64::INFINITY, f64::min);
    let highest = trials.iter().map(|trial| trial.load).fold(0.0, f64::max);
    let mut by_repeat: BTreeMap<u32, Vec<LevelTrial>> = BTreeMap::new();
    for trial in trials {
        by_repeat.entry(trial.repeat).or_default().push(*trial);
    }
    let clusters: Vec<Vec<LevelTrial>> = if by_repeat.len() >= 3 {
        by_repeat.into_values().collect()
    } else {
        trials.iter().map(|trial| vec![*trial]).collect()
    };
    let (low, high) = interval_of_draws(confidence, seed, |random| {
        let drawn: Vec<LevelTrial> =
            clusters.iter().flat_map(|_| clusters[random.random_range(0..clusters.len())].iter().copied()).collect();
        let drawn = bracket(&drawn);
        Some(match (drawn.lower, drawn.upper) {
            (Some(lower), Some(upper)) => (lower * upper).sqrt(),
            (Some(lower), None) => lower.max(highest),
            (None, upper) => upper.unwrap_or(lowest).min(lowest),
        })
    })?;
    let low = found.lower.unwrap_or(lowest).min(low);
    let high = found.upper.map(|upper| upper.max(high));
    let (Some(lower), Some(upper)) = (found.lower, found.upper) else { return Some((low, high)) };
    let middle = (lower * upper).sqrt();
    let wider = |end: f64, load: f64| (1.0 - end / middle).hypot(2.0 / requests_at(trials, load).sqrt());
    Some((middle * (1.0 - wider(low, lower)), high.map(|high| middle * (1.0 + wider(high, upper)))))
}

/// Requests of random schedules at a load; infinite for a fixed schedule.
fn requests_at(trials: &[LevelTrial], load: f64) -> f64 {
    let there = trials.iter().filter(|trial| trial.load == load);
    there.map(|trial| trial.random_requests.unwrap_or(f64::INFINITY).max(1.0)).sum()
}

/// The recovery point, between loads that are off the loading curve (failed) and loads that are back on it.
pub fn recovery(trials: &[LevelTrial], repeats: usize, criteria: &Criteria) -> PointFinding {
    PointFinding { n_repeats: repeats as u64, ..bracketed(trials, bracket(trials), criteria, RECOVERY_SEED) }
}

pub(super) fn bracketed(trials: &[LevelTrial], found: Bracket, criteria: &Criteria, seed: u64) -> PointFinding {
    let mut point = PointFinding::none(criteria, repeats_at(trials, found), "");
    (point.held, point.failed, point.low) = (found.lower, found.upper, found.lower);
    match (found.lower, found.upper) {
        (Some(lower), Some(upper)) => {
            (point.place, point.estimate) = (PointPlace::Within, Some((lower * upper).sqrt()));
            point.high = Some(upper);
            if let Some((low, high)) = bracket_interval(trials, criteria.confidence_ratio, seed) {
                (point.low, point.high) = (Some(low), high);
            }
        }
        (None, Some(upper)) => (point.place, point.high) = (PointPlace::Below, Some(upper)),
        _ => {}
    }
    point
}

fn repeats_at(trials: &[LevelTrial], bracket: Bracket) -> usize {
    let count = |load: Option<f64>| {
        let repeats: BTreeSet<u32> =
            trials.iter().filter(|trial| Some(trial.load) == load).map(|trial| trial.repeat).collect();
        repeats.len()
    };
    match (bracket.lower, bracket.upper) {
        (Some(_), Some(_)) => count(bracket.lower).min(count(bracket.upper)),
        _ => count(bracket.lower).max(count(bracket.upper)),
    }
}
