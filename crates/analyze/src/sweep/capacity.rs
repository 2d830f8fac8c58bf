//! Measures the server's capacity in a closed loop, for offered rates that are shares of it.

use super::schedule::WindowSchedule;
use super::{Load, Planner, SweepStep, done};
use record::scenario::SweepPlan;
use record::units::format_si;
use record::{Point, Sweep, names};

const CONNECTIONS: u64 = 64;

/// The highest goodput of a closed loop so far.
pub fn capacity(points: &[Point]) -> Option<f64> {
    points
        .iter()
        .filter(|point| matches!(point.sweep, Sweep::Connections | Sweep::Single))
        .filter_map(|point| point.value(names::GOODPUT))
        .max_by(f64::total_cmp)
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
