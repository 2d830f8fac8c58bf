//! From run directories to findings: pure functions, no network, no kernel. The crate `report` renders what is found here.
//!
//! Read in this order: [`zones`] (what is found and by which criteria), [`sweep`] (which load is measured next), [`verdict`]
//! (what it means in words), [`watch`] (what recordings of a watch say), [`watched`] (what points say of the server's side),
//! [`simulated`] (what a simulation says), and [`limit`] for `--fail-if`. Definitions and the making of the intervals are
//! described in `docs/zones.md`.

pub mod axis;
pub mod compare;
pub mod disturbance;
mod doubted;
pub mod growth;
pub mod limit;
mod point;
pub mod predict;
pub mod profile;
mod shown;
pub mod simulated;
pub mod statistics;
pub mod sweep;
pub mod unloading;
pub mod verdict;
pub mod watch;
pub mod watched;
pub mod zones;
