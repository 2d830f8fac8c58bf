//! The server's CPU time by layer of the network stack, per packet and per request, after the profiler of Kim and
//! Rixner (2005).
//!
//! *Sampled*: a timer on every CPU interrupts about a thousand times a second; a BPF program counts the stacks in the
//! kernel, and `record::layers` assigns each to a layer. Two more programs observe every packet of the port, so work
//! in network softirqs is charged to the end of the connection whose packet is handled, and costs can be divided by
//! packets. docs/layers.md describes the rule, the biases and the checks.
//!
//! The result is a [`record::profile::Profile`]; the crate `report` renders it.

mod error;
pub mod events;
pub mod exact;
mod groups;
mod points;
mod result;
mod window;

// Public for tests/all only.
#[doc(hidden)]
pub mod arrivals;
#[doc(hidden)]
pub mod attribute;
#[doc(hidden)]
pub mod interval;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod sampler;
#[doc(hidden)]
pub mod samples;
#[doc(hidden)]
pub mod stacks;
#[doc(hidden)]
pub mod symbols;

pub use error::ProfileError;
pub use groups::FunctionGroup;
pub use points::{PointSampler, PointSampling, WindowLayers};
pub use record::profile::Profile;
pub use window::{ProfileOptions, Profiler, run};
