//! Combines levels, curves and trials into zones and points.

use super::failure::{self, Bracket, LevelTrial, TrialResult};
use super::words::load_words;
use super::{
    CpuGrowth, Drift, Findings, FullResource, Level, Peak, PointFinding, PointPlace, SweepFindings, Zone, levels,
};
use super::{capacity, doubts};
use crate::point::{answers, costs_are_of_answers, cpu_us};
use crate::within;
use record::units::{exact_percent, percent};
use record::{Criteria, Point, RunDir, Sweep, names};
use statistics::curve::{BlockCurve, Crossing};
use statistics::{coefficient_of_variation, interval_of_draws};
use std::cmp::Ordering;
use std::collections::BTreeSet;

type LoadGroup<'a> = (f64, Vec<&'a Point>);

/// Seeds of the bootstraps: different, but fixed, so that the same run always gives the same findings.
const YIELD_SEED: u64 = 0x5947;
const FAILURE_SEED: u64 = 0x4641;
const EFFICIENCY_SEED: u64 = 0x4546;
const PEAK_SEED: u64 = 0x5045;
/// Minimum width of the knee's interval below and above. The response time at low loads includes the path, timer
/// slack and wake-ups, which make the knee slightly too high; repeats do not show by how much.
const KNEE_ERROR_BELOW: f64 = 0.04;
const KNEE_ERROR_ABOVE: f64 = 0.015;
/// Minimum relative error of the rate at which a CPU is saturated, because interrupts are charged to the interrupted
/// work.
const RATE_ERROR: f64 = 0.015;

/// Finds zones, yield and failure points in the points of a run. The order of `points` does not matter.
pub fn find(points: &[Point], criteria: &Criteria) -> Findings {
    with_axes(points, criteria, 1.0)
}

/// [`find`] with the points and criteria of a run (default criteria if it has none).
pub fn of_run(run: &RunDir) -> Findings {
    let sweep = run.record.scenario.sweep();
    let criteria = sweep.map(|sweep| sweep.criteria).unwrap_or_default();
    let demanded_ratio = sweep.and_then(|sweep| sweep.axis.as_ref()).map_or(1.0, |axis| axis.conforming_ratio);
    with_axes(&run.points, &criteria, demanded_ratio)
}

/// `demanded_ratio`: share of the connections that must conform on the axis of WebStone's criterion.
fn with_axes(points: &[Point], criteria: &Criteria, demanded_ratio: f64) -> Findings {
    let points = &*super::polling::without_polling(points, criteria);
    let connections = of_sweep(points, Sweep::Connections, criteria);
    Findings {
        criteria: *criteria,
        unloading: crate::zones::unloading::find(points, connections.as_ref(), criteria),
        connections,
        rate: of_sweep(points, Sweep::Rate, criteria),
        axes: crate::axis::of_points(points, criteria, demanded_ratio),
        drift: drift(points),
    }
}

/// The findings of one sweep; `None` if it has no point.
pub fn of_sweep(points: &[Point], sweep: Sweep, criteria: &Criteria) -> Option<SweepFindings> {
    let groups = levels::group(points, sweep);
    if groups.is_empty() {
        return None;
    }
    let mut levels: Vec<Level> = groups.iter().map(|(load, points)| levels::level(*load, points, criteria)).collect();
    let trials = levels::trials(&groups, criteria);
    let bracket = failure::bracket(&trials);
    let throughput = BlockCurve::fit(&levels::throughputs(&groups));
    let answered: Vec<LoadGroup<'_>> = groups
        .iter()
        .map(|(load, points)| (*load, points.iter().copied().filter(|point| costs_are_of_answers(point)).collect()))
        .collect();
    let cpu = BlockCurve::fit(&levels::readings(&answered, cpu_us));
    let mut failure_point = failure_point(&trials, bracket, &levels, sweep, criteria);
    let capacity = capacity::find(&groups, &levels, sweep, criteria);
    if let Some(capacity) = &capacity {
        fails_beyond_the_most_answered(&mut failure_point, capacity, criteria);
    }
    let polls = groups.iter().any(|(_, points)| points.iter().any(|point| super::polling::polls(point)));
    let mut yield_point = match sweep {
        Sweep::Rate if polls => {
            let why = "the server polls: its CPUs are as busy at the lowest load, so their saturation shows no yield \
                       point";
            PointFinding::none(criteria, 0, why)
        }
        Sweep::Rate => {
            let busy = |of: fn(&Point) -> Option<f64>| BlockCurve::fit(&levels::readings(&groups, of));
            open_yield(busy(utilisation), busy(crate::point::saturation_by_any), criteria)
        }
        _ => closed_yield(throughput.as_ref(), &levels, polls, criteria),
    };
    let from = bracket.upper.filter(|_| bracket.lower.is_none() || yield_point.estimate >= bracket.upper);
    if let (Some(upper), Some(_)) = (from, yield_point.estimate) {
        let reason = format!("failure began at {}, before the elastic zone ended", load_words(upper, sweep));
        yield_point = PointFinding { low: bracket.lower, ..PointFinding::none(criteria, 0, reason) };
    }
    if let (Sweep::Rate, Some(estimate), Some(held)) = (sweep, yield_point.estimate, bracket.lower)
        && estimate > held
    {
        // The rate to plan with must be one that held.
        yield_point.estimate = Some(held);
        yield_point.low = yield_point.low.map(|low| low.min(held));
        yield_point.reason = format!("the highest rate that held; {}", yield_point.reason);
    }
    let client_from = client_limit(&levels, yield_point.estimate);
    if let Some(from) = client_from {
        let reason = format!(
            "not reached: from {} on the client was saturated before the server, so the figures show the client's \
             limit",
            load_words(from, sweep)
        );
        yield_point = PointFinding { low: yield_point.low, ..PointFinding::none(criteria, 0, reason) };
    }
    for level in &mut levels {
        let by_points = zone(level.load, bracket, &yield_point, client_from);
        level.zone = as_its_own_trials_say(by_points, level, bracket, &trials);
    }
    let repeats: BTreeSet<u32> = groups.iter().flat_map(|(_, points)| points).map(|point| point.repeat).collect();
    let grown = growth(&answered, &levels);
    Some(SweepFindings {
        sweep,
        efficiency_point: efficiency_point(cpu.as_ref(), &answered, &levels, sweep, criteria),
        doubts: doubts::of_sweep(&levels, &trials, &yield_point, &failure_point, repeats.len(), sweep),
        capacity,
        peak: throughput.as_ref().and_then(|curve| peak(curve, &groups, &levels, criteria)),
        cpu: grown,
        levels,
        yield_point,
        failure_point,
        repeats: repeats.len() as u64,
    })
}

/// The lowest load at which the client was the limit, from the yield point on; without a yield point, the highest
/// load.
fn client_limit(levels: &[Level], yield_estimate: Option<f64>) -> Option<f64> {
    let beyond: Vec<&Level> = match yield_estimate {
        Some(estimate) => levels.iter().filter(|level| level.load > estimate).collect(),
        None => levels.iter().rev().take(1).collect(),
    };
    let limited = beyond.iter().filter(|level| level.client_limited).count();
    if limited == 0 || 2 * limited < beyond.len() {
        return None;
    }
    levels.iter().find(|level| level.client_limited).map(|level| level.load)
}

fn zone(load: f64, bracket: Bracket, yield_point: &PointFinding, client_from: Option<f64>) -> Zone {
    if bracket.upper.is_some_and(|upper| load >= upper) {
        return Zone::Failure;
    }
    if client_from.is_some_and(|from| load >= from) {
        return Zone::Unknown;
    }
    if yield_point.place == PointPlace::Below {
        return Zone::Plastic;
    }
    // The plastic zone begins above the interval, or at a factor of sqrt 2 if that is less.
    let ends = yield_point.estimate.map(|estimate| {
        let ahead = estimate * std::f64::consts::SQRT_2;
        yield_point.high.map_or(ahead, |high| high.min(ahead))
    });
    if ends.is_some_and(|ends| load > ends) { Zone::Plastic } else { Zone::Elastic }
}

/// Corrects the zone of a level so that it does not contradict its own trials. If these disagree with each other or
/// with those of other loads, it is [`Zone::Inconsistent`].
fn as_its_own_trials_say(by_points: Zone, level: &Level, bracket: Bracket, trials: &[LevelTrial]) -> Zone {
    let own: Vec<&LevelTrial> = trials.iter().filter(|trial| trial.load == level.load).collect();
    let is_judged = own.iter().any(|trial| trial.judged != TrialResult::Unclear);
    let is_between =
        bracket.lower.is_none_or(|held| level.load > held) && bracket.upper.is_none_or(|failed| level.load < failed);
    let is_without_trial = level.throughput_per_sec.is_none() && level.failing == 0;
    match (2 * level.failing).cmp(&level.points) {
        _ if is_without_trial || by_points == Zone::Unknown || !is_judged => Zone::Unknown,
        Ordering::Greater if by_points == Zone::Failure => Zone::Failure,
        Ordering::Less if by_points != Zone::Failure && !is_between => by_points,
        _ => Zone::Inconsistent,
    }
}

/// Applies the fact that a server fails at every rate certainly above its capacity.
fn fails_beyond_the_most_answered(failure_point: &mut PointFinding, capacity: &PointFinding, criteria: &Criteria) {
    let (Some(estimate), Some(held), Some(most)) = (failure_point.estimate, failure_point.held, capacity.estimate)
    else {
        return;
    };
    let certain = (capacity.high.unwrap_or(most) / criteria.goodput_ratio).max(held);
    if estimate > certain {
        failure_point.estimate = Some(certain);
        failure_point.low = failure_point.low.map(|low| low.min(certain));
    }
}

/// Makes a point from a crossing of the fitted curve, with the interval over bootstrap draws.
fn crossing(
    curve: &BlockCurve,
    criteria: &Criteria,
    (seed, drops_loads): (u64, bool),
    find: impl Fn(&BlockCurve) -> Option<Crossing>,
) -> (Option<Crossing>, PointFinding) {
    let (lowest, highest) = curve.ends();
    let interval =
        interval_of_draws(criteria.confidence_ratio, seed, |random| match find(&curve.draw(random, drops_loads))? {
            Crossing::Below => Some(lowest),
            Crossing::At(load) => Some(load),
            Crossing::Beyond => Some(highest * 4.0),
        });
    let found = find(curve);
    let mut point = PointFinding::none(criteria, curve.repeats, "");
    if let Some((low, high)) = interval {
        point.low = Some(low.min(highest));
        point.high = Some(high).filter(|high| *high <= highest);
    }
    match found {
        Some(Crossing::At(load)) => {
            point.place = PointPlace::Within;
            point.estimate = Some(load);
            point.low = point.low.map(|low| low.min(load));
            point.high = point.high.map(|high| high.max(load));
        }
        Some(Crossing::Below) => {
            point.place = PointPlace::Below;
            (point.low, point.high) = (None, point.high.map(|high| high.max(lowest)));
        }
        Some(Crossing::Beyond) => {
            point.place = PointPlace::Beyond;
            point.high = None;
        }
        None => (point.low, point.high) = (None, None),
    }
    (found, point)
}

fn closed_yield(curve: Option<&BlockCurve>, levels: &[Level], polls: bool, criteria: &Criteria) -> PointFinding {
    let Some(curve) = curve else {
        return PointFinding::none(criteria, 0, "no throughput was measured");
    };
    let gain = criteria.elastic_gain_ratio;
    // With one repeat, only its loads vary.
    let drops_loads = curve.repeats < 2;
    let (found, mut point) = crossing(curve, criteria, (YIELD_SEED, drops_loads), |curve| curve.knee(gain));
    if let Some(knee) = point.estimate {
        // Repeats do not show how much the form of the bend between few loads differs from the fitted one.
        let of_form = curve.change_without_a_load(knee, |curve| curve.knee(gain));
        let wider = |end: f64| (end / knee).ln().hypot(of_form);
        point.low = point.low.map(|low| (knee / wider(low).exp()).min(knee * (1.0 - KNEE_ERROR_BELOW)));
        point.high = point.high.map(|high| (knee * wider(high).exp()).max(knee * (1.0 + KNEE_ERROR_ABOVE)));
    }
    let (lowest, highest) = curve.ends();
    let limit = exact_percent(gain);
    point.reason = match found {
        Some(Crossing::At(load)) => {
            let cause =
                super::first_beyond(levels, load).filter(|_| !polls).map(|level| saturation_words(level, criteria));
            let cause = cause.unwrap_or_default();
            format!("the line through the low loads meets the plateau{cause}")
        }
        Some(Crossing::Below) => format!(
            "already at {} doubling the connections raises throughput by less than {limit}",
            load_words(lowest, Sweep::Connections)
        ),
        Some(Crossing::Beyond) => {
            format!("not reached up to {}: throughput still follows load", load_words(highest, Sweep::Connections))
        }
        None => "the measured loads span less than a doubling".into(),
    };
    point
}

fn saturation_words(level: &Level, criteria: &Criteria) -> String {
    match level.full(criteria.saturation_ratio) {
        Some(FullResource::Quota(used)) => {
            format!("; the server uses {} of its CPU time limit", percent(used.min(1.0)))
        }
        Some(FullResource::Cpus(busy)) => format!("; the server's CPUs are {} busy", percent(busy)),
        Some(FullResource::Thread(used)) => format!("; the server's busiest thread uses {} of a CPU", percent(used)),
        Some(FullResource::CrowdedCpus(busy)) => {
            format!("; the server's CPUs are {} busy, largely with other work", percent(busy))
        }
        None if level.cpus_busy_ratio.is_none() && level.busiest_thread_cpus.is_none() => {
            "; the server's CPU was not measured".into()
        }
        None => "; no CPU of the server is saturated".into(),
    }
}

/// Utilisation at the nominal rate, by the utilisation law (U = X D: Denning and Buzen, 1978). A window of a Poisson
/// schedule has a few per cent more or fewer requests than its rate, and so differs their CPU time.
fn utilisation(point: &Point) -> Option<f64> {
    let answered = point.value(names::THROUGHPUT).filter(|rate| *rate > 0.0)?;
    Some(crate::point::saturation(point)? / answered * point.offered_per_sec()?)
}

/// `busy`: saturation by the server and its client; `by_any`: by all programs.
fn open_yield(busy: Option<BlockCurve>, by_any: Option<BlockCurve>, criteria: &Criteria) -> PointFinding {
    let (Some(busy), Some(by_any)) = (busy, by_any) else {
        return PointFinding::none(
            criteria,
            0,
            "the server's CPU was not measured, so its saturation, the open loop's yield point, is not known",
        );
    };
    let threshold = criteria.saturation_ratio;
    let (found, mut point) = crossing(&busy, criteria, (YIELD_SEED, true), |curve| Some(curve.rises_to(threshold, 0)));
    if let Some(rate) = point.estimate {
        point.low = point.low.map(|low| low.min(rate * (1.0 - RATE_ERROR)));
        point.high = point.high.map(|high| high.max(rate * (1.0 + RATE_ERROR)));
    }
    let limit = exact_percent(threshold);
    let crowded_from = match by_any.rises_to(threshold, 0) {
        _ if point.place != PointPlace::Beyond => None,
        Crossing::Below => Some(by_any.ends().0),
        Crossing::At(load) => Some(load),
        Crossing::Beyond => None,
    };
    if let Some(from) = crowded_from {
        let reason = format!(
            "unknown: from {} on the server's CPUs were {limit} busy, but largely with other work",
            load_words(from, Sweep::Rate)
        );
        return PointFinding::none(criteria, busy.repeats, reason);
    }
    point.reason = match found {
        Some(Crossing::At(_)) => format!("from here on a thread or the CPUs of the server are {limit} busy"),
        Some(Crossing::Below) => {
            format!("already at {} a CPU of the server is {limit} busy", load_words(busy.ends().0, Sweep::Rate))
        }
        _ => format!(
            "not reached up to {}: no CPU of the server was {limit} busy",
            load_words(busy.ends().1, Sweep::Rate)
        ),
    };
    point
}

fn efficiency_point(
    cpu: Option<&BlockCurve>,
    answered: &[LoadGroup<'_>],
    levels: &[Level],
    sweep: Sweep,
    criteria: &Criteria,
) -> PointFinding {
    let Some(curve) = cpu else {
        let is_measured = levels.iter().any(|level| level.cpu_us_per_request.is_some());
        let why = if is_measured { "too many requests failed" } else { "the server's CPU was not measured" };
        return PointFinding::none(criteria, 0, why);
    };
    let rise = 1.0 + criteria.efficiency_loss_ratio;
    let (found, mut point) = crossing(curve, criteria, (EFFICIENCY_SEED, true), |curve| {
        let (at, lowest_us) = curve.lowest();
        Some(curve.rises_to(lowest_us * rise, at))
    });
    let (_, highest) = curve.ends();
    let limit = exact_percent(criteria.efficiency_loss_ratio);
    // The curve compares within repeats, and the table shows medians. Both must show the loss.
    let medians: Vec<f64> = costs(answered, levels).map(|(_, _, us)| us).collect();
    let rises = medians.iter().scan(f64::INFINITY, |lowest, us| {
        *lowest = lowest.min(*us);
        Some(us / *lowest)
    });
    let shown = rises.reduce(f64::max);
    if point.estimate.is_some() && shown.is_none_or(|ratio| ratio < rise) {
        let reason = format!(
            "unknown: the CPU time of a request rises by {limit} within repeats, but the medians over repeats do not \
             show it"
        );
        return PointFinding::none(criteria, curve.repeats, reason);
    }
    point.reason = match found {
        Some(Crossing::At(_)) => format!("the CPU time of a request is {limit} above its lowest"),
        _ => format!(
            "not reached up to {}: within repeats, the CPU time of a request stays within {limit} of its lowest",
            load_words(highest, sweep)
        ),
    };
    if point.estimate.is_none() {
        (point.low, point.high) = (Some(highest), None);
    }
    point
}

fn failure_point(
    trials: &[LevelTrial],
    bracket: Bracket,
    levels: &[Level],
    sweep: Sweep,
    criteria: &Criteria,
) -> PointFinding {
    let mut point = failure::bracketed(trials, bracket, criteria, FAILURE_SEED);
    let why = |load: f64| {
        let level = levels.iter().find(|level| level.load == load);
        level.and_then(|level| level.crossed.first().cloned()).unwrap_or_else(|| "most of its trials failed".into())
    };
    match (bracket.lower, bracket.upper) {
        (Some(lower), Some(upper)) => {
            point.reason =
                format!("{} held, {} did not: {}", load_words(lower, sweep), load_words(upper, sweep), why(upper));
        }
        (None, Some(upper)) => {
            point.reason = format!(
                "already at the lowest load that could be judged, {}: {}",
                load_words(upper, sweep),
                why(upper)
            );
        }
        (Some(lower), None) => {
            let highest = trials.iter().map(|trial| trial.load).fold(lower, f64::max);
            let some = failure::some_failed(trials, lower, |load| load_words(load, sweep));
            point.reason = if highest == lower {
                point.place = PointPlace::Beyond;
                format!("not reached up to {}", load_words(lower, sweep))
            } else {
                let why = if some.is_empty() { "above it, no trial was long enough to tell".into() } else { some };
                format!("not known: {} held; {why}", load_words(lower, sweep))
            };
        }
        (None, None) => {
            let some = failure::some_failed(trials, 0.0, |load| load_words(load, sweep));
            let why = if some.is_empty() { "no trial was long enough to tell".into() } else { some };
            point.reason =
                if trials.is_empty() { "no load could be judged".into() } else { format!("not known: {why}") };
        }
    }
    point
}

fn peak(curve: &BlockCurve, groups: &[LoadGroup<'_>], levels: &[Level], criteria: &Criteria) -> Option<Peak> {
    let measured = levels.iter().filter_map(|level| Some((level.load, level.throughput_per_sec?.median)));
    let (load, per_sec) = measured.reduce(|best, other| if other.1 > best.1 { other } else { best })?;
    let interval = interval_of_draws(criteria.confidence_ratio, PEAK_SEED, |random| {
        let drawn = curve.draw(random, true);
        drawn.at.iter().map(|at| at.level).max_by(f64::total_cmp).map(f64::exp)
    });
    let interval = interval.filter(|_| curve.repeats >= 2);
    let end_ratio = paired(groups, load, levels.last()?.load, crate::point::good_per_sec);
    Some(Peak {
        end_ratio,
        load,
        per_sec,
        low: interval.map(|(low, _)| low.min(per_sec)),
        high: interval.map(|(_, high)| high.max(per_sec)),
    })
    .filter(|peak| peak.per_sec > 0.0)
}

/// Ratio of the values at two loads: the median over the repeats that have both.
fn paired(groups: &[LoadGroup<'_>], from: f64, to: f64, value: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    let at = |load: f64| groups.iter().find(|(known, _)| *known == load).map(|(_, points)| points);
    let (before, after) = (at(from)?, at(to)?);
    within::pairs(before, after, value).change(0.95).map(|(_, _, ratio)| ratio.value)
}

const REQUESTS_FOR_COST: u64 = 30;
/// With less CPU time in total, the cost is also random: part of it (softirq) is counted in ticks of 10 ms.
const CPU_FOR_COST_US: f64 = 100_000.0;
const CPU_MISSED_US: f64 = 50_000.0;

/// The levels at which most points were answered, each with its requests and their cost.
fn costs<'a>(answered: &[LoadGroup<'_>], levels: &'a [Level]) -> impl Iterator<Item = (u64, &'a Level, f64)> {
    answered.iter().zip(levels).filter_map(move |((_, points), level)| {
        let are_answers = 2 * points.len() as u64 > level.points;
        Some((answers(points), level, level.cpu_us_per_request.filter(|_| are_answers)?.median))
    })
}

/// The load with the lowest cost and the higher load with the highest. Their ratio comes from repeats with both
/// loads; `None` without one. A load with little CPU time is the lowest only if it remains so after adding the time
/// that ticks may have missed.
fn growth(answered: &[LoadGroup<'_>], levels: &[Level]) -> Option<CpuGrowth> {
    struct Cost<'a> {
        level: &'a Level,
        us: f64,
        at_most_us: f64,
        is_sure: bool,
    }
    let known: Vec<Cost<'_>> = costs(answered, levels)
        .filter(|(requests, _, _)| *requests >= REQUESTS_FOR_COST)
        .map(|(requests, level, us)| {
            let is_sure = requests as f64 * us >= CPU_FOR_COST_US;
            let at_most_us = if is_sure { us } else { us + CPU_MISSED_US / requests as f64 };
            Cost { level, us, at_most_us, is_sure }
        })
        .collect();
    // Few requests at a high load indicate a failing server, not a low cost.
    let first_sure = known.iter().position(|cost| cost.is_sure)?;
    let ends = (0..known.len()).filter(|at| known[*at].is_sure || *at < first_sure);
    let lowest = ends.reduce(|best, at| if known[at].at_most_us < known[best].at_most_us { at } else { best })?;
    let low = known[lowest].level;
    // Compares only loads of the same repeat.
    let times = |at: usize| match known[at].level.load {
        load if load == low.load => Some(1.0),
        load => paired(answered, low.load, load, cpu_us),
    };
    let beyond = (lowest..known.len()).filter(|at| known[*at].is_sure || *at == lowest);
    let compared = beyond.filter_map(|at| Some((at, times(at)?)));
    let (highest, ratio) = compared.reduce(|best, at| if known[at.0].us > known[best.0].us { at } else { best })?;
    let high = known[highest].level;
    let parts = [
        ("user", low.cpu_user_us_per_request, high.cpu_user_us_per_request),
        ("system", low.cpu_system_us_per_request, high.cpu_system_us_per_request),
        ("softirq", low.softirq_us_per_request, high.softirq_us_per_request),
    ];
    let grew = parts.into_iter().filter_map(|(name, low, high)| Some((name, high?.median - low?.median)));
    let grew_most = grew.filter(|(_, us)| *us > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
    Some(CpuGrowth {
        lowest_load: low.load,
        lowest_us: known[lowest].us,
        highest_load: high.load,
        highest_us: known[highest].us,
        ratio,
        grew_most: grew_most.map(|(name, _)| name.into()),
    })
}

fn drift(points: &[Point]) -> Option<Drift> {
    let yardsticks: Vec<&Point> = points.iter().filter(|point| point.sweep == Sweep::Yardstick).collect();
    let cv = |name: &str| coefficient_of_variation(yardsticks.iter().filter_map(|point| point.value(name)));
    (!yardsticks.is_empty()).then(|| Drift {
        cpu_cv_ratio: cv(names::YARDSTICK_CPU),
        load_cv_ratio: cv(names::THROUGHPUT),
        n: yardsticks.len() as u64,
    })
}
