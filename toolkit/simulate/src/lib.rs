//! Simulates the caches of a processor under a server and its kernel.
//!
//! A machine without hardware counters cannot measure how often a packet misses the L2. So the server runs in a guest
//! that QEMU interprets (no KVM): a plugin sees every instruction and every memory access, charges it to a layer of
//! the network stack, and sends it through a model of caches. Counts are exact for the model and repeatable; they are
//! always called simulated.

pub mod command;
mod error;
pub mod experiment;
pub mod guest;
pub mod kernel_types;
pub mod machine;
pub mod objects_found;
mod parts;
pub mod render;
pub mod result;
pub mod simulation;

pub use error::SimulateError;
pub use model::{attribution, cache, exchange, objects};
