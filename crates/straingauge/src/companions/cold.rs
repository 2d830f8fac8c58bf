use super::{AxisMove, Companion, UpcomingLoad};
use crate::measured::MeasuredPoint;
use anyhow::Result;
use load::cold::{ColdCounts, ColdPool, ESTABLISH_TIMEOUT};
use record::units::{format_bytes, format_si};
use record::{Axis, AxisPlace, LoadPlan};
use std::time::Duration;

pub struct HeldCold {
    pool: ColdPool,
    before: ColdCounts,
}

impl HeldCold {
    /// A pool without connections, with room for `most`.
    pub fn none(plan: &LoadPlan, most: u64) -> Result<HeldCold> {
        Ok(HeldCold { pool: ColdPool::begin(plan, most)?, before: ColdCounts::default() })
    }

    /// Opens `count` connections, which stay through all points, and waits until they are established.
    pub fn open(count: u64, with: &mut AxisMove<'_>) -> Result<HeldCold> {
        let mut held = HeldCold::none(with.plan, count)?;
        held.resize(count, with)?;
        let counts = held.pool.counts();
        with.progress.say(&established_words(counts, held.pool.kernel_bytes_per_connection()));
        Ok(held)
    }

    fn resize(&mut self, count: u64, with: &mut AxisMove<'_>) -> Result<()> {
        // Without progress: a handshake may take as long as the connect timeout.
        let timeout = ESTABLISH_TIMEOUT.max(Duration::from_nanos(with.plan.connect_timeout_ns.saturating_mul(2)));
        let progress = &mut *with.progress;
        let show = |established| progress.show(&opening_words(established, count));
        Ok(self.pool.resize(count, timeout, with.stop.flag(), show)?)
    }
}

/// Progress in opening connections.
pub fn opening_words(established: u64, count: u64) -> String {
    format!("opening cold connections: {established} of {count}")
}

/// Describes the time and memory for establishing the cold connections.
pub fn established_words(counts: ColdCounts, kernel_bytes: Option<f64>) -> String {
    format!(
        "{} cold connections established; {} of kernel memory each (both ends if the server is on this machine), {:.1} \
         us of CPU to open one",
        format_si(counts.established as f64),
        kernel_bytes.map_or("not measurable".into(), format_bytes),
        counts.cpu_ns as f64 / 1e3 / counts.opened.max(1) as f64,
    )
}

impl Companion for HeldCold {
    fn hold(&mut self, place: AxisPlace, with: &mut AxisMove<'_>) -> Result<bool> {
        if place.axis != Axis::Cold {
            return Ok(false);
        }
        self.resize(place.value as u64, with).map(|()| true)
    }

    fn load_begins(&mut self, _load: &UpcomingLoad<'_>) {
        self.before = ColdCounts::default();
    }

    fn window_begins(&mut self, _load: &UpcomingLoad<'_>) {
        self.before = self.pool.counts();
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        measured.point.figures.extend(self.pool.figures(self.before, measured.result.window_ns));
    }
}
