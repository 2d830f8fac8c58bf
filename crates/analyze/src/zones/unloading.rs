//! The unloading curve: throughput on the way down through the loads, compared with the way up. If it is lower, the
//! overload persists after its cause is gone (Huang and others, "Metastable Failures in the Wild", OSDI 2022).
//!
//! Both ways belong to one repeat. Each load of the way down is compared with the ways up before and after it,
//! interpolated over time. So neither drift of the machine nor a server that slows with each request looks like a
//! difference.
//!
//! A server that never recovers is down on both ways. It is compared with its own throughput before the fall (Bronson
//! and others, "Metastable Failures in Distributed Systems", HotOS 2021).

use crate::axis::{FigureChange, estimate};
use crate::disturbance::{DISTURBED_RATIO, counted, is_disturbed};
use crate::within::{self, Pairs, RepeatPair, Visit};
use crate::zones::{LevelTrial, PointFinding, PointPlace, SweepFindings, fails, load_words, percent, recovery};
use record::{Criteria, Doubt, DoubtKind, Estimate, Point, Sweep, units};
use serde::Serialize;
use statistics::{median, range};
use std::collections::BTreeMap;

/// The two ways differ at a load if throughput on the way down is at most this share of that on the way up,
pub const APART_RATIO: f64 = 0.75;
/// the whole interval is below this share,
pub const APART_AT_MOST: f64 = 0.9;
/// and it was measured in at least this many repeats.
pub const LEAST_REPEATS: usize = 3;
/// In a single repeat, a load counts as off the loading curve at half of that difference.
const OFF_RATIO: f64 = 0.866;
/// A server never recovered if it was down at this many of the lowest loads,
const LEAST_LOADS: usize = 2;
/// at each of them in at least this many visits, all of them (their range contains the median 15 times of 16),
const LEAST_VISITS: usize = 5;
/// and fell at once: between the earlier and the later visits it changed by at most this share of the fall. A server
/// that slows steadily changes by half of it.
const STEADY_RATIO: f64 = 0.25;

/// One load on both ways.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct UnloadingLevel {
    /// Number of connections.
    pub load: f64,
    /// Good answers per second on the way up.
    pub loading_per_sec: Option<Estimate>,
    /// Good answers per second on the way down.
    pub unloading_per_sec: Option<Estimate>,
    /// Change from the way up to the way down, within repeats; absent if the load failed on the way up. If the server
    /// never recovered: the change from before the fall to after it.
    pub change: Option<FigureChange>,
    /// Whether the two ways differ: the way down is significantly lower.
    pub is_apart: bool,
}

/// The findings of the way down.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Unloading {
    /// Findings at each load, ascending.
    pub levels: Vec<UnloadingLevel>,
    /// Load at which the server is back on its loading curve. `held`: highest load at which it is; `failed`: lowest
    /// load at which it is not. `beyond`: it never left the curve. `below`: it had not recovered at the lowest load.
    pub recovery_point: PointFinding,
    /// Whether the server never recovered: on all ways after its fall, up and down, its throughput was lower even at
    /// the lowest loads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_back: bool,
    /// Repeats with both ways.
    pub repeats: u64,
    /// Reasons to doubt the way down.
    pub doubts: Vec<Doubt>,
}

impl Unloading {
    /// The load at which the two ways differ most.
    pub fn widest(&self) -> Option<(f64, FigureChange)> {
        let apart = self.levels.iter().filter(|level| level.is_apart);
        apart
            .filter_map(|level| Some((level.load, level.change?)))
            .min_by(|a, b| a.1.ratio.value.total_cmp(&b.1.ratio.value))
    }

    /// If no load differs significantly: the load at which the way down was as low, but with too few or too different
    /// repeats.
    fn unsure(&self) -> Option<(f64, FigureChange)> {
        let compared = self.levels.iter().filter_map(|level| Some((level.load, level.change?)));
        let low = compared.filter(|(_, change)| change.ratio.value <= APART_RATIO);
        low.min_by(|a, b| a.1.ratio.value.total_cmp(&b.1.ratio.value)).filter(|_| self.widest().is_none())
    }

    /// One sentence on both ways.
    pub fn sentence(&self) -> String {
        let unit = Sweep::Connections;
        if let Some((load, change)) = self.unsure() {
            return format!("On the way down, {}: {}.", lower_words(load, &change), why_unsure(&change));
        }
        // For a server that never recovered, the lowest load is the best evidence.
        let lowest_apart = self.levels.iter().find(|level| level.is_apart).filter(|_| self.never_back);
        let lowest_apart = lowest_apart.and_then(|level| Some((level.load, level.change?)));
        let Some((load, change)) = lowest_apart.or(self.widest()) else {
            let compared: Vec<&FigureChange> = self.levels.iter().filter_map(|level| level.change.as_ref()).collect();
            let Some(n) = compared.iter().map(|change| change.ratio.n).max() else {
                return "The way down could not be compared: no load held on the way up and was measured on both ways."
                    .into();
            };
            let furthest = compared.iter().map(|change| (change.ratio.value - 1.0).abs()).fold(0.0, f64::max);
            return format!(
                "On the way down, throughput was the same at every load that held on the way up (medians within {}, n \
                 = {n}).",
                percent(furthest)
            );
        };
        let lowest = load_words(self.levels.first().map_or(0.0, |level| level.load), unit);
        if self.never_back {
            return format!(
                "The server came down once and does not recover even at {lowest}: the recovery point was not reached. \
                 With {} its throughput was {} of that before{}, on every way up and down since. Its zones are those \
                 of the broken-down server.",
                load_words(load, unit),
                percent(change.ratio.value),
                range_words(&change)
            );
        }
        let back = match &self.recovery_point {
            found @ PointFinding { estimate: Some(_), held: Some(held), failed: Some(failed), .. } => format!(
                "It had recovered at {}, but not at {}: the recovery point is about {}",
                load_words(*held, unit),
                units::grouped(*failed),
                crate::zones::estimate_words(found, unit).unwrap_or_default()
            ),
            _ => format!("It does not recover even at {lowest}: the recovery point was not reached"),
        };
        format!("On the way down, {}. {back}.", lower_words(load, &change))
    }
}

type Visits = BTreeMap<u32, Visit>;

/// Compares the way down with the way up; `None` without a way down.
pub fn find(points: &[Point], closed: Option<&SweepFindings>, criteria: &Criteria) -> Option<Unloading> {
    let down = of_sweep(points, Sweep::Unloading);
    if down.is_empty() {
        return None;
    }
    let up = of_sweep(points, Sweep::Connections);
    let held = |load: u64| {
        let level = closed.and_then(|closed| closed.level(load as f64));
        level.is_some_and(|level| 2 * level.failing < level.points)
    };
    let nothing = Visits::new();
    let (mut levels, mut pairs) = (Vec::new(), Vec::new());
    for (load, visits) in &down {
        let ups = up.get(load).unwrap_or(&nothing);
        let compared = if held(*load) { compared(ups, visits) } else { Pairs::default() };
        let rates = |visits: &Visits| estimate(visits.values().map(|visit| visit.value), criteria);
        let found = compared.change(criteria.confidence_ratio);
        let change = found.map(|(from, to, ratio)| FigureChange { from, to, ratio });
        levels.push(UnloadingLevel {
            load: *load as f64,
            loading_per_sec: rates(ups),
            unloading_per_sec: rates(visits),
            change,
            is_apart: change.is_some_and(|change| {
                change.ratio.n as usize >= LEAST_REPEATS
                    && change.ratio.value <= APART_RATIO
                    && change.ratio.high.is_some_and(|high| high <= APART_AT_MOST)
            }),
        });
        let ratio = |pair: &RepeatPair| pair.after / pair.before;
        let trial = |pair: &RepeatPair| LevelTrial::new(*load as f64, pair.repeat, ratio(pair) <= OFF_RATIO);
        pairs.extend(compared.pairs.iter().map(trial));
    }
    let repeats = down.values().map(|visits| visits.len()).max().unwrap_or(0);
    let mut recovery_point = recovery_point(&levels, &pairs, repeats, criteria);
    let has_loop = levels.iter().any(|level| level.is_apart);
    let fallen = if has_loop { BTreeMap::new() } else { never_back(points, criteria) };
    for (load, fallen) in &fallen {
        let Some(level) = levels.iter_mut().find(|level| level.load == *load as f64) else { continue };
        level.loading_per_sec = estimate(fallen.before.iter().copied(), criteria);
        (level.change, level.is_apart) = (Some(fallen.change), true);
    }
    if let Some(lowest) = fallen.keys().next().map(|load| *load as f64) {
        // Loads measured only after the overload have no baseline.
        let others = levels.iter_mut().filter(|level| !level.is_apart);
        others.for_each(|level| (level.loading_per_sec, level.change) = (None, None));
        (recovery_point.place, recovery_point.reason) = (PointPlace::Below, not_reached(lowest));
        (recovery_point.failed, recovery_point.high) = (Some(lowest), Some(lowest));
    }
    let (doubts, never_back) = (doubts(points, repeats), !fallen.is_empty());
    let mut found = Unloading { levels, recovery_point, never_back, repeats: repeats as u64, doubts };
    if let Some((load, change)) = found.unsure() {
        let why = why_unsure(&change);
        (found.recovery_point.place, found.recovery_point.reason) = (PointPlace::Unknown, format!("not known: {why}"));
        if repeats >= LEAST_REPEATS {
            let what = format!("{}: {why}", lower_words(load, &change));
            let remedy = "allow more time with --budget, or fewer loads with --max-connections";
            found.doubts.push(DoubtKind::TooFewSamples.warning(what, remedy));
        }
    }
    Some(found)
}

/// `throughput with 64 connections was 60 % of that on the way up (50 % to 70 %, n = 5)`.
fn lower_words(load: f64, change: &FigureChange) -> String {
    format!(
        "throughput with {} was {} of that on the way up{}",
        load_words(load, Sweep::Connections),
        percent(change.ratio.value),
        range_words(change)
    )
}

fn range_words(change: &FigureChange) -> String {
    match change.ratio.interval() {
        Some((low, high)) => format!(" ({} to {}, n = {})", percent(low), percent(high), change.ratio.n),
        None => format!(" (n = {})", change.ratio.n),
    }
}

fn why_unsure(change: &FigureChange) -> &'static str {
    if (change.ratio.n as usize) < LEAST_REPEATS {
        "too few repeats to distinguish that from chance"
    } else {
        "the repeats differ too much to distinguish that from chance"
    }
}

fn not_reached(lowest: f64) -> String {
    format!("not reached: still down at the lowest load, {}", load_words(lowest, Sweep::Connections))
}

/// A load at which the server has been down since a turn of the ways.
struct FallenLoad {
    /// Whether the load is significantly lower; otherwise it is unchanged.
    is_down: bool,
    /// Good answers per second of each visit before the turn.
    before: Vec<f64>,
    /// Change from before the turn to all visits since.
    change: FigureChange,
    /// Change from the earlier to the later visits since the turn, as a logarithm.
    moved: f64,
}

/// The lowest loads at which the server has been down ever since its fall; empty if it recovered or never fell.
fn never_back(points: &[Point], criteria: &Criteria) -> BTreeMap<u64, FallenLoad> {
    let is_way = |point: &&Point| matches!(point.sweep, Sweep::Connections | Sweep::Unloading);
    let mut ways: Vec<&Point> = points.iter().filter(is_way).collect();
    ways.sort_by_key(|point| point.index);
    // The fall happens at the highest loads, at the end of the first pass or of a way up.
    let first = |is_after: &dyn Fn(&&&Point) -> bool| ways.iter().find(is_after).map(|point| point.index);
    let last = ways.iter().map(|point| point.repeat).max().unwrap_or(0);
    let of_repeats = (1..=last).map(|repeat| first(&|point| point.sweep == Sweep::Unloading && point.repeat == repeat));
    let turns = std::iter::once(first(&|point| point.repeat > 0)).chain(of_repeats).flatten();
    let of_turns = turns.map(|turn| fallen_since(turn, &ways, criteria));
    let fell_at_once = |fallen: &BTreeMap<u64, FallenLoad>| {
        let middle = |of: fn(&FallenLoad) -> f64| median(fallen.values().map(of)).unwrap_or(0.0).abs();
        middle(|fallen| fallen.moved) <= STEADY_RATIO * middle(|fallen| fallen.change.ratio.value.ln())
    };
    of_turns.into_iter().find(|fallen| fallen.len() >= LEAST_LOADS && fell_at_once(fallen)).unwrap_or_default()
}

fn fallen_since(turn: u32, ways: &[&Point], criteria: &Criteria) -> BTreeMap<u64, FallenLoad> {
    let mut by_load: BTreeMap<u64, (Vec<&Point>, Vec<&Point>)> = BTreeMap::new();
    for point in ways {
        let (before, since) = by_load.entry(point.connections).or_default();
        if point.index < turn { before.push(point) } else { since.push(point) }
    }
    // Loads added later have no baseline. The first unchanged load ends the range.
    let known = by_load.into_iter().filter(|(_, (before, _))| !before.is_empty());
    let judged: Vec<_> = known.map(|(load, (before, since))| (load, fallen(&before, &since, criteria))).collect();
    let as_before = judged.iter().filter(|(_, one)| one.as_ref().is_some_and(|one| !one.is_down)).count();
    let down = judged.into_iter().map_while(|(load, one)| Some((load, one.filter(|one| one.is_down)?)));
    let fallen: BTreeMap<u64, FallenLoad> = down.collect();
    // A server that is unchanged at most loads has recovered.
    if as_before > fallen.len() { BTreeMap::new() } else { fallen }
}

/// Compares a load before and since the turn; `None` if that is impossible.
fn fallen(before: &[&Point], since: &[&Point], criteria: &Criteria) -> Option<FallenLoad> {
    let before = counted(before);
    if since.len() < LEAST_VISITS || 2 * before.iter().filter(|point| fails(point, criteria)).count() >= before.len() {
        return None;
    }
    let before: Vec<f64> = before.iter().filter_map(|point| good_per_sec(point)).collect();
    let since: Vec<f64> = since.iter().filter_map(|point| good_per_sec(point)).collect();
    let (from, to) = (median(&before)?, median(&since)?);
    let (least, most) = range(&since)?;
    let (earlier, later) = since.split_at(since.len() / 2);
    let moved = (median(later)? / median(earlier)?).ln();
    let ends = Some((least / from, most / from));
    let change =
        FigureChange { from, to, ratio: Estimate::new(to / from, ends, criteria.confidence_ratio, since.len()) };
    let is_down = change.ratio.value <= APART_RATIO && most / from <= APART_AT_MOST;
    Some(FallenLoad { is_down, before, change, moved })
}

/// Good answers per second; 0.001 for a server that answers no request.
fn good_per_sec(point: &Point) -> Option<f64> {
    crate::point::good_per_sec(point).or((point.outcomes.completed() == 0).then_some(0.0)).map(|rate| rate.max(1e-3))
}

/// The visits of each repeat by load, without the first pass, whose points are too short.
fn of_sweep(points: &[Point], sweep: Sweep) -> BTreeMap<u64, Visits> {
    let mut by_load: BTreeMap<u64, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| point.sweep == sweep && point.repeat > 0) {
        by_load.entry(point.connections).or_default().push(point);
    }
    by_load.into_iter().map(|(load, points)| (load, within::visits(&points, good_per_sec))).collect()
}

/// Compares the way down with the way up of the same repeat, or with the interpolation between that and the next way
/// up.
fn compared(ups: &Visits, downs: &Visits) -> Pairs {
    let before = ups.iter().map(|(repeat, before)| {
        let between = |down: &Visit| match ups.get(&(repeat + 1)) {
            Some(after) if after.at_ms > before.at_ms => {
                let share = ((down.at_ms - before.at_ms) / (after.at_ms - before.at_ms)).clamp(0.0, 1.0);
                Visit { value: before.value.powf(1.0 - share) * after.value.powf(share), ..*before }
            }
            _ => *before,
        };
        (*repeat, downs.get(repeat).map_or(*before, between))
    });
    within::paired(&before.collect(), downs)
}

/// `pairs`: those in which the way down was off the loading curve count as failed.
fn recovery_point(
    levels: &[UnloadingLevel],
    pairs: &[LevelTrial],
    repeats: usize,
    criteria: &Criteria,
) -> PointFinding {
    let Some(highest) = levels.iter().rfind(|level| level.is_apart).map(|level| level.load) else {
        let reason = "throughput was the same on the way down";
        return PointFinding { place: PointPlace::Beyond, ..PointFinding::none(criteria, repeats, reason) };
    };
    // Both ways meet again at loads at which the server fails.
    let below: Vec<LevelTrial> = pairs.iter().copied().filter(|pair| pair.load <= highest).collect();
    let mut point = recovery(&below, repeats, criteria);
    point.reason = match (point.held, point.failed) {
        (Some(back), Some(off)) => format!(
            "recovered at {}, not yet at {}",
            load_words(back, Sweep::Connections),
            load_words(off, Sweep::Connections)
        ),
        _ => not_reached(levels.first().map_or(0.0, |level| level.load)),
    };
    point
}

fn doubts(points: &[Point], repeats: usize) -> Vec<Doubt> {
    let mut found = Vec::new();
    if repeats < LEAST_REPEATS {
        found.push(DoubtKind::TooFewSamples.warning(
            format!("the way down was measured only {repeats} times, too few to compare it with the way up"),
            "allow more time with --budget, or fewer loads with --max-connections",
        ));
    }
    let both = || points.iter().filter(|point| matches!(point.sweep, Sweep::Unloading | Sweep::Connections));
    let (disturbed, all) = (both().filter(|point| is_disturbed(point)).count(), both().count());
    if disturbed as f64 >= DISTURBED_RATIO * all as f64 && disturbed > 0 {
        found.push(DoubtKind::NoisyNeighbour.warning(
            format!(
                "other work disturbed {disturbed} of {all} points of the ways up and down, and may have caused a \
                     difference"
            ),
            "stop the other work and repeat it, or give the server and the client separate CPUs",
        ));
    }
    found
}
