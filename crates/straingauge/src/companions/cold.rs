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
        let progress = &mut *with.progress;
        held.pool.resize(count, establish_timeout(with.plan), with.stop.flag(), |established| {
            progress.show(&format!("opening cold connections: {established} of {count}"));
        })?;
        let counts = held.pool.counts();
        progress.say(&established_words(counts, held.pool.kernel_bytes_per_connection()));
        Ok(held)
    }
}

/// Timeout without progress: a handshake may take as long as the connect timeout.
fn establish_timeout(plan: &LoadPlan) -> Duration {
    ESTABLISH_TIMEOUT.max(Duration::from_nanos(plan.connect_timeout_ns.saturating_mul(2)))
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
        let (count, progress) = (place.value as u64, &mut *with.progress);
        self.pool.resize(count, establish_timeout(with.plan), with.stop.flag(), |established| {
            progress.show(&format!("cold connections: {established} of {count}"));
        })?;
        Ok(true)
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
