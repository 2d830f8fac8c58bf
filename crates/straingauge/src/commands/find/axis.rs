//! One quantity varied, everything else held.

use super::{Ended, Search};
use crate::cli::PathOptions;
use crate::failure::wrong_usage;
use crate::plan::axis;
use crate::quantity::Time;
use analyze::axis::value_words;
use analyze::sweep::{AxisStep, AxisSweep};
use anyhow::Result;
use record::units::format_si;
use record::{Axis, AxisPlace, AxisPlan, LoadPlan, Pace, Sweep, names};

/// Connections of the closed loop that finds the capacity for an axis of rates.
const CAPACITY_CONNECTIONS: u64 = 64;

/// The longest delay that an axis of delays goes to by itself.
const LONGEST_DELAY: std::time::Duration = std::time::Duration::from_millis(100);

/// Asks for a path that can be delayed: it is made, and tested, with the longest of the delays.
pub(super) fn make_room_for_delay(path: &mut PathOptions, values: &[f64]) -> Result<()> {
    if path.delay.is_some() {
        return Err(wrong_usage(
            "--axis delay varies what --delay would hold: leave --delay out, or give --axis-values",
        ));
    }
    let longest = values.iter().copied().fold(0.0, f64::max);
    let longest = if longest > 0.0 { std::time::Duration::from_nanos(longest as u64) } else { LONGEST_DELAY };
    path.delay = Some(Time(longest));
    Ok(())
}

impl Search {
    /// Measures the axis to its end.
    pub(super) fn axis(&mut self, plan: &AxisPlan) -> Result<Ended> {
        let mut capacity_per_sec = None;
        if plan.axis == Axis::Rate && plan.values.is_empty() {
            if let Some(ended) = self.capacity()? {
                return Ok(ended);
            }
            capacity_per_sec = self.points.last().and_then(|point| point.value(names::GOODPUT));
            if let Some(rate) = capacity_per_sec {
                self.session.progress.say(&format!("capacity: about {}/s", format_si(rate)));
            }
        }
        let seed = self.session.plan.seed;
        let mut planner = AxisSweep::new(plan, &self.sweep, capacity_per_sec, seed);
        loop {
            let step = planner.next(&self.points, self.elapsed_ns());
            let ended = match step {
                AxisStep::Measure { value, repeat, duration_ns, warmup_ns, .. } => {
                    let (arrival, open) = (self.sweep.arrival, self.sweep.open_connections);
                    let at = match self.is_microbenchmark {
                        true => axis::segments_at(plan.axis, value, &self.session.plan),
                        false => axis::at(plan.axis, value, &self.session.plan, arrival, open),
                    };
                    let at = LoadPlan { duration_ns, warmup_ns, ..at };
                    self.place = Some(AxisPlace { axis: plan.axis, value });
                    match self.prepare(plan.axis, value, planner.most())? {
                        Some(ended) => Some(ended),
                        None => self.measure(at, Sweep::Axis, repeat)?,
                    }
                }
                AxisStep::Yardstick => {
                    if plan.axis == Axis::Delay {
                        // The same work each time, whatever was measured before.
                        self.hold(AxisPlace { axis: Axis::Delay, value: 0.0 }, planner.most())?;
                    }
                    self.yardstick()?
                }
                AxisStep::Done { reason } => {
                    self.session.progress.say(&format!("{}: {reason}", plan.axis.word()));
                    return Ok(Ended::Complete);
                }
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    /// Puts in place what the axis adds beside the engine's load.
    fn prepare(&mut self, axis: Axis, value: f64, most: f64) -> Result<Option<Ended>> {
        self.hold(AxisPlace { axis, value }, most)?;
        let session = &mut self.session;
        if session.stop.is_set() {
            return Ok(Some(Ended::Interrupted));
        }
        Ok(session.server_gone().map(|how| Ended::ServerGone(format!("{how} at {}", value_words(value, axis)))))
    }

    fn hold(&mut self, place: AxisPlace, most: f64) -> Result<()> {
        let session = &mut self.session;
        session.runner.hold(&session.plan, place, most, &mut session.progress)
    }

    /// What the server can do in a closed loop: the measure of the offered rates.
    fn capacity(&mut self) -> Result<Option<Ended>> {
        let connections = CAPACITY_CONNECTIONS.min(self.sweep.open_connections);
        let plan = LoadPlan {
            connections,
            pace: Pace::Closed,
            duration_ns: self.sweep.point_duration_ns,
            warmup_ns: self.sweep.point_duration_ns / 4,
            ..self.session.plan.clone()
        };
        self.measure(plan, Sweep::Single, 0)
    }
}
