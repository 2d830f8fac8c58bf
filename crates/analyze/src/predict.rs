//! From measured runs to what-if answers: service demands, models of the server, and their check against measurement.
//!
//! Read in this order: [`network`] (queueing networks as data) and their solvers [`exact`], [`approximate`],
//! [`convolution`], [`open`]; [`usl`] and [`regression`] for fits. Meaning, units and assumptions: `docs/predict.md`.

pub mod approximate;
pub mod convolution;
pub mod exact;
pub mod network;
pub mod open;
pub mod regression;
pub mod usl;
