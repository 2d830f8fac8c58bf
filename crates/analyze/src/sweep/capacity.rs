//! The server's throughput in a closed loop, from which a search over offered rates begins.

use super::schedule::WindowSchedule;
use super::{Load, Planner, SweepStep, done};
use crate::zones::{TrialResult, judged};
use record::scenario::SweepPlan;
use record::units::format_si;
use record::{Criteria, Point, Sweep, names};

const CONNECTIONS: u64 = 64;

/// The highest goodput of a closed loop so far, requests per second.
pub fn capacity(points: &[Point]) -> Option<f64> {
    closed(points).map(|(_, goodput)| goodput).max_by(f64::total_cmp)
}

/// The highest goodput of a closed loop that met the criteria, requests per second. The lowest goodput if none met
/// them: the peak of a server with long queues is far above the rate that it can hold.
pub fn held_goodput(points: &[Point], criteria: &Criteria) -> Option<f64> {
    let held = closed(points).filter(|(point, _)| judged(point, criteria) == Some(TrialResult::Held));
    let most_held = held.map(|(_, goodput)| goodput).max_by(f64::total_cmp);
    most_held.or_else(|| closed(points).map(|(_, goodput)| goodput).min_by(f64::total_cmp))
}

/// The points of a closed loop, each with its goodput.
fn closed(points: &[Point]) -> impl Iterator<Item = (&Point, f64)> {
    let is_closed = |point: &&Point| matches!(point.sweep, Sweep::Connections | Sweep::Single);
    points.iter().filter(is_closed).filter_map(|point| Some((point, point.value(names::GOODPUT)?)))
}

/// One closed-loop point.
#[derive(Debug)]
pub struct CapacityPlanner {
    connections: u64,
    schedule: WindowSchedule,
    is_asked: bool,
}

impl CapacityPlanner {
    /// A planner for one point.
    pub fn new(plan: &SweepPlan) -> Self {
        CapacityPlanner {
            connections: CONNECTIONS.min(plan.open_connections),
            schedule: WindowSchedule::new(plan, 1.0),
            is_asked: false,
        }
    }
}

impl Planner for CapacityPlanner {
    fn subject(&self) -> &str {
        "capacity"
    }

    fn next(&mut self, points: &[Point], _elapsed_ns: u64) -> SweepStep {
        if !self.is_asked {
            self.is_asked = true;
            return self.schedule.measure(Load::Capacity(self.connections), 0, self.schedule.full_ns);
        }
        match capacity(points) {
            Some(rate) => done(format!("about {}/s", format_si(rate))),
            None => done("not known, as nothing was answered"),
        }
    }
}
