//! The exact method: the kernel's functions at which one layer calls another are hooked at entry and exit (fentry,
//! fexit), and the time between hooks is charged, as Kim and Rixner's profiler did (2005, section 3).
//!
//! The hooks cost more than the work at the boundaries, so the method runs in short bursts, reports its cost, and
//! subtracts the cost of the hooks from the layers.

mod bursts;
mod calibration;
#[doc(hidden)]
pub mod programs;
#[doc(hidden)]
pub mod reading;
mod result;

pub use bursts::{BURSTS, BurstOptions, ExactProfiler, run};
pub use programs::why_not_possible;
