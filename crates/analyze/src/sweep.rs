//! The planners, which choose the next load. They are pure functions: the caller carries out a step, keeps the point
//! and asks again. So plans are tested with synthetic servers, without load.

mod axis;
mod capacity;
mod connections;
mod length;
mod rate;
mod schedule;
mod share;
mod sure;
mod turns;
mod warm_up;

use record::scenario::SweepPlan;
use record::units::count;
use record::{AxisPlace, Criteria, Point, Sweep};
use std::collections::BTreeMap;

pub use axis::{AxisSweep, COLD, DELAYS_MS, IN_FLIGHT, SLOW_DOWN_RATIOS, TIME_WAIT};
pub use capacity::{CapacityPlanner, capacity, held_goodput};
pub use connections::ConnectionSweep;
pub use length::{needed_ns, too_short};
pub use rate::RateSearch;
pub use share::ShareSearch;
pub use sure::least_ns;
pub use turns::TurnSweep;
pub use warm_up::WarmUp;

fn all_measured(number: u32, what: &str) -> String {
    if number == 1 {
        format!("the one {what} was measured")
    } else {
        format!("all {} were measured", count(number, what))
    }
}

/// Chooses the next measurement from the previous ones. The same points and times give the same steps, because random
/// choices use the run's seed.
pub trait Planner {
    /// The name of the varied quantity, printed before the reason of [`SweepStep::Done`].
    fn subject(&self) -> &str;

    /// The next step. `points`: all points of the server under test; `elapsed_ns`: the time since the run began.
    ///
    /// At its first call a planner takes a share of the remaining budget. [`SweepStep::Done`] is the last step.
    fn next(&mut self, points: &[Point], elapsed_ns: u64) -> SweepStep;

    /// Describes the width of the interval at the last yardstick, if one is requested
    /// ([`SweepPlan::until_sure_ratio`]).
    fn known(&self) -> Option<&str> {
        None
    }
}

/// Minimum repeats for an interval (or all, if fewer are requested).
const MIN_REPEATS: u32 = 3;

/// The next step of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum SweepStep {
    /// Stop the server, start this one (0 or 1), and measure it. A run begins with server 0.
    Serve {
        /// Number of the server.
        server: usize,
    },
    /// Measure a point.
    Measure(Trial),
    /// Run the yardstick: fixed work and the reference load, which show the machine's drift.
    Yardstick,
    /// The plan has ended.
    Done {
        /// Why the plan ended, in words.
        reason: String,
    },
}

/// A point to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The load.
    pub load: Load,
    /// Repeat of the point; 0 during the search for a region.
    pub repeat: u32,
    /// Length of the window.
    pub duration_ns: u64,
    /// Duration of the warm-up.
    pub warmup_ns: u64,
}

/// The load of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// This many connections in a closed loop.
    Connections(u64),
    /// This many connections in a closed loop, on the way down.
    Unloading(u64),
    /// This many connections in a closed loop, to measure the capacity before an axis of rates.
    Capacity(u64),
    /// This many requests per second in an open loop.
    Rate(f64),
    /// This share of live traffic, as the user's command takes it.
    Share(f64),
    /// A place on another axis.
    Place(AxisPlace),
}

impl Load {
    /// The sweep of a point with this load.
    pub fn sweep(self) -> Sweep {
        match self {
            Load::Connections(_) => Sweep::Connections,
            Load::Unloading(_) => Sweep::Unloading,
            Load::Capacity(_) => Sweep::Single,
            Load::Rate(_) | Load::Share(_) => Sweep::Rate,
            Load::Place(_) => Sweep::Axis,
        }
    }
}

fn done(reason: impl Into<String>) -> SweepStep {
    SweepStep::Done { reason: reason.into() }
}

/// Connections from the minimum to the maximum, doubled each time.
fn ladder(plan: &SweepPlan) -> Vec<u64> {
    let most = plan.connections_max.max(plan.connections_min).max(1);
    let mut loads = vec![plan.connections_min.max(1)];
    while let Some(last) = loads.last().copied().filter(|last| *last < most) {
        loads.push(last.saturating_mul(2).min(most));
    }
    loads
}

/// Whether the two highest loads of the first pass both failed; the last point of a load counts.
fn failed_twice(points: &[Point], criteria: &Criteria) -> bool {
    let closed = points.iter().filter(|point| point.sweep == Sweep::Connections);
    let last: BTreeMap<u64, &Point> = closed.map(|point| (point.connections, point)).collect();
    last.len() >= 2 && last.values().rev().take(2).all(|point| crate::zones::fails(point, criteria))
}

/// Chooses disturbed points to measure again: each load once per repeat, and none if most points are disturbed.
#[derive(Debug, Default)]
struct Remeasured(Vec<Load>);

impl Remeasured {
    fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether to measure this load again: it was measured last, in this repeat, and was disturbed.
    fn wants(&mut self, load: Load, points: &[Point], repeat: u32) -> bool {
        let of_sweep = || points.iter().filter(|point| point.sweep == load.sweep());
        let disturbed = of_sweep().filter(|point| crate::disturbance::is_disturbed(point)).count();
        let is_last = points.last().is_some_and(|last| {
            last.sweep == load.sweep() && last.repeat == repeat && crate::disturbance::is_disturbed(last)
        });
        let wants = is_last && 2 * disturbed < of_sweep().count() && !self.0.contains(&load);
        if wants {
            self.0.push(load);
        }
        wants
    }
}
