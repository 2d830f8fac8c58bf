//! Which load is measured next: the planning of the sweeps and of an axis, pure. The caller measures what a step asks for, appends the
//! point (with the step's repeat), and asks again; so a plan can be tested against synthetic servers without any load.
//!
//! `elapsed_ns` is the time since the run began. Each sweep takes a share of what is left of the budget at its first call:
//! the sweep over connections half, the search over rate all; [`ConnectionSweep::with_budget_share`] changes it.

mod axis;
mod connections;
mod rate;
mod schedule;

use record::{Point, Sweep};

pub use axis::{AxisStep, AxisSweep};
pub use connections::ConnectionSweep;
pub use rate::RateSearch;

/// Whether fewer than half of a sweep's points are disturbed: only then may measuring one again help.
fn is_mostly_quiet(points: &[Point], sweep: Sweep) -> bool {
    let of_sweep = || points.iter().filter(|point| point.sweep == sweep);
    2 * of_sweep().filter(|point| crate::disturbance::is_disturbed(point)).count() < of_sweep().count()
}

/// What the sweep over connections wants next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Measure a closed-loop point.
    Measure {
        /// Connections to hold.
        connections: u64,
        /// Repeat that the point belongs to.
        repeat: u32,
        /// Length of the window.
        duration_ns: u64,
        /// Load before the window.
        warmup_ns: u64,
        /// One phrase for the progress line.
        why: String,
    },
    /// Run the yardstick: the fixed work and the reference load that show the machine's drift.
    Yardstick,
    /// The sweep is over.
    Done {
        /// Why it stopped, in words.
        reason: String,
    },
}

/// What the search over rate wants next.
#[derive(Debug, Clone, PartialEq)]
pub enum RateStep {
    /// Measure an open-loop point.
    Measure {
        /// Offered load.
        rate_per_sec: f64,
        /// Length of the window.
        duration_ns: u64,
        /// Load before the window.
        warmup_ns: u64,
        /// Repeat that the point belongs to; 0 during the search, blocks from 1.
        repeat: u32,
        /// One phrase for the progress line.
        why: String,
    },
    /// Run the yardstick.
    Yardstick,
    /// The search is over.
    Done {
        /// Why it stopped, in words.
        reason: String,
    },
}
