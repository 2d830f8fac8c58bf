use super::{AxisMove, Companion, UpcomingLoad};
use crate::measured::MeasuredPoint;
use anyhow::Result;
use record::{Axis, AxisPlace};
use wan::{PathMeter, PathTally};

pub struct MeteredPath {
    meter: PathMeter,
    crossed: Option<PathTally>,
}

impl MeteredPath {
    /// Counts with this meter, which must have no other reader.
    pub fn new(meter: PathMeter) -> MeteredPath {
        MeteredPath { meter, crossed: None }
    }
}

impl Companion for MeteredPath {
    fn hold(&mut self, place: AxisPlace, _with: &mut AxisMove<'_>) -> Result<bool> {
        if place.axis != Axis::Delay {
            return Ok(false);
        }
        self.meter.set_delay(place.value as u64)?;
        Ok(true)
    }

    fn window_begins(&mut self, _load: &UpcomingLoad<'_>) {
        self.meter.take();
    }

    fn window_ends(&mut self) {
        self.crossed = Some(self.meter.take());
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        let Some(crossed) = self.crossed.take() else { return };
        measured.point.figures.extend(crossed.figures());
        measured.point.doubts.extend(crossed.doubts());
        measured.latencies.extend(crossed.lateness.map(|lateness| ("path-lateness", lateness)));
    }

    fn load_failed(&mut self) {
        self.crossed = None;
    }
}
