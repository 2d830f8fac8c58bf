//! A place of the server that is slowed down while points are measured.

use super::{Companion, Holding, Load};
use crate::measured::Measured;
use anyhow::{Context, Result};
use observe::slow_down::{SlowDown, Spun};
use record::{Axis, AxisPlace, Figures, Origin, SlowPlace, names};

/// The programs at the server's places, and the spins of the window.
pub struct SlowedServer {
    slow: SlowDown,
    /// The place that is slowed down now.
    at: Option<SlowPlace>,
    before: Option<Spun>,
    during: Option<Spun>,
}

impl SlowedServer {
    /// With programs that are attached.
    pub fn with(slow: SlowDown) -> SlowedServer {
        SlowedServer { slow, at: None, before: None, during: None }
    }

    fn spun(&self) -> Option<Spun> {
        self.slow.spun(self.at?).ok()
    }
}

impl Companion for SlowedServer {
    fn hold(&mut self, place: AxisPlace, _with: &mut Holding<'_>) -> Result<bool> {
        if place.axis != Axis::SlowDown {
            return Ok(false);
        }
        self.slow.set(place.slowed, place.value as u64).context("the server cannot be slowed down")?;
        self.at = place.slowed;
        Ok(true)
    }

    fn window_begins(&mut self, _load: &Load<'_>) {
        self.before = self.spun();
    }

    fn window_ends(&mut self) {
        let between = |(before, after): (Spun, Spun)| Spun {
            count: after.count.saturating_sub(before.count),
            ns: after.ns.saturating_sub(before.ns),
        };
        self.during = self.before.take().zip(self.spun()).map(between);
    }

    fn note(&mut self, measured: &mut Measured) {
        let Some(during) = self.during.take() else { return };
        let figures = &mut measured.point.figures;
        match figures.get(names::THROUGHPUT).and_then(|figure| figure.n).filter(|n| *n > 0) {
            Some(requests) => figures.extend(per_request(during, requests)),
            None => {
                for name in [names::SLOW_REACHED, names::SLOW_ADDED] {
                    figures.not_measured(name, "no request was answered");
                }
            }
        }
    }

    fn load_failed(&mut self) {
        (self.before, self.during) = (None, None);
    }
}

fn per_request(spun: Spun, requests: u64) -> Figures {
    let mut figures = Figures::default();
    figures.measured(names::SLOW_REACHED, spun.count as f64 / requests as f64, requests, Origin::Counted);
    figures.measured(names::SLOW_ADDED, spun.ns as f64 / 1e3 / requests as f64, spun.count, Origin::Timed);
    figures
}
