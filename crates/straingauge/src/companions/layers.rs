//! The sampler of a local server's layers. It stays attached, and samples the window of each point.

use super::{Companion, UpcomingLoad};
use crate::measured::MeasuredPoint;
use observe::profile::{PointSampler, WindowLayers};
use record::{Sweep, names};

/// The sampler, and whether it samples the load in progress.
pub struct LayerSampler {
    sampler: PointSampler,
    is_on: bool,
}

impl LayerSampler {
    pub fn with(sampler: PointSampler) -> LayerSampler {
        LayerSampler { sampler, is_on: false }
    }
}

/// A yardstick measures the machine's speed, so it is not interrupted.
pub fn is_sampled(load: &UpcomingLoad<'_>) -> bool {
    load.sweep != Sweep::Yardstick
}

pub fn record_layers(seen: WindowLayers, measured: &mut MeasuredPoint) {
    measured.point.figures.extend(seen.figures);
    measured.point.functions = seen.functions;
    measured.point.with_callees = seen.with_callees;
    measured.point.doubts.extend(seen.doubts);
    measured.stacks = seen.stacks;
}

impl Companion for LayerSampler {
    fn load_begins(&mut self, load: &UpcomingLoad<'_>) {
        self.is_on = is_sampled(load);
    }

    fn window_begins(&mut self, _load: &UpcomingLoad<'_>) {
        if self.is_on {
            self.sampler.begin();
        }
    }

    fn window_ends(&mut self) {
        if self.is_on {
            self.sampler.end();
        }
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        let requests = measured.point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(0);
        if let Some(seen) = self.sampler.window_layers(requests) {
            record_layers(seen, measured);
        }
    }

    fn load_failed(&mut self) {
        self.sampler.forget();
    }
}
