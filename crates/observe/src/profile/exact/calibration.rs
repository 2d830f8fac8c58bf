//! Measures the cost of a hook during the run: pairs around empty kernel functions, and empty system calls.

use crate::profile::error::ProfileError;
use crate::profile::exact::programs::ExactPrograms;
use crate::profile::exact::reading::{ChargedTo, ExactReading, RunningProcess};
use crate::watch::middle;
use record::layers::Layer;
use record::profile::exact::HookCosts;
use record::time::monotonic_ns;
use rustix::process::getppid;

/// Short batches; their median is used, so interruptions matter little.
const BATCHES: usize = 15;
const PAIRS_A_BATCH: u64 = 100;
const CALLS_A_BATCH: u64 = 200;

/// The cost of an empty system call without any program attached.
pub fn bare_call_ns() -> f64 {
    middle((0..BATCHES).map(|_| {
        let before = monotonic_ns();
        call();
        (monotonic_ns() - before) as f64 / CALLS_A_BATCH as f64
    }))
}

fn call() {
    for _ in 0..CALLS_A_BATCH {
        std::hint::black_box(getppid());
    }
}

/// Measures with the tracepoints attached and no function hooked yet. The empty functions stay hooked, because no
/// other code calls them. `bare_call_ns`: the earlier result of [`bare_call_ns`].
pub fn measure(programs: &mut ExactPrograms, bare_call_ns: f64) -> Result<HookCosts, ProfileError> {
    let kernel = |reading: &ExactReading| own(reading, ChargedTo::To(Layer::SystemCall)).ns as f64;
    let calls = batches(programs, |_| {
        call();
        Ok(())
    })?;
    let a_call = |ns: &dyn Fn(&ExactReading) -> f64| middle(calls.iter().map(|batch| ns(batch) / CALLS_A_BATCH as f64));
    let pairs = |programs: &ExactPrograms| (0..PAIRS_A_BATCH).try_for_each(|_| programs.call_empty_functions());
    programs.attach_empty_functions(1)?;
    let one = batches(programs, pairs)?;
    programs.attach_empty_functions(3)?;
    let four = batches(programs, pairs)?;
    // Three more pairs around otherwise equal calls.
    let outer = middle(four.iter().map(kernel)) - middle(one.iter().map(kernel));
    let inner = four.iter().map(|batch| {
        let cell = own(batch, ChargedTo::Calibration);
        cell.ns as f64 / cell.pairs_in.max(1) as f64
    });
    Ok(HookCosts {
        pair_inner_ns: middle(inner),
        pair_outer_ns: (outer / (3 * PAIRS_A_BATCH) as f64).max(0.0),
        call_user_ns: a_call(&|batch| own(batch, ChargedTo::To(Layer::User)).ns as f64),
        call_kernel_ns: a_call(&kernel),
        bare_call_ns,
        pairs: 5 * PAIRS_A_BATCH * BATCHES as u64,
        calls: CALLS_A_BATCH * BATCHES as u64,
    })
}

/// This program's own work in each of several short windows.
fn batches(
    programs: &ExactPrograms,
    work: impl Fn(&ExactPrograms) -> Result<(), ProfileError>,
) -> Result<Vec<ExactReading>, ProfileError> {
    let mut found = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let before = programs.read(u64::MAX, 0)?;
        programs.set_gate(monotonic_ns(), u64::MAX)?;
        work(programs)?;
        programs.set_gate(u64::MAX, 0)?;
        found.push(programs.read(u64::MAX, 0)?.since(&before));
    }
    Ok(found)
}

fn own(reading: &ExactReading, charged: ChargedTo) -> crate::profile::exact::reading::PlaceTime {
    reading.sum(|place| place.whose == RunningProcess::Tool && place.charged == charged)
}
