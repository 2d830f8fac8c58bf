//! Detects a server that polls (Seastar, DPDK, a spinning queue). It keeps a CPU busy at any load, so its utilisation
//! does not show its reserve. A server with select or poll over all connections may also be equally busy above some
//! load, with cheaper requests at higher loads, but it sleeps below that load.

use crate::disturbance::counted;
use crate::point::{cpu_us, good_per_sec, is_crowded};
use record::{Criteria, Point, RunDir, Sweep, names};
use statistics::median;
use std::borrow::Cow;

/// A request to a polling server costs at least this many times as much at the lowest load as at another load,
const COST_RATIO: f64 = 3.0;
/// at which the throughput is at least this many times as high.
const THROUGHPUT_RATIO: f64 = 3.0;
/// A server that is busy for less than this share of saturation at some load does not poll.
const SLEEPS_RATIO: f64 = 0.75;

const BUSY: [&str; 2] = [names::SERVER_BUSIEST_THREAD, names::SERVER_CPU_BUSY];
/// The reason for leaving a figure out.
const WHY: &str = "the server polls: it is as busy at the lowest load";

/// The points without the utilisation of polling CPUs and threads.
pub(crate) fn without_polling<'a>(points: &'a [Point], criteria: &Criteria) -> Cow<'a, [Point]> {
    let sweeps = [Sweep::Connections, Sweep::Rate].map(|sweep| super::levels::group(points, sweep));
    let polls = |name: &&str| {
        let is_full = sweeps.iter().any(|groups| is_full_at_the_lowest(groups, name, criteria));
        is_full && !sweeps.iter().flatten().any(|(_, points)| sleeps(points, name, criteria))
    };
    let polling: Vec<&str> = BUSY.into_iter().filter(polls).collect();
    if polling.is_empty() {
        return Cow::Borrowed(points);
    }
    let mut points = points.to_vec();
    for point in &mut points {
        polling.iter().for_each(|name| point.figures.not_measured(name, WHY));
    }
    Cow::Owned(points)
}

/// The run, its points as by [`without_polling`].
pub fn without_polling_in<'a>(run: &'a RunDir, criteria: &Criteria) -> Cow<'a, RunDir> {
    match without_polling(&run.points, criteria) {
        Cow::Borrowed(_) => Cow::Borrowed(run),
        Cow::Owned(points) => Cow::Owned(RunDir { points, ..run.clone() }),
    }
}

/// Whether [`without_polling`] left out a figure of this point.
pub fn polls(point: &Point) -> bool {
    let why = |name: &&str| point.figures.get(name)?.not_measured.as_deref();
    BUSY.iter().any(|name| why(name) == Some(WHY))
}

fn typical(points: &[&Point], of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    median(counted(points).into_iter().filter_map(of))
}

fn sleeps(points: &[&Point], name: &str, criteria: &Criteria) -> bool {
    let is_low = |busy| busy < SLEEPS_RATIO * criteria.saturation_ratio;
    let answers = typical(points, good_per_sec).is_some_and(|rate| rate > 0.0);
    let is_alone = !points.iter().any(|point| is_crowded(point));
    answers && is_alone && typical(points, |point| point.value(name)).is_some_and(is_low)
}

fn is_full_at_the_lowest(groups: &[(f64, Vec<&Point>)], name: &str, criteria: &Criteria) -> bool {
    let Some((_, lowest)) = groups.first() else { return false };
    let is_full = typical(lowest, |point| point.value(name)).is_some_and(|busy| busy >= criteria.saturation_ratio);
    if !is_full || lowest.iter().any(|point| is_crowded(point)) {
        return false;
    }
    // One of several unequal processes can serve the only connection, but not in every repeat.
    let dear = counted(lowest).into_iter().filter_map(cpu_us).reduce(f64::min);
    let (Some(dear), Some(few)) = (dear, typical(lowest, good_per_sec)) else { return false };
    groups.iter().any(|(_, points)| {
        typical(points, cpu_us).is_some_and(|us| us * COST_RATIO <= dear)
            && typical(points, good_per_sec).is_some_and(|rate| rate >= THROUGHPUT_RATIO * few)
    })
}
