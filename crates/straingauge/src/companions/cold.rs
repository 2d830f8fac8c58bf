//! Cold connections held during the loads.

use super::{Companion, Holding, Load};
use crate::measured::Measured;
use anyhow::{Context, Result};
use load::LoadError;
use load::cold::{ColdCounts, ColdHerd, Keep};
use record::units::{format_bytes, format_si};
use record::{Axis, AxisPlace, LoadPlan};
use std::time::Duration;

/// How long no new cold connection may be established before the herd is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the ways of holding connections that are tried from the environment: `descriptors` or `helpers`, for tests.
const FORCED: &str = "STRAINGAUGE_COLD";

/// The cold connections of a run.
pub struct HeldCold {
    herd: ColdHerd,
    /// When the window in progress began.
    before: ColdCounts,
}

impl HeldCold {
    /// No connections yet; up to `most` can be held.
    pub fn none(plan: &LoadPlan, most: u64) -> Result<HeldCold> {
        Ok(HeldCold { herd: begin(plan, most)?, before: ColdCounts::default() })
    }

    /// Opens `count` connections, which stay through all points, and waits until they are established.
    pub fn open(count: u64, with: &mut Holding<'_>) -> Result<HeldCold> {
        let mut held = HeldCold::none(with.plan, count)?;
        let progress = &mut *with.progress;
        held.herd.resize(count, PATIENCE, with.stop.flag(), |established| {
            progress.show(&format!("opening cold connections: {established} of {count}"));
        })?;
        let counts = held.herd.counts();
        progress.say(&format!(
            "{} cold connections established; {} of kernel memory each (both ends, where the server is on this machine), {:.1} us CPU to open one",
            format_si(counts.established as f64),
            held.herd.kernel_bytes_per_connection().map_or("not measurable".into(), format_bytes),
            counts.cpu_ns as f64 / 1e3 / counts.opened.max(1) as f64,
        ));
        Ok(held)
    }
}

/// Begins a herd of none that can grow to `most`: by io_uring where the kernel has it, else with a descriptor for each
/// where they suffice, else in several processes.
fn begin(plan: &LoadPlan, most: u64) -> Result<ColdHerd> {
    let forced = std::env::var(FORCED).unwrap_or_default();
    let keep = if forced.is_empty() { Keep::Best } else { Keep::Descriptors };
    let why = match forced.as_str() {
        "helpers" => "helpers are forced".into(),
        _ => match ColdHerd::begin(plan, most, keep) {
            Err(error @ LoadError::ColdDescriptors { .. }) => error.to_string(),
            begun => return Ok(begun?),
        },
    };
    let program = std::env::current_exe().context("the helpers of the cold connections cannot be started")?;
    Ok(ColdHerd::of_helpers(plan, most, &program, why)?)
}

impl Companion for HeldCold {
    fn hold(&mut self, place: AxisPlace, with: &mut Holding<'_>) -> Result<bool> {
        if place.axis != Axis::Cold {
            return Ok(false);
        }
        let (count, progress) = (place.value as u64, &mut *with.progress);
        self.herd.resize(count, PATIENCE, with.stop.flag(), |established| {
            progress.show(&format!("cold connections: {established}, on the way to {count}"));
        })?;
        Ok(true)
    }

    fn load_begins(&mut self, _load: &Load<'_>) {
        self.before = ColdCounts::default();
    }

    fn window_begins(&mut self, _load: &Load<'_>) {
        self.before = self.herd.counts();
    }

    fn note(&mut self, measured: &mut Measured) {
        measured.point.figures.extend(self.herd.figures(self.before, measured.result.window_ns));
    }
}
