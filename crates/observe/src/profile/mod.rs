//! The server's CPU time by layer of the network stack, per packet and per request, after the profiler of Kim and
//! Rixner (2005).
//!
//! *Sampled*: a timer on every CPU interrupts about a thousand times a second; a BPF program counts the stacks in the
//! kernel, and `record::layers` assigns each to a layer. Two more programs observe every packet of the port, so work
//! in network softirqs is charged to the end of the connection whose packet is handled, and costs can be divided by
//! packets. docs/layers.md describes the rule, the biases and the checks.
//!
//! The result is a [`record::profile::Profile`]; the crate `report` renders it.

mod arrivals;
mod attribute;
mod error;
pub mod events;
pub mod exact;
mod groups;
mod interval;
pub(crate) mod names;
mod points;
mod result;
pub(crate) mod sampler;
mod samples;
mod stacks;
pub(crate) mod symbols;
mod window;

pub use error::ProfileError;
pub use groups::FunctionGroup;
pub use points::{PointSampler, PointSampling, WindowLayers};
pub use record::profile::Profile;
pub use window::{ProfileOptions, Profiler, run};
