//! Points grouped by load: the levels of a sweep.

use super::failure::{LevelTrial, TrialResult, crossed, fails, judged};
use super::{Level, Spread, Zone};
use crate::disturbance::{DISTURBED_WEIGHT, counted, is_disturbed};
use crate::point::{by_load, client_limited, cpu_us, good_per_sec, is_crowded, most, reap_of_p99, softirq_beside_us};
use record::{Arrival, Criteria, Pace, Point, Sweep, names};
use statistics::curve::CurvePoint;
use statistics::{median, range};

/// The count of this many random requests is exact to 1 %; repeats on a machine hardly agree better.
const EXACT_REQUESTS: f64 = 1e4;

/// The points of a sweep by load, without those that have none (a closed-loop point in the sweep over rate).
pub(super) fn group(points: &[Point], sweep: Sweep) -> Vec<(f64, Vec<&Point>)> {
    let loaded = |point| {
        let load = if sweep == Sweep::Rate { Point::offered_per_sec(point)? } else { point.connections as f64 };
        (load.is_finite() && load > 0.0).then_some((load, point))
    };
    by_load(points.iter().filter(|point| point.sweep == sweep).filter_map(loaded))
}

/// The points of a load that count: those with at least 60 % of the longest window, chosen by [`counted`].
pub fn counted_at<'a>(points: &[&'a Point]) -> Vec<&'a Point> {
    let longest = points.iter().map(|point| point.duration_ns).max().unwrap_or(0);
    let is_full = |point: &&&Point| point.duration_ns as f64 >= 0.6 * longest as f64;
    counted(&points.iter().filter(is_full).copied().collect::<Vec<_>>())
}

/// Reduces a figure of several points of a load to one number. All outputs use this function.
pub fn reduced(points: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> Option<Spread> {
    spread(&counted_at(points), value)
}

fn spread(points: &[&Point], value: impl Fn(&Point) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = points.iter().filter_map(|point| value(point)).filter(|value| value.is_finite()).collect();
    let (min, max) = range(&values)?;
    Some(Spread { median: median(&values)?, min, max, n: values.len() as u64 })
}

pub(crate) fn level(load: f64, points: &[&Point], criteria: &Criteria) -> Level {
    let best = counted_at(points);
    let named = |name: &'static str| move |point: &Point| point.value(name);
    let failed = |point: &&Point| fails(point, criteria);
    let speaks = points.iter().filter(|point| failed(point)).max_by_key(|point| (point.duration_ns, point.index));
    let is_lower_bound = |quantile: f64| most(&best, |point| point.outcomes.is_lower_bound(quantile));
    Level {
        load,
        zone: Zone::Unknown,
        points: points.len() as u64,
        counted: best.len() as u64,
        disturbed: points.iter().filter(|point| is_disturbed(point)).count() as u64,
        failing: points.iter().filter(|point| failed(point)).count() as u64,
        sent_per_sec: spread(&best, super::failure::offered_per_sec),
        crossed: speaks.and_then(|point| crossed(point, criteria)).unwrap_or_default(),
        throughput_per_sec: spread(&best, good_per_sec),
        response_p50_us: spread(&best, named(names::RESPONSE_P50)),
        response_p99_us: spread(&best, named(names::RESPONSE_P99)),
        response_p50_at_least: is_lower_bound(0.5),
        response_p99_at_least: is_lower_bound(0.99),
        reap_p50_us: spread(&best, named(names::REAP_P50)),
        reap_p99_us: spread(&best, named(names::REAP_P99)),
        reap_of_p99_ratio: spread(&best, reap_of_p99),
        cpu_us_per_request: spread(&best, cpu_us),
        cpu_user_us_per_request: spread(&best, named(names::SERVER_CPU_USER)),
        cpu_system_us_per_request: spread(&best, named(names::SERVER_CPU_SYSTEM)),
        softirq_us_per_request: spread(&best, softirq_beside_us),
        cpus_busy_ratio: spread(&best, named(names::SERVER_CPU_BUSY)),
        busiest_thread_cpus: spread(&best, named(names::SERVER_BUSIEST_THREAD)),
        cpu_quota_used_ratio: spread(&best, named(names::SERVER_QUOTA_USED)),
        client_limited: most(&best, |point| client_limited(point, criteria)),
        crowded: most(&best, |point| is_crowded(point)),
    }
}

/// The points with their load, and with their length as a share of the longest.
fn with_length<'a>(groups: &'a [(f64, Vec<&'a Point>)]) -> impl Iterator<Item = (f64, &'a Point, f64)> {
    let all = || groups.iter().flat_map(|(load, points)| points.iter().map(move |point| (*load, *point)));
    let longest = all().map(|(_, point)| point.duration_ns).max().unwrap_or(0).max(1) as f64;
    all().map(move |(load, point)| (load, point, (point.duration_ns as f64 / longest).clamp(0.01, 1.0)))
}

pub(super) fn readings(groups: &[(f64, Vec<&Point>)], value: impl Fn(&Point) -> Option<f64>) -> Vec<CurvePoint> {
    precise_readings(groups, |point| Some((value(point)?, 1.0)))
}

/// Good answers per second; the precision is lower with few requests.
pub(super) fn throughputs(groups: &[(f64, Vec<&Point>)]) -> Vec<CurvePoint> {
    precise_readings(groups, |point| {
        let requests = 1.0 + point.outcomes.completed() as f64;
        let good = good_per_sec(point).filter(|rate| *rate > 0.0)?;
        Some((good, requests / (requests + EXACT_REQUESTS)))
    })
}

fn precise_readings(groups: &[(f64, Vec<&Point>)], of: impl Fn(&Point) -> Option<(f64, f64)>) -> Vec<CurvePoint> {
    with_length(groups)
        .filter_map(|(load, point, length)| {
            let (value, precision) = of(point)?;
            // A point counts by its length, and less if other work disturbed it.
            let weight = if is_disturbed(point) { DISTURBED_WEIGHT * length } else { length };
            Some(CurvePoint { load, repeat: point.repeat, value, weight, precision })
        })
        .collect()
}

/// The trials for the failure point. A load limited by the client is not a trial of the server.
pub(super) fn trials(groups: &[(f64, Vec<&Point>)], criteria: &Criteria) -> Vec<LevelTrial> {
    with_length(groups)
        .filter_map(|(load, point, weight)| {
            let judged = judged(point, criteria)?;
            let limited = judged == TrialResult::Failed && client_limited(point, criteria);
            let is_random = matches!(point.pace, Pace::Open { arrival: Arrival::Poisson, .. });
            let random_requests = is_random.then_some(point.outcomes.sent as f64);
            (!limited).then_some(LevelTrial {
                load,
                repeat: point.repeat,
                judged,
                weight,
                is_disturbed: is_disturbed(point),
                random_requests,
            })
        })
        .collect()
}
