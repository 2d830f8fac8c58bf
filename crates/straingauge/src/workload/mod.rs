//! Turns workload options into what the engine needs: targets with weights and classes in the plan, and arrivals and
//! logs.

mod received;
mod resolve;
pub mod supply;
pub mod targets;

pub use received::Received;
pub use resolve::{Resolved, resolve};
pub use supply::WorkloadFiles;
