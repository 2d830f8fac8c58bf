//! From run directories to findings, text and reports: pure functions, no network, no kernel.
//!
//! Read in this order: [`zones`] (what is found and by which criteria), [`sweep`] (which load is measured next),
//! [`verdict`] (what it means in words), then the forms: [`watch`] (what recordings of a watch say), [`watched`] (what points say of the server's side), [`simulated`] (what a simulation says), [`text`], [`json`], [`report`], and [`limit`] for `--fail-if`.
//! Definitions and the making of the intervals are described in `docs/zones.md`.

pub mod axis;
pub mod chart;
pub mod compare;
pub mod disturbance;
mod doubted;
pub mod growth;
pub mod json;
pub mod limit;
pub mod predict;
pub mod report;
pub mod simulated;
pub mod statistics;
pub mod sweep;
pub mod text;
pub mod verdict;
pub mod watch;
pub mod watched;
pub mod zones;
