//! Turns workload options into what the engine needs: targets with weights and classes in the plan, and arrivals and
//! logs.
//!
//! - [`mod@resolve`]: options read, checked, and put into the plan;
//! - [`targets`]: URL lists, mixes and their classes;
//! - [`supply`]: the files that the engine threads read while they run, and their parts for workers;
//! - [`received`]: those files on a worker.

mod received;
mod resolve;
mod supply;
pub mod targets;

pub use received::Received;
pub use resolve::{Resolved, resolve};
pub use supply::Supplied;
