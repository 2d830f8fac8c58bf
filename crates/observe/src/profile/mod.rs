//! Where the CPU goes: the server's time by layer of the network stack, per packet and per request, after the profiler of
//! Kim and Rixner (2005).
//!
//! *Sampled*: a timer on every CPU interrupts about a thousand times a second; a BPF program counts the stacks in the
//! kernel, and `record::layers` says which layer each belongs to. Two more programs see every packet of the port, so that
//! work in network softirqs is charged to the end of the connection whose packet it handles, and costs can be divided by
//! packets. docs/layers.md describes the rule, the biases and the checks.
//!
//! Rooms inside: `sampler`, `events` (the kernel's side), [`samples`] (what they counted), `symbols`, `names` (addresses to
//! functions), [`attribute`] (whose work, which layer), [`arrivals`] (whether the samples came that should have), [`result`]
//! (the tables), [`scaling`] (what select, poll, epoll, accept and descriptors cost on this kernel). What comes out is a
//! [`record::profile::Profile`]; the crate `report` renders it.

pub mod arrivals;
pub mod attribute;
pub mod error;
pub mod events;
pub mod exact;
#[cfg(feature = "bpf")]
mod folded;
pub mod groups;
pub mod interval;
pub mod names;
pub mod result;
#[cfg(feature = "bpf")]
mod sampler;
pub mod samples;
pub mod scaling;
pub mod symbols;
#[cfg(feature = "bpf")]
mod window;

pub use error::ProfileError;
pub use groups::FunctionGroup;
pub use record::profile::Profile;
#[cfg(feature = "bpf")]
pub use sampler::{EventState, Sampler, SamplerOptions};
#[cfg(feature = "bpf")]
pub use window::{ProfileOptions, Profiler, run};
