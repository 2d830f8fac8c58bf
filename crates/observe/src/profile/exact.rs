//! The exact way of measuring: the kernel's functions at which one layer calls another are hooked at begin and end
//! (fentry, fexit), and time is charged as it passes, as Kim and Rixner's profiler did (2005, section 3).
//!
//! It costs more than the layers at the boundary do themselves, so it runs in short bursts, says what it cost, and takes
//! the cost of its hooks out of the layers. Rooms: [`reading`] (what they counted), `programs` (loaded, attached),
//! `calibration` (what a hook costs), `bursts` (when), [`result`] (the tables), [`calibrated`] (the sampled profile
//! corrected by it).

#[cfg(feature = "bpf")]
mod bursts;
pub mod calibrated;
mod calibration;
#[cfg(feature = "bpf")]
mod programs;
pub mod reading;
pub mod result;

#[cfg(feature = "bpf")]
pub use bursts::{BURSTS, BurstOptions, ExactProfiler, run};
#[cfg(feature = "bpf")]
pub use programs::why_not_possible;
